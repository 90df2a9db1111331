#include "schedule/draw/torch_csv.h"

#include "base/csv.h"
#include "base/error.h"
#include "schedule/simulation/simulate_schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace echelon {
namespace {

constexpr int largest_index = 1 << 20;

constexpr std::array<std::pair<std::string_view, ActionKind>, 4> compute_words = {{{"F", ActionKind::forward},
                                                                                   {"B", ActionKind::backward},
                                                                                   {"I", ActionKind::backward_input},
                                                                                   {"W", ActionKind::backward_weight}}};
constexpr std::array<std::string_view, 10> words_of_lowering = {"SEND_F",      "RECV_F",          "SEND_B",  "RECV_B",
                                                                "WAIT_SEND_F", "WAIT_SEND_B",     "UNSHARD", "RESHARD",
                                                                "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};

struct Row {
  const std::string& file;
  int rank;
  ComputeOrder actions;

  [[noreturn]] void refuse(std::string_view cell) const {
    throw Error(fmt::format("{}: row {} has '{}', which is not an action of a stage on a microbatch (use '{}F0')", file,
                            rank + 1, cell.substr(0, 40), rank));
  }
};

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The text before the separator; `text` keeps what is after it.
std::string_view next_piece(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

/// The number in front of text, which keeps the rest; nothing if there is none or it is too large.
std::optional<int> leading_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > largest_index) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

void read_action(std::string_view cell, Row& row) {
  std::string_view rest = cell;
  const std::optional<int> stage = leading_number(rest);
  const std::size_t num_letters = std::min(rest.find_first_of("0123456789"), rest.size());
  const std::string_view word = rest.substr(0, num_letters);
  if (!stage || word.empty()) row.refuse(cell);
  if (std::find(words_of_lowering.begin(), words_of_lowering.end(), word) != words_of_lowering.end()) return;
  rest.remove_prefix(num_letters);
  const std::optional<int> microbatch = leading_number(rest);
  const auto* const compute =
      std::find_if(compute_words.begin(), compute_words.end(), [&](const auto& known) { return known.first == word; });
  if (compute == compute_words.end() || !microbatch || !rest.empty()) row.refuse(cell);
  row.actions.push_back({.kind = compute->second, .stage = *stage, .microbatch = *microbatch});
}

void read_cell(std::string_view cell, Row& row) {
  if (cell.empty()) return;
  if (!cell.starts_with('(')) return read_action(cell, row);
  const std::size_t close = cell.find(')');
  if (close == std::string_view::npos || cell.substr(close + 1) != "OVERLAP_F_B") row.refuse(cell);
  std::string_view parts = cell.substr(1, close - 1);
  while (!parts.empty()) read_action(trimmed(next_piece(parts, ';')), row);
}

std::vector<ComputeOrder> read_rows(std::string_view text, const std::string& file) {
  std::vector<ComputeOrder> rows;
  for (const CsvRecord& record : csv_records(text, file)) {
    Row row{file, static_cast<int>(rows.size()), {}};
    for (const std::string& cell : record.fields) read_cell(trimmed(cell), row);
    rows.push_back(std::move(row.actions));
  }
  require(!rows.empty(), "{}: there is no row; a schedule has one for each pipeline rank, such as '0F0,0B0'", file);
  return rows;
}

void place_stages(Schedule& schedule, const std::string& file) {
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      int& place = schedule.rank_of_stage[action.stage];
      require(place < 0 || place == rank, "{}: stage {} is in rows {} and {}; a stage is on one rank", file,
              action.stage, place + 1, rank + 1);
      place = rank;
    }
  }
}

void check_counts(const Schedule& schedule, const std::string& file) {
  struct Counts {
    int forward = 0, backward = 0, input = 0, weight = 0;
  };
  std::vector<Counts> counts(static_cast<std::size_t>(schedule.num_stages) * schedule.num_microbatches);
  for (const ComputeOrder& order : schedule.ranks) {
    for (const Action& action : order) {
      Counts& count = counts[static_cast<std::size_t>(action.stage) * schedule.num_microbatches + action.microbatch];
      count.forward += action.kind == ActionKind::forward;
      count.backward += action.kind == ActionKind::backward;
      count.input += action.kind == ActionKind::backward_input;
      count.weight += action.kind == ActionKind::backward_weight;
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto& [forward, backward, input, weight] = counts[i];
    const bool is_complete = forward == 1 && input == weight && backward + input == 1;
    require(is_complete,
            "{}: stage {} has {} forwards, {} backwards, {} of the input and {} of the weights on microbatch {} (use "
            "'{}F{}' and '{}B{}', once each)",
            file, i / schedule.num_microbatches, forward, backward, input, weight, i % schedule.num_microbatches,
            i / schedule.num_microbatches, i % schedule.num_microbatches, i / schedule.num_microbatches,
            i % schedule.num_microbatches);
  }
}

}  // namespace

Schedule read_torch_csv(std::string_view text, const std::string& file) {
  Schedule schedule;
  schedule.ranks = read_rows(text, file);
  std::size_t num_actions = 0;
  for (const ComputeOrder& order : schedule.ranks) {
    num_actions += order.size();
    for (const Action& action : order) {
      schedule.num_stages = std::max(schedule.num_stages, action.stage + 1);
      schedule.num_microbatches = std::max(schedule.num_microbatches, action.microbatch + 1);
    }
  }
  const std::size_t num_passes = static_cast<std::size_t>(schedule.num_stages) * schedule.num_microbatches;
  require(num_actions > 0 && 2 * num_passes <= num_actions,
          "{}: {} stages and {} microbatches need {} passes at least, but there are {}; stages and microbatches are "
          "counted from 0",
          file, schedule.num_stages, schedule.num_microbatches, std::max<std::size_t>(2 * num_passes, 2), num_actions);
  schedule.rank_of_stage.assign(schedule.num_stages, -1);
  place_stages(schedule, file);
  check_counts(schedule, file);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    require(!schedule.ranks[rank].empty(), "{}: row {} computes nothing; omit it", file, rank + 1);
  try {
    (void)simulate_schedule(schedule, {});
  } catch (const Failure& stuck) {
    throw Error(
        fmt::format("{}: {}, which another pass after it or on another rank should precede", file, stuck.what()));
  }
  return schedule;
}

std::string to_torch_csv(const Schedule& schedule) {
  std::string text;
  for (const ComputeOrder& order : schedule.ranks) {
    for (const Action& action : order) {
      const auto* const word = std::find_if(compute_words.begin(), compute_words.end(),
                                            [&](const auto& known) { return known.second == action.kind; });
      text += fmt::format("{}{}{}{}", &action == order.data() ? "" : ",", action.stage, word->first, action.microbatch);
    }
    text += '\n';
  }
  return text;
}

}  // namespace echelon
