#include "schedule/check_edges.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;

// What the schedule and the options say about a stage.
struct StageView {
  const Schedule& schedule;
  const LoweringOptions& options;
  int stage;

  [[nodiscard]] const StageShape& shape() const { return options.stages[stage]; }
  [[nodiscard]] bool is_last() const { return stage == schedule.num_stages - 1; }
  [[nodiscard]] int num_parts() const { return shape().num_units + (shape().has_tied_weight ? 1 : 0); }
  [[nodiscard]] bool sums_replicas(int unit) const { return unit < static_cast<int>(shape().unit_sums_replicas.size()) && shape().unit_sums_replicas[unit]; }
  [[nodiscard]] bool sums_tied(int unit) const { return options.ties_across_ranks && unit == shape().num_units; }
  [[nodiscard]] bool expands() const {
    return options.reduces_gradients || std::count(shape().unit_sums_replicas.begin(), shape().unit_sums_replicas.end(), true) > 0;
  }
  [[nodiscard]] int last_backward() const {
    int microbatch = -1;
    for (const Action& action : schedule.ranks[stage % schedule.ranks.size()]) {
      if (action.stage == stage && action.kind == Kind::backward) microbatch = action.microbatch;
    }
    return microbatch;
  }
  /// The backward after which the gradient of a unit is complete on this rank.
  [[nodiscard]] Action completes(int unit) const {
    if (!expands())
      unit = whole_stage;
    else if (unit == shape().num_units)
      unit = stage == 0 ? 0 : unit - 1;
    return {.kind = Kind::backward, .stage = stage, .microbatch = last_backward(), .unit = unit};
  }
  /// The last action on the gradient of a unit before clipping.
  [[nodiscard]] Action finishes(int unit) const {
    if (sums_tied(unit)) return {.kind = Kind::sum_tied, .stage = stage, .unit = unit};
    return reduces(unit);
  }
  [[nodiscard]] Action reduces(int unit) const {
    if (options.reduces_gradients) return {.kind = Kind::reduce_gradients, .stage = stage, .unit = unit};
    if (sums_replicas(unit)) return {.kind = Kind::sum_replicas, .stage = stage, .unit = unit};
    return completes(unit);
  }
};

class EdgeCheck {
 public:
  EdgeCheck(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options);
  std::vector<std::string> run();

 private:
  void check_compute(const Action& reader, const StageView& view);
  void check_gradient(const Action& reader, const StageView& view);
  void check_clip(const Action& reader);
  void check_all_ended(const Action& reader);
  void demand(const Action& reader, const Action& writer);
  void demand_send_before(const Action& reader);

  int rank_;
  const Program& program_;
  const Schedule& schedule_;
  const LoweringOptions& options_;
  std::map<std::tuple<Kind, int, int, int>, int> ids_;
  std::vector<std::string> faults_;
};

EdgeCheck::EdgeCheck(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options)
    : rank_(rank), program_(program), schedule_(schedule), options_(options) {
  for (const Action& action : program) ids_[{action.kind, action.stage, action.microbatch, action.unit}] = action.id;
}

std::vector<std::string> EdgeCheck::run() {
  bool computed = false, went_back = false;
  for (const Action& reader : program_) {
    const StageView view{schedule_, options_, reader.stage};
    if (is_compute(reader.kind) && !std::exchange(computed, true)) demand(reader, {.kind = Kind::load_batch});
    if (reader.kind == Kind::backward && !std::exchange(went_back, true)) demand(reader, {.kind = Kind::clear_gradients});
    switch (reader.kind) {
      case Kind::load_batch:
      case Kind::clear_gradients:
      case Kind::receive_forward:
      case Kind::receive_backward: break;
      case Kind::count_tokens: demand(reader, {.kind = Kind::load_batch}); break;
      case Kind::forward:
      case Kind::backward:
      case Kind::backward_input:
      case Kind::backward_weight:
      case Kind::send_forward:
      case Kind::send_backward: check_compute(reader, view); break;
      case Kind::sum_replicas:
      case Kind::reduce_gradients:
      case Kind::sum_tied:
      case Kind::update: check_gradient(reader, view); break;
      case Kind::clip: check_clip(reader); break;
      case Kind::gather_parameters: demand(reader, {.kind = Kind::update, .stage = reader.stage, .unit = reader.unit}); break;
      case Kind::report: check_all_ended(reader); break;
    }
  }
  return std::move(faults_);
}

void EdgeCheck::check_compute(const Action& reader, const StageView& view) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  const bool is_whole = reader.unit == whole_stage;
  if (reader.kind == Kind::forward && stage > 0) demand(reader, {.kind = Kind::receive_forward, .stage = stage, .microbatch = microbatch});
  if (reader.kind == Kind::backward && (is_whole || reader.unit == view.shape().num_units - 1)) {
    demand(reader, {.kind = Kind::forward, .stage = stage, .microbatch = microbatch});
    if (!view.is_last()) demand(reader, {.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch});
  } else if (reader.kind == Kind::backward) {
    demand(reader, {.kind = Kind::backward, .stage = stage, .microbatch = microbatch, .unit = reader.unit + 1});
  }
  if (reader.kind == Kind::send_forward) demand(reader, {.kind = Kind::forward, .stage = stage, .microbatch = microbatch});
  if (reader.kind == Kind::send_backward) {
    const int unit = view.expands() && microbatch == view.last_backward() ? 0 : whole_stage;
    demand(reader, {.kind = Kind::backward, .stage = stage, .microbatch = microbatch, .unit = unit});
  }
  if (reader.kind == Kind::send_forward || reader.kind == Kind::send_backward) demand_send_before(reader);
}

void EdgeCheck::check_gradient(const Action& reader, const StageView& view) {
  if (reader.kind == Kind::sum_replicas) demand(reader, view.completes(reader.unit));
  if (reader.kind == Kind::sum_tied) demand(reader, view.reduces(reader.unit));
  if (reader.kind == Kind::reduce_gradients) {
    demand(reader, view.completes(reader.unit));
    demand(reader, {.kind = Kind::count_tokens});
    if (view.sums_replicas(reader.unit)) demand(reader, {.kind = Kind::sum_replicas, .stage = reader.stage, .unit = reader.unit});
  }
  if (reader.kind == Kind::update && options_.clips) demand(reader, {.kind = Kind::clip});
  if (reader.kind == Kind::update && !options_.clips) {
    demand(reader, view.finishes(reader.unit));
    demand(reader, {.kind = Kind::count_tokens});
  }
}

void EdgeCheck::check_clip(const Action& reader) {
  demand(reader, {.kind = Kind::count_tokens});
  for (const Action& writer : program_) {
    const bool writes_gradient =
        writer.kind == Kind::backward || writer.kind == Kind::sum_replicas || writer.kind == Kind::reduce_gradients || writer.kind == Kind::sum_tied;
    if (writes_gradient) demand(reader, writer);
  }
}

// Somebody at or before the report must have waited for everything.
void EdgeCheck::check_all_ended(const Action& reader) {
  demand(reader, {.kind = Kind::count_tokens});
  std::vector<bool> has_ended(program_.size(), false);
  for (const Action& action : program_) {
    if (action.id > reader.id)
      faults_.push_back(fmt::format("rank {}: {} comes after {}, which must be the last action", rank_, to_string(action), to_string(reader)));
    for (const int id : action.after) has_ended[id] = true;
  }
  for (const Action& action : program_) {
    const bool pending = !has_ended[action.id] && action.id != reader.id;
    if (pending) faults_.push_back(fmt::format("rank {}: {} is still pending at the end, for no action waits for it", rank_, to_string(action)));
  }
}

void EdgeCheck::demand(const Action& reader, const Action& writer) {
  const auto found = ids_.find({writer.kind, writer.stage, writer.microbatch, writer.unit});
  const bool waits = found != ids_.end() && std::find(reader.after.begin(), reader.after.end(), found->second) != reader.after.end();
  if (!waits) faults_.push_back(fmt::format("rank {}: {} does not wait for {}", rank_, to_string(reader), to_string(writer)));
}

void EdgeCheck::demand_send_before(const Action& reader) {
  for (int id = reader.id - 1; id >= 0; --id) {
    if (program_[id].kind == reader.kind && program_[id].stage == reader.stage) return demand(reader, program_[id]);
  }
}

}  // namespace

std::vector<Action> expected_actions(int rank, const Schedule& schedule, const LoweringOptions& options) {
  std::vector<Action> expected = {{.kind = Kind::load_batch}, {.kind = Kind::count_tokens}, {.kind = Kind::report}};
  if (options.trains) expected.push_back({.kind = Kind::clear_gradients});
  if (options.trains && options.clips) expected.push_back({.kind = Kind::clip});
  for (int stage = rank; stage < schedule.num_stages; stage += static_cast<int>(schedule.ranks.size())) {
    const StageView view{schedule, options, stage};
    for (int microbatch = 0; microbatch < schedule.num_microbatches; ++microbatch) {
      const auto expect = [&](Kind kind, int unit = whole_stage) {
        expected.push_back({.kind = kind, .stage = stage, .microbatch = microbatch, .unit = unit});
      };
      expect(Kind::forward);
      if (stage > 0) expect(Kind::receive_forward);
      if (!view.is_last()) expect(Kind::send_forward);
      if (!options.trains) continue;
      if (!view.is_last()) expect(Kind::receive_backward);
      if (stage > 0) expect(Kind::send_backward);
      if (!view.expands() || microbatch != view.last_backward())
        expect(Kind::backward);
      else
        for (int unit = 0; unit < view.shape().num_units; ++unit) expect(Kind::backward, unit);
    }
    for (int unit = 0; options.trains && unit < view.num_parts(); ++unit) {
      const auto expect = [&](Kind kind) { expected.push_back({.kind = kind, .stage = stage, .unit = unit}); };
      if (view.sums_replicas(unit)) expect(Kind::sum_replicas);
      if (options.reduces_gradients) expect(Kind::reduce_gradients);
      if (view.sums_tied(unit)) expect(Kind::sum_tied);
      expect(Kind::update);
      if (options.gathers_parameters) expect(Kind::gather_parameters);
    }
  }
  return expected;
}

std::vector<std::string> check_edges(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options) {
  return EdgeCheck(rank, program, schedule, options).run();
}

}  // namespace echelon
