#include "schedule/draw/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

namespace echelon {
namespace {

struct Box {
  int rank;
  std::string name;
  double start, end;
};

std::string name_in_drawing(const Action& action, int turn, int num_turns) {
  const char letter = letter_of(action.kind);
  const int number = action.microbatch + 1;
  if (num_turns <= 2) return fmt::format("{}{}", static_cast<char>(turn == 0 ? letter : std::tolower(letter)), number);
  return fmt::format("{}{}{}", letter, number, static_cast<char>('a' + turn % 26));
}

// The units of one backward are one box.
std::vector<Box> boxes(const Timeline& timeline, const std::vector<Program>& programs) {
  std::vector<Box> all;
  const std::map<int, int> turns = turns_of(programs);
  int num_turns = 0;
  for (const auto& [stage, turn] : turns) num_turns = std::max(num_turns, turn + 1);
  for (const Event& event : timeline.events) {
    const Action& action = programs[event.rank][event.action_id];
    if (!is_compute(action.kind)) continue;
    const std::string name = name_in_drawing(action, turns.at(action.stage), num_turns);
    const bool continues = !all.empty() && all.back().rank == event.rank && all.back().name == name;
    if (continues)
      all.back().end = event.end;
    else
      all.push_back({event.rank, name, event.start, event.end});
  }
  return all;
}

double columns_per_unit(const std::vector<Box>& all, double length, const DrawOptions& options) {
  double columns = options.columns_per_unit;
  if (options.columns_per_unit == 0) {
    for (const Box& box : all)
      columns = std::max(columns, static_cast<double>(box.name.size()) / (box.end - box.start));
  }
  return std::min(columns, options.max_columns / length);
}

}  // namespace

char letter_of(ActionKind kind) {
  if (kind == ActionKind::forward) return 'F';
  return kind == ActionKind::backward_weight ? 'W' : 'B';
}

std::map<int, int> turns_of(const std::vector<Program>& programs) {
  std::map<int, int> turns;
  for (const Program& program : programs) {
    std::set<int> stages;
    for (const Action& action : program) {
      if (is_compute(action.kind)) stages.insert(action.stage);
    }
    int turn = 0;
    for (const int stage : stages) turns[stage] = turn++;
  }
  return turns;
}

std::string draw(const Timeline& timeline, const std::vector<Program>& programs, const DrawOptions& options) {
  std::vector<Box> all = boxes(timeline, programs);
  std::erase_if(all, [](const Box& box) { return box.end <= box.start; });
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const Box& box : all) first = std::min(first, box.start), last = std::max(last, box.end);
  const double columns = all.empty() ? 1 : columns_per_unit(all, last - first, options);

  std::vector<std::string> rows(programs.size());
  for (const Box& box : all) {
    const auto column_of = [&](double time) { return static_cast<std::size_t>(std::lround((time - first) * columns)); };
    std::string& row = rows[box.rank];
    // An event that is narrower than a column gets one if it is free.
    const std::size_t begin = std::max(row.size(), column_of(box.start)),
                      end = std::max(column_of(box.start) + 1, column_of(box.end));
    if (begin >= end) continue;
    row.resize(begin, ' ');
    row += box.name.substr(0, end - begin);
    row.resize(end, '=');
  }
  std::string drawing;
  const std::size_t digits = std::to_string(programs.size() - 1).size();
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    drawing += fmt::format("rank {:<{}}  {}\n", rank, digits, rows[rank]);
  return drawing;
}

}  // namespace echelon
