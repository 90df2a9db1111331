#include "report/metrics_history.h"

#include "base/text/counted.h"
#include "files/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace echelon {
namespace {

using ParsedJson = nlohmann::json;

class HistoryReader {
 public:
  void add(std::string_view text) {
    const ParsedJson json = ParsedJson::parse(text, nullptr, false);
    if (!json.is_object())
      ++history_.num_unreadable;
    else if (const auto from = count_in(json, "resumed_from"))
      resumed(*from);
    else if (const auto step = count_in(json, "step"))
      add(json, *step, text);
  }
  [[nodiscard]] MetricsHistory result() && { return std::move(history_); }

 private:
  static std::optional<std::int64_t> count_in(const ParsedJson& json, const char* key) {
    const auto value = json.find(key);
    return value != json.end() && value->is_number_integer() ? std::optional(value->get<std::int64_t>()) : std::nullopt;
  }

  void add(const ParsedJson& json, std::int64_t step, std::string_view text) {
    const bool is_evaluation = json.contains("validation_loss");
    const auto loss = json.find(is_evaluation ? "validation_loss" : "loss");
    if (loss == json.end()) return;
    // A run that started again without a checkpoint says nothing else.
    if (!is_evaluation) drop_from(step);
    history_.lines.push_back({.step = step,
                              .is_evaluation = is_evaluation,
                              .loss = loss->is_number() ? loss->get<double>() : NAN,
                              .text = std::string(text)});
  }
  void resumed(std::int64_t from) {
    ++history_.num_resumed;
    drop_from(from + 1);
  }
  void drop_from(std::int64_t step) {
    for (; !history_.lines.empty() && history_.lines.back().step >= step; ++history_.num_repeated)
      history_.lines.pop_back();
  }

  MetricsHistory history_;
};

}  // namespace

MetricsHistory read_metrics(const std::filesystem::path& path) {
  const std::string all = read_text(path, INT64_MAX);
  HistoryReader reader;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    if (end > begin) reader.add(std::string_view(all).substr(begin, end - begin));
    begin = end + 1;
  }
  return std::move(reader).result();
}

std::string to_text(const MetricsHistory& history) {
  const MetricsHistory::Line *first = nullptr, *last = nullptr, *evaluation = nullptr;
  for (const MetricsHistory::Line& line : history.lines) {
    if (line.is_evaluation) {
      evaluation = &line;
      continue;
    }
    if (first == nullptr) first = &line;
    last = &line;
  }
  std::string text = first == nullptr ? "no steps" : fmt::format("steps {} to {}", first->step, last->step);
  text += fmt::format(", {}; left out: {} of repeated steps, {} that {} cut off\n",
                      counted(history.num_resumed, "resume"), counted(history.num_repeated, "line"),
                      history.num_unreadable, history.num_unreadable == 1 ? "is" : "are");
  if (first != nullptr)
    text += fmt::format("training loss: {:.5f} at first, {:.5f} at last\n", first->loss, last->loss);
  if (evaluation != nullptr)
    text += fmt::format("validation loss: {:.5f} after step {}\n", evaluation->loss, evaluation->step);
  return text;
}

}  // namespace echelon
