#include "data/corpus.h"

#include "base/error.h"
#include "data/corpus_files.h"
#include "data/files/mapped_file.h"
#include "data/permutation.h"
#include "data/text_field.h"
#include "data/tokenizer/tokenizer_spec.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

constexpr double enough_files_for_validation = 5;  // with fewer files, a split by whole files is too coarse

bool is_lines_of_json(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }

/// The first num_bytes of text, shortened to end after a line.
std::string_view front(std::string_view text, std::int64_t num_bytes) {
  if (num_bytes >= static_cast<std::int64_t>(text.size())) return text;
  text = text.substr(0, static_cast<std::size_t>(num_bytes));
  const std::size_t last_break = text.rfind('\n');
  return last_break == std::string_view::npos ? text : text.substr(0, last_break + 1);
}

/// The same in whole lines, at least the first: a line of JSON cannot be split.
std::string_view front_lines(std::string_view text, std::int64_t num_bytes) {
  const std::string_view lines = front(text, num_bytes);
  return lines.size() == text.size() || lines.ends_with('\n') ? lines : text.substr(0, text.find('\n'));
}

/// The program whose files start so; empty: none that is known. No UTF-8 starts so, but for bzip2's letters.
std::string_view compression_of(std::string_view bytes) {
  constexpr std::size_t place_of_block = 4;
  if (bytes.starts_with("\x1f\x8b")) return "gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return "zstd";
  if (bytes.starts_with("\xfd\x37zXZ")) return "xz";
  if (bytes.starts_with("BZh") && bytes.find("1AY&SY") == place_of_block) return "bzip2";
  return {};
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

/// Whether the text has one line with content.
bool is_one_line(std::string_view text) {
  const std::size_t begin = std::min(text.size(), text.find_first_not_of(" \t\r\n"));
  return is_blank(text.substr(std::min(text.size(), text.find('\n', begin))));
}

}  // namespace

Corpus::Corpus(CorpusOptions options) : options_(std::move(options)) {
  require(!options_.inputs.empty(), "prepare --input is missing: name a file, a folder or a glob");
  require(options_.validation_fraction >= 0 && options_.validation_fraction <= 0.5,
          "prepare --validation-fraction={} is not in [0, 0.5]", options_.validation_fraction);
  require(options_.max_bytes >= 0, "prepare --max-bytes={} is negative; 0 takes everything", options_.max_bytes);
  for (FoundFile& found : find_files(options_.inputs, options_.globs, options_.not_below)) {
    std::error_code error;
    const auto num_bytes = std::filesystem::file_size(found.path, error);
    const auto modified =
        error ? std::filesystem::file_time_type() : std::filesystem::last_write_time(found.path, error);
    require(!error, "{} cannot be read: {}", found.path, error.message());
    const std::uint64_t draw =
        XXH3_64bits_withSeed(found.name.data(), found.name.size(), static_cast<std::uint64_t>(options_.seed));
    if (num_bytes == 0) continue;
    files_.push_back({std::move(found.path), std::move(found.name), static_cast<std::int64_t>(num_bytes),
                      std::chrono::duration_cast<std::chrono::nanoseconds>(modified.time_since_epoch()).count(), draw});
  }
  require(!files_.empty(), "prepare --input={}: there is no text{}", fmt::join(options_.inputs, ", "),
          options_.globs.empty() ? "" : fmt::format(" in files named {}", fmt::join(options_.globs, ", ")));
  if (options_.max_bytes > 0) keep_max_bytes();
  splits_files_ = static_cast<double>(files_.size()) * options_.validation_fraction >= enough_files_for_validation;
}

void Corpus::keep_max_bytes() {
  std::stable_sort(files_.begin(), files_.end(),
                   [](const CorpusFile& a, const CorpusFile& b) { return a.draw < b.draw; });
  std::int64_t left = options_.max_bytes;
  std::size_t kept = 0;
  for (; kept < files_.size() && left > 0; ++kept) {
    files_[kept].num_bytes = std::min(files_[kept].num_bytes, left);
    left -= files_[kept].num_bytes;
  }
  files_.resize(kept);
  std::sort(files_.begin(), files_.end(), [](const CorpusFile& a, const CorpusFile& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
}

std::int64_t Corpus::num_bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::int64_t{0},
                         [](std::int64_t sum, const CorpusFile& file) { return sum + file.num_bytes; });
}

bool Corpus::is_chosen(std::uint64_t draw) const {
  return static_cast<double>(draw >> 11) * 0x1p-53 < options_.validation_fraction;
}

// The draw for validation differs from the draw for max_bytes. Otherwise the first drawn files would all be for
// validation.
Split Corpus::split_of(const CorpusFile& file) const {
  return splits_files_ && is_chosen(mix(file.draw, 1)) ? Split::validation : Split::train;
}

Error Corpus::no_text(std::string_view for_what) const {
  std::string why;
  for (const CorpusFile& file : files_) {
    const std::string_view program = compression_of(MappedFile(file.path).bytes());
    if (program.empty()) continue;
    why = fmt::format("; {} is compressed: decompress it first, with {} -dk", file.path, program);
    break;
  }
  return Error(
      fmt::format("prepare --input={}: there is no text {}{}", fmt::join(options_.inputs, ", "), for_what, why));
}

bool Corpus::for_each_document(const CorpusFile& file, std::int64_t num_bytes, const Visit& visit) const {
  const MappedFile mapped(file.path);
  const std::int64_t most_bytes = std::min(num_bytes, file.num_bytes);
  const std::string_view text = front(mapped.bytes(), most_bytes);
  require(!options_.takes_lines || is_lines_of_json(file.path), "{} is not a .jsonl file, one conversation per line",
          file.path);
  if (text.substr(0, 8192).find('\0') != std::string_view::npos || !compression_of(text).empty()) return false;
  if (options_.takes_lines) {
    for_each_line(file, front_lines(mapped.bytes(), most_bytes), visit);
  } else if (!is_lines_of_json(file.path)) {
    for_each_text(file, text, visit);
  } else if (is_one_line(front_lines(mapped.bytes(), file.num_bytes))) {
    for_each_line(file, mapped.bytes(),
                  [&](const CorpusDocument& document) { visit_one(file, front(document.text, most_bytes), visit); });
  } else {
    for_each_line(file, front_lines(mapped.bytes(), most_bytes), visit);
  }
  return true;
}

void Corpus::for_each_line(const CorpusFile& file, std::string_view text, const Visit& visit) const {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (is_blank(line)) continue;
    const bool is_drawn = !splits_files_ && is_chosen(mix(file.draw, static_cast<std::uint64_t>(number)));
    const Split split = is_drawn ? Split::validation : split_of(file);
    if (options_.takes_lines) {
      visit({split, line, file, number});
      continue;
    }
    std::string document;
    named_in_errors(file, number, [&] { document = read_text_field(line, options_.text_key); });
    if (!document.empty()) visit({split, document, file, number});
  }
}

void Corpus::visit_one(const CorpusFile& file, std::string_view document, const Visit& visit) const {
  if (document.empty()) return;
  if (splits_files_) return visit({split_of(file), document, file});
  const auto train_bytes =
      static_cast<std::int64_t>(static_cast<double>(document.size()) * (1 - options_.validation_fraction));
  const std::string_view train = front(document, train_bytes);
  if (train.empty()) return visit({Split::train, document, file});
  visit({Split::train, train, file});
  if (train.size() < document.size()) visit({Split::validation, document.substr(train.size()), file});
}

void Corpus::for_each_text(const CorpusFile& file, std::string_view text, const Visit& visit) const {
  if (text.find(end_of_text) == std::string_view::npos) return visit_one(file, text, visit);
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::string_view document = text.substr(0, text.find(end_of_text));
    text.remove_prefix(std::min(document.size() + end_of_text.size(), text.size()));
    const bool is_drawn = !splits_files_ && is_chosen(mix(file.draw, number));
    if (!document.empty()) visit({is_drawn ? Split::validation : split_of(file), document, file});
  }
}

}  // namespace echelon
