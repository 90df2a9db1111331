#include "base/text/counted.h"
#include "base/text/printable.h"
#include "cli/inspect/inspect_tokens.h"
#include "cli/inspect/print_json.h"
#include "cli/terminal.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace echelon {
namespace {

constexpr std::int64_t most_sample_tokens = 4096;  // of a document
constexpr std::size_t most_sample_line_bytes = 4000;

/// Consecutive tokens that are all trained, or all not.
struct SampleSpan {
  std::string text;
  bool is_trained = false;
};

struct SampledDocument {
  std::int64_t index = 0, num_tokens = 0, num_shown = 0, num_trained = 0;
  std::vector<SampleSpan> spans{};
};

/// Safe to print, line by line.
std::string lines_of_text(std::string_view text) {
  std::string result;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find('\n', start);
    result += printable(text.substr(start, end - start), most_sample_line_bytes);
    if (end == std::string_view::npos) return result;
    result += '\n';
    start = end + 1;
  }
}

SampledDocument sampled(const IndexedDataset& dataset, const std::optional<LossMask>& mask, const Tokenizer& tokenizer,
                        std::int64_t index) {
  const std::int64_t start = dataset.document_start(index), size = dataset.document_start(index + 1) - start;
  SampledDocument document = {.index = index, .num_tokens = size, .num_shown = std::min(size, most_sample_tokens)};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(document.num_shown));
  dataset.read(start, ids);
  for (std::int64_t i = 0; i < document.num_shown; ++i) {
    const bool is_trained = !mask || mask->is_trained(start + i);
    document.num_trained += is_trained ? 1 : 0;
    if (document.spans.empty() || document.spans.back().is_trained != is_trained)
      document.spans.push_back({.text = {}, .is_trained = is_trained});
    document.spans.back().text += tokenizer.bytes(ids[static_cast<std::size_t>(i)]);
  }
  return document;
}

/// Without a mask everything is trained, so that marks would say nothing.
void print(const SampledDocument& document, bool has_mask, bool in_color) {
  const bool is_cut = document.num_shown < document.num_tokens;
  fmt::print("--- document {}: {}{}, {}\n", document.index, counted(document.num_tokens, "token"),
             is_cut ? fmt::format(", of which the first {} are shown", document.num_shown) : "",
             has_mask ? fmt::format("{} of {} trained", document.num_trained, is_cut ? "these" : "them")
                      : "all of them trained");
  for (const SampleSpan& span : document.spans) {
    const bool is_marked = span.is_trained && has_mask;
    fmt::print("{}{}{}",
               !is_marked ? ""
               : in_color ? "\x1b[32m"
                          : "[",
               lines_of_text(span.text),
               !is_marked ? ""
               : in_color ? "\x1b[0m"
                          : "]");
  }
  fmt::print("\n");
}

nlohmann::ordered_json to_json(const SampledDocument& document) {
  auto spans = nlohmann::ordered_json::array();
  for (const SampleSpan& span : document.spans) spans.push_back({{"text", span.text}, {"is_trained", span.is_trained}});
  return {{"document", document.index}, {"num_tokens", document.num_tokens}, {"spans", spans}};
}

}  // namespace

ExitStatus inspect_sample(const std::string& prefix, std::int64_t count, bool json) {
  const IndexedDataset dataset(prefix);
  const auto path = std::filesystem::path(prefix).parent_path() / "tokenizer.json";
  require(std::filesystem::exists(path),
          "--sample={}: there is no {}, which decodes {}.bin; copy the tokenizer.json of its tokens there", count,
          path.string(), prefix);
  const Tokenizer tokenizer = Tokenizer::load(path.string());
  const std::optional<LossMask> mask = LossMask::of(dataset);
  const bool in_color = progress_style() == ProgressStyle::terminal;
  const std::int64_t documents = dataset.num_documents(), shown = std::min(count, documents);
  for (std::int64_t i = 0; i < shown; ++i) {
    const SampledDocument document = sampled(dataset, mask, tokenizer, i * documents / shown);
    json ? print_json(to_json(document)) : print(document, mask.has_value(), in_color);
  }
  if (shown == 0 && !json) fmt::print("{}: it has no documents\n", prefix);
  return ExitStatus::success;
}

}  // namespace echelon
