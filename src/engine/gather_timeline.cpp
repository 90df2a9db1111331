#include "engine/gather_timeline.h"

#include "spec/groups.h"

#include <algorithm>

namespace echelon {

Timeline gather_timeline(Mesh& mesh, const Blueprint& blueprint, const StepTrace& trace, bool has_one_clock) {
  const std::vector<Program>& programs = blueprint.programs(ProgramKind::training);
  std::size_t most_actions = 0;
  for (const Program& program : programs) most_actions = std::max(most_actions, program.size());
  // Start and end of each action: all ranks send as much as the one with the longest program.
  const std::size_t num_times = 2 * most_actions;
  std::vector<double> mine(num_times), all(num_times * programs.size());
  const Program& program = programs[static_cast<std::size_t>(mesh.coordinate(Axis::pp))];
  const Timeline timeline = timeline_of(trace, program);
  for (std::size_t id = 0; id < program.size(); ++id) {
    const double origin = has_one_clock ? 0 : trace.start;
    mine[2 * id] = timeline.events[id].start - origin;
    mine[2 * id + 1] = timeline.events[id].end - origin;
  }
  if (programs.size() == 1) {
    all = mine;
  } else {
    const auto tensor = [](std::vector<double>& numbers) {
      return Tensor(numbers.data(), DType::float64, {static_cast<std::int64_t>(numbers.size())});
    };
    mesh.comm(pipeline_group).all_gather(tensor(all), tensor(mine)).wait();
  }
  Timeline gathered;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Action& action : programs[rank]) {
      const double* times = &all[rank * num_times + 2 * static_cast<std::size_t>(action.id)];
      gathered.events.push_back({static_cast<int>(rank), action.id, lane_of(action.kind), times[0], times[1]});
    }
  }
  return gathered;
}

}  // namespace echelon
