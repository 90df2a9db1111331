#include "engine/gather_timeline.h"

#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

Tensor as_tensor(std::vector<double>& numbers) {
  return {numbers.data(), DType::float64, {static_cast<std::int64_t>(numbers.size())}};
}

/// `mine` of every rank of the pipeline, rank after rank.
std::vector<double> of_pipeline(Mesh& mesh, std::vector<double> mine) {
  const int num_ranks = mesh.shape().degree(Axis::pp);
  if (num_ranks == 1) return mine;
  std::vector<double> all(mine.size() * static_cast<std::size_t>(num_ranks));
  mesh.comm(pipeline_group).all_gather(as_tensor(all), as_tensor(mine)).wait();
  return all;
}

/// Ranks have different numbers of rounds.
std::vector<ExchangeEvent> gathered_exchanges(Mesh& mesh, const std::vector<ExchangeEvent>& own, double origin) {
  constexpr RowPurpose purposes[] = {RowPurpose::dispatch, RowPurpose::combine};
  constexpr std::size_t num_fields = 4;
  const std::vector<double> counts = of_pipeline(mesh, {static_cast<double>(own.size())});
  std::vector<double> mine;
  for (const ExchangeEvent& each : own)
    mine.insert(mine.end(), {static_cast<double>(each.action_id), each.name == name_of(purposes[0]) ? 0.0 : 1.0,
                             each.start - origin, each.end - origin});
  mine.resize(num_fields * static_cast<std::size_t>(std::ranges::max(counts)));
  const std::size_t per_rank = mine.size();
  const std::vector<double> all = of_pipeline(mesh, std::move(mine));
  std::vector<ExchangeEvent> gathered;
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[rank]); ++i) {
      const double* of = &all[rank * per_rank + num_fields * i];
      gathered.push_back({static_cast<int>(rank), static_cast<int>(of[0]),
                          name_of(purposes[static_cast<std::size_t>(of[1])]), of[2], of[3]});
    }
  return gathered;
}

}  // namespace

Timeline gather_timeline(Mesh& mesh, const Blueprint& blueprint, const StepTrace& trace, bool has_one_clock) {
  const std::vector<Program>& programs = blueprint.programs(ProgramKind::training);
  std::size_t most_actions = 0;
  for (const Program& program : programs) most_actions = std::max(most_actions, program.size());
  // Start and end of each action: all ranks send as much as the one with the longest program.
  const std::size_t num_times = 2 * most_actions;
  std::vector<double> mine(num_times);
  const Program& program = programs[static_cast<std::size_t>(mesh.coordinate(Axis::pp))];
  const Timeline timeline = timeline_of(trace, program);
  const double origin = has_one_clock ? 0 : trace.start;
  for (std::size_t id = 0; id < program.size(); ++id) {
    mine[2 * id] = timeline.events[id].start - origin;
    mine[2 * id + 1] = timeline.events[id].end - origin;
  }
  const std::vector<double> all = of_pipeline(mesh, std::move(mine));
  Timeline gathered;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Action& action : programs[rank]) {
      const double* times = &all[rank * num_times + 2 * static_cast<std::size_t>(action.id)];
      gathered.events.push_back({static_cast<int>(rank), action.id, lane_of(action.kind), times[0], times[1]});
    }
  }
  if (blueprint.config().model.has_experts()) gathered.exchanges = gathered_exchanges(mesh, timeline.exchanges, origin);
  return gathered;
}

}  // namespace echelon
