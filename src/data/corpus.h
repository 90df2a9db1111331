// Text on disk as documents: selection, order and validation split.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// Where the text is and how much of it to take.
struct CorpusOptions {
  std::vector<std::string> inputs;  // files, folders (searched recursively, without hidden names) and globs of both
  // Names of the files to take from folders, such as *.h; "*." means names without a dot; empty: all.
  std::vector<std::string> globs;
  // A folder whose files are never taken: the output folder, which may be inside an input.
  std::string not_below;
  std::string text_key = "text";  // of the objects in .jsonl files
  bool takes_lines = false;       // documents are whole lines of .jsonl files, which are the only ones
  std::int64_t max_bytes = 0;     // files are drawn by (seed, name) until this is reached; 0: all
  double validation_fraction = 0.05;
  std::int64_t seed = 0;
};

struct CorpusFile {
  std::string path;
  std::string name;             // path below its input: the same on every machine
  std::int64_t num_bytes;       // bytes taken from the start; ends at a line break unless it is the whole file
  std::int64_t modified_nanos;  // since the epoch of the file clock
  std::uint64_t draw;           // selects samples and splits by (seed, name)
};

/// What `read` returns. Errors other than interrupts name the line.
template <class Read>
auto named_in_errors(const CorpusFile& file, std::int64_t number, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.status() != ExitStatus::bad_input) throw;
    throw Error(fmt::format("{}:{}: {}", file.path, number, error.what()));
  }
}

enum class Split : std::uint8_t { train, validation };

struct CorpusDocument {
  Split split{};
  std::string_view text;  // until the visit of it returns
  const CorpusFile& file;
  std::int64_t line = 0;  // of a file of lines, from 1
};

/// Documents are the lines of a .jsonl file; in other files, the texts between <|endoftext|>. The validation split
/// depends only on (seed, name): whole files if there are many, else documents. A file that is one document gives its
/// end.
class Corpus {
 public:
  using Visit = std::function<void(const CorpusDocument&)>;

  /// Throws Error if an input does not exist, nothing is found, or an option is out of range.
  explicit Corpus(CorpusOptions options);

  /// Sorted by name.
  [[nodiscard]] const std::vector<CorpusFile>& files() const { return files_; }
  [[nodiscard]] std::int64_t num_bytes() const;

  /// Calls `visit` with each document that is not empty, reading at most num_bytes of the file. Returns whether it is
  /// text: a file with a zero byte in its first 8 KiB is not. Throws Error if it cannot be read or a line of JSON lacks
  /// the text field.
  bool for_each_document(const CorpusFile& file, std::int64_t num_bytes, const Visit& visit) const;

  /// Says that there is no text `for_what`, and which file is compressed.
  [[nodiscard]] Error no_text(std::string_view for_what) const;

 private:
  [[nodiscard]] Split split_of(const CorpusFile& file) const;
  [[nodiscard]] bool is_chosen(std::uint64_t draw) const;
  void for_each_line(const CorpusFile& file, std::string_view text, const Visit& visit) const;
  /// The only document of a file. Its end is for validation, unless whole files are.
  void visit_one(const CorpusFile& file, std::string_view document, const Visit& visit) const;
  void for_each_text(const CorpusFile& file, std::string_view text, const Visit& visit) const;
  void keep_max_bytes();

  CorpusOptions options_;
  std::vector<CorpusFile> files_;
  bool splits_files_ = false;
};

}  // namespace echelon
