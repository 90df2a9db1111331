#include "schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {
namespace {

struct Box {
  int rank;
  std::string name;
  double start, end;
};

char letter_of(ActionKind kind) {
  if (kind == ActionKind::forward) return 'F';
  return kind == ActionKind::backward_weight ? 'W' : 'B';
}

// The units of one backward are one box.
std::vector<Box> boxes(const Timeline& timeline, const std::vector<Program>& programs) {
  std::vector<Box> all;
  for (const Event& event : timeline.events) {
    const Action& action = programs[event.rank][event.action_id];
    if (!is_compute(action.kind)) continue;
    const std::string name = fmt::format("{}{}", letter_of(action.kind), action.microbatch + 1);
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
    for (const Box& box : all) columns = std::max(columns, static_cast<double>(box.name.size()) / (box.end - box.start));
  }
  return std::min(columns, options.max_columns / length);
}

}  // namespace

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
    const std::size_t width = column_of(box.end) - column_of(box.start);
    row.resize(std::max(row.size(), column_of(box.start)), ' ');
    row += box.name.substr(0, width);
    row.resize(column_of(box.end), '=');
  }
  std::string drawing;
  const std::size_t digits = std::to_string(programs.size() - 1).size();
  for (std::size_t rank = 0; rank < rows.size(); ++rank) drawing += fmt::format("rank {:<{}}  {}\n", rank, digits, rows[rank]);
  return drawing;
}

}  // namespace echelon
