// Text on disk as documents: which files, in what order, which of them are for validation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Where the text is and how much of it to take.
struct CorpusOptions {
  std::vector<std::string> inputs;  // files, folders (searched to the bottom, without hidden names) and globs of both
  // Names of the files to take from folders, such as *.h; "*." means names without a dot; empty: all.
  std::vector<std::string> globs;
  // A folder whose files are never taken: that of the output, which may lie in an input.
  std::string not_below;
  std::string text_key = "text";  // of the objects in .jsonl files
  std::int64_t max_bytes = 0;     // files are drawn by (seed, name) until this is reached; 0: all
  double validation_fraction = 0.05;
  std::int64_t seed = 0;
};

struct CorpusFile {
  std::string path;
  std::string name;             // below its input: the same on every machine
  std::int64_t num_bytes;       // taken from the front, at a line break if that is not all of the file
  std::int64_t modified_nanos;  // since the epoch of the file clock
  std::uint64_t draw;           // decides by (seed, name) over samples and splits
};

enum class Split : std::uint8_t { train, validation };

/// Documents are the lines of a .jsonl file, and of any other file the texts between <|endoftext|>. Which are for
/// validation depends on (seed, name) alone: whole files where there are many; else documents; and of a file that is
/// one document, the end.
class Corpus {
 public:
  /// Throws Error if an input does not exist, nothing is found, or an option is out of range.
  explicit Corpus(CorpusOptions options);

  /// By name.
  [[nodiscard]] const std::vector<CorpusFile>& files() const { return files_; }
  [[nodiscard]] std::int64_t num_bytes() const;

  /// Calls `visit` with each document that is not empty, reading no further than num_bytes of the file. Returns whether
  /// it is text: a file with a zero byte in its first 8 KiB is not. Throws Error if it cannot be read or a line of JSON
  /// has no such text.
  bool for_each_document(const CorpusFile& file, std::int64_t num_bytes,
                         const std::function<void(Split, std::string_view)>& visit) const;

 private:
  [[nodiscard]] Split split_of(const CorpusFile& file) const;
  [[nodiscard]] bool is_chosen(std::uint64_t draw) const;
  void for_each_line(const CorpusFile& file, std::string_view text,
                     const std::function<void(Split, std::string_view)>& visit) const;
  /// The document that a file is alone: its end is for validation, unless whole files are.
  void visit_one(const CorpusFile& file, std::string_view document,
                 const std::function<void(Split, std::string_view)>& visit) const;
  void for_each_text(const CorpusFile& file, std::string_view text,
                     const std::function<void(Split, std::string_view)>& visit) const;
  void keep_max_bytes();

  CorpusOptions options_;
  std::vector<CorpusFile> files_;
  bool splits_files_ = false;
};

}  // namespace echelon
