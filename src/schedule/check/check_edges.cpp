#include "schedule/check/check_edges.h"

#include "base/error.h"
#include "schedule/lowering/unit_passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;

// What the schedule and the options say about the stages of a rank.
class StageViews {
 public:
  StageViews(int rank, const Schedule& schedule, const LoweringOptions& options)
      : rank_(rank), schedule_(schedule), options_(options) {
    for (const Action& pass : schedule.ranks[rank]) {
      if (computes_weight_gradients(pass.kind)) last_gradient_[pass.stage] = pass;
      if (pass.kind == Kind::backward_input || pass.kind == Kind::backward_weight)
        splits_.insert({pass.stage, pass.microbatch});
    }
  }

  [[nodiscard]] const StageShape& shape(int stage) const { return options_.stages[stage]; }
  [[nodiscard]] int num_units_of(int stage) const {
    return shape(stage).num_units + (shape(stage).has_tied_weight ? 1 : 0);
  }
  [[nodiscard]] bool is_here(int stage) const { return exists(stage) && schedule_.rank_of_stage[stage] == rank_; }
  [[nodiscard]] bool is_elsewhere(int stage) const { return exists(stage) && schedule_.rank_of_stage[stage] != rank_; }
  [[nodiscard]] bool splits(int stage, int microbatch) const { return splits_.contains({stage, microbatch}); }
  [[nodiscard]] bool sums_replicas(int stage, int unit) const {
    const std::vector<bool>& sums = shape(stage).unit_sums_replicas;
    return unit < static_cast<int>(sums.size()) && sums[unit];
  }
  [[nodiscard]] bool sums_tied(int stage, int unit) const {
    return options_.ties_across_ranks && unit == shape(stage).num_units;
  }
  /// Whether the pass runs unit by unit: its parameters are gathered, its gradients are reduced, or it is the last pass
  /// of its stage that computes gradients.
  [[nodiscard]] bool is_by_units(const Action& pass) const {
    if (options_.shards_parameters || (options_.shards_gradients && computes_weight_gradients(pass.kind))) return true;
    const auto last = last_gradient_.find(pass.stage);
    if (last == last_gradient_.end() || last->second.kind != pass.kind || last->second.microbatch != pass.microbatch)
      return false;
    const std::vector<bool>& sums = shape(pass.stage).unit_sums_replicas;
    return options_.reduces_gradients || std::find(sums.begin(), sums.end(), true) != sums.end();
  }
  /// The passes after which the gradient of a unit is complete on this rank, in the step or of one microbatch: one, or
  /// two that share a tied weight.
  [[nodiscard]] std::vector<Action> complete(const Action& gradient) const {
    const auto& [kind, stage, microbatch, unit, id, after] = gradient;
    const bool is_tied = unit == shape(stage).num_units;
    if (microbatch >= 0) {
      const Kind forming = splits(stage, microbatch) ? Kind::backward_weight : Kind::backward;
      return {{.kind = forming,
               .stage = stage,
               .microbatch = microbatch,
               .unit = !is_tied     ? unit
                       : stage == 0 ? 0
                                    : unit - 1}};
    }
    if (!is_tied) return {last_gradient(stage, unit)};
    if (options_.stages.back().borrows_tied_weight && stage == 0) {
      const int last = schedule_.num_stages - 1;
      return {last_gradient(stage, 0), last_gradient(last, shape(last).num_units - 1)};
    }
    return {last_gradient(stage, stage == 0 ? 0 : unit - 1)};
  }
  /// The action that ends the input gradient of a microbatch in a stage.
  [[nodiscard]] Action goes_back(int stage, int microbatch) const {
    Action pass{.kind = splits(stage, microbatch) ? Kind::backward_input : Kind::backward,
                .stage = stage,
                .microbatch = microbatch};
    if (is_by_units(pass)) pass.unit = 0;
    return pass;
  }
  /// The action that ends the forward pass of a microbatch through a stage.
  [[nodiscard]] Action goes_forward(int stage, int microbatch) const {
    return {.kind = Kind::forward,
            .stage = stage,
            .microbatch = microbatch,
            .unit = options_.shards_parameters ? shape(stage).num_units - 1 : whole_stage};
  }
  /// The units of a stage that get gradients of their own from each microbatch, a tied weight also where it is
  /// borrowed.
  [[nodiscard]] int num_gradients(int stage) const {
    return shape(stage).num_units + (shape(stage).has_tied_weight || shape(stage).borrows_tied_weight ? 1 : 0);
  }
  [[nodiscard]] UnitKey unit_of(const Action& action) const {
    const bool is_borrowed = action.unit == shape(action.stage).num_units && shape(action.stage).borrows_tied_weight;
    return is_borrowed ? UnitKey{0, shape(0).num_units} : UnitKey{action.stage, action.unit};
  }

 private:
  [[nodiscard]] bool exists(int stage) const { return stage >= 0 && stage < schedule_.num_stages; }
  [[nodiscard]] Action last_gradient(int stage, int unit) const {
    const auto last = last_gradient_.find(stage);
    Action pass = last == last_gradient_.end() ? Action{.kind = Kind::backward, .stage = stage} : last->second;
    if (is_by_units(pass)) pass.unit = unit;
    return pass;
  }

  int rank_;
  const Schedule& schedule_;
  const LoweringOptions& options_;
  std::map<int, Action> last_gradient_;
  std::set<std::pair<int, int>> splits_;  // (stage, microbatch) whose input and weight gradients are apart
};

class EdgeCheck {
 public:
  EdgeCheck(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options);
  std::vector<std::string> run();

 private:
  void check_forward(const Action& reader);
  void check_backward(const Action& reader);
  void check_send(const Action& reader);
  void check_opened(const Action& reader);
  void demand_gradient_before(Kind link, const Action& reader, const UnitKey& key);
  void check_clip(const Action& reader);
  void check_update(const Action& reader);
  void check_all_ended(const Action& reader);
  void demand(const Action& reader, const Action& writer);
  [[nodiscard]] int id_of(const Action& action) const;

  int rank_;
  const Program& program_;
  const LoweringOptions& options_;
  StageViews stages_;
  std::map<std::tuple<Kind, int, int, int>, int> ids_;
  std::map<std::pair<Kind, int>, int> last_send_;  // (kind, stage)
  // The last store of a unit's gradient, and so far of those that were read.
  std::map<UnitKey, int> stored_;
  std::map<UnitKey, int> last_store_;
  std::vector<std::string> faults_;
};

EdgeCheck::EdgeCheck(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options)
    : rank_(rank), program_(program), options_(options), stages_(rank, schedule, options) {
  for (const Action& action : program) {
    ids_[{action.kind, action.stage, action.microbatch, action.unit}] = action.id;
    if (action.kind == Kind::store_gradients) last_store_[stages_.unit_of(action)] = action.id;
  }
}

std::vector<std::string> EdgeCheck::run() {
  bool computed = false, adds_to_gradients = false, reads_count = false;
  for (const Action& reader : program_) {
    if (is_compute(reader.kind) && !std::exchange(computed, true)) demand(reader, {.kind = Kind::load_batch});
    if (computes_weight_gradients(reader.kind) && !std::exchange(adds_to_gradients, true))
      demand(reader, {.kind = Kind::clear_gradients});
    const bool is_backward = is_compute(reader.kind) && reader.kind != Kind::forward;
    if (options_.backward_reads_count && is_backward && !std::exchange(reads_count, true))
      demand(reader, {.kind = Kind::count_tokens});
    switch (reader.kind) {
      case Kind::load_batch:
      case Kind::clear_gradients:
      case Kind::receive_forward:
      case Kind::receive_backward: break;
      case Kind::count_tokens: demand(reader, {.kind = Kind::load_batch}); break;
      case Kind::forward: check_forward(reader); break;
      case Kind::backward:
      case Kind::backward_input:
      case Kind::backward_weight: check_backward(reader); break;
      case Kind::send_forward:
      case Kind::send_backward: check_send(reader); break;
      case Kind::open_gradients: check_opened(reader); break;
      case Kind::store_gradients: stored_[stages_.unit_of(reader)] = reader.id; [[fallthrough]];
      case Kind::reduce_gradients:
      case Kind::reduce_parts:
      case Kind::sum_replicas:
      case Kind::sum_tied: demand_gradient_before(reader.kind, reader, {reader.stage, reader.unit}); break;
      case Kind::clip: check_clip(reader); break;
      case Kind::update: check_update(reader); break;
      case Kind::gather_parameters:
        if (!options_.shards_parameters)
          demand(reader, {.kind = Kind::update, .stage = reader.stage, .unit = reader.unit});
        break;
      case Kind::take_snapshot: demand(reader, {.kind = Kind::load_batch}); break;
      case Kind::release_parameters: break;  // see check_parameters
      case Kind::report: check_all_ended(reader); break;
    }
  }
  return std::move(faults_);
}

void EdgeCheck::check_forward(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  if (reader.unit > 0)
    return demand(reader, {.kind = Kind::forward, .stage = stage, .microbatch = microbatch, .unit = reader.unit - 1});
  if (stages_.is_elsewhere(stage - 1))
    demand(reader, {.kind = Kind::receive_forward, .stage = stage, .microbatch = microbatch});
  if (stages_.is_here(stage - 1)) demand(reader, stages_.goes_forward(stage - 1, microbatch));
}

void EdgeCheck::check_backward(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  if (options_.shards_gradients && computes_weight_gradients(reader.kind))
    for (int unit = 0; unit < stages_.num_gradients(stage); ++unit) {
      const Action opened{.kind = Kind::open_gradients, .stage = stage, .microbatch = microbatch, .unit = unit};
      const std::vector<UnitKey> units = units_of(reader, options_);
      if (std::find(units.begin(), units.end(), stages_.unit_of(opened)) != units.end()) demand(reader, opened);
    }
  if (reader.unit != whole_stage && reader.unit < stages_.shape(stage).num_units - 1)
    return demand(reader, {.kind = reader.kind, .stage = stage, .microbatch = microbatch, .unit = reader.unit + 1});
  if (reader.kind == Kind::backward_weight) return demand(reader, stages_.goes_back(stage, microbatch));
  demand(reader, stages_.goes_forward(stage, microbatch));
  if (stages_.is_elsewhere(stage + 1))
    demand(reader, {.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch});
  if (stages_.is_here(stage + 1)) demand(reader, stages_.goes_back(stage + 1, microbatch));
}

// A send waits for what it sends, and for the send before it, whose buffer is free then.
void EdgeCheck::check_send(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  const bool is_forward = reader.kind == Kind::send_forward;
  demand(reader, is_forward ? stages_.goes_forward(stage, microbatch) : stages_.goes_back(stage, microbatch));
  const auto [last, is_first] = last_send_.try_emplace({reader.kind, stage}, reader.id);
  if (!is_first) demand(reader, program_[std::exchange(last->second, reader.id)]);
}

// A unit has one whole buffer at a time: the one before is closed.
void EdgeCheck::check_opened(const Action& reader) {
  const auto stored = stored_.find(stages_.unit_of(reader));
  if (stored != stored_.end()) demand(reader, program_[stored->second]);
}

// The gradient of a unit goes from its passes through reduce_gradients, store_gradients, reduce_parts, sum_replicas and
// sum_tied, as far as they exist. The reader is `link` or comes after all of them: it waits for the last one before it.
void EdgeCheck::demand_gradient_before(Kind link, const Action& reader, const UnitKey& key) {
  const auto on_unit = [&](Kind kind) { return Action{.kind = kind, .stage = key.stage, .unit = key.unit}; };
  if (link == Kind::reduce_gradients) demand(reader, {.kind = Kind::count_tokens});
  if (link == Kind::store_gradients)
    return demand(
        reader,
        {.kind = Kind::reduce_gradients, .stage = reader.stage, .microbatch = reader.microbatch, .unit = reader.unit});
  const bool comes_after_all = link != Kind::sum_tied && link != Kind::sum_replicas && link != Kind::reduce_parts &&
                               link != Kind::reduce_gradients;
  if (comes_after_all && stages_.sums_tied(key.stage, key.unit)) return demand(reader, on_unit(Kind::sum_tied));
  if ((comes_after_all || link == Kind::sum_tied) && stages_.sums_replicas(key.stage, key.unit))
    return demand(reader, on_unit(Kind::sum_replicas));
  if (link != Kind::reduce_parts && link != Kind::reduce_gradients && options_.reduces_parts)
    return demand(reader, on_unit(Kind::reduce_parts));
  if (link != Kind::reduce_gradients && options_.stores_gradients()) {
    const auto last = last_store_.find(key);
    return demand(reader, last == last_store_.end() ? on_unit(Kind::store_gradients) : program_[last->second]);
  }
  if (link != Kind::reduce_gradients && options_.reduces_gradients)
    return demand(reader, on_unit(Kind::reduce_gradients));
  const Action gradient{
      .stage = key.stage, .microbatch = link == Kind::reduce_gradients ? reader.microbatch : -1, .unit = key.unit};
  const std::vector<Action> writers = stages_.complete(gradient);
  if (link == Kind::reduce_gradients) {
    for (const Action& writer : writers) demand(reader, writer);
    return;
  }
  // Compute blocks, so an action that waits for the later one waits for both.
  int last = -1;
  for (const Action& writer : writers) last = std::max(last, id_of(writer));
  if (last >= 0) demand(reader, program_[last]);
}

void EdgeCheck::check_update(const Action& reader) {
  if (options_.takes_snapshot)
    demand(reader, {.kind = Kind::take_snapshot, .stage = reader.stage, .unit = reader.unit});
  if (options_.clips) return demand(reader, {.kind = Kind::clip});
  demand_gradient_before(reader.kind, reader, {reader.stage, reader.unit});
  demand(reader, {.kind = Kind::count_tokens});
}

void EdgeCheck::check_clip(const Action& reader) {
  demand(reader, {.kind = Kind::count_tokens});
  for (const Action& action : program_)
    if (action.kind == Kind::update) demand_gradient_before(reader.kind, reader, {action.stage, action.unit});
}

// The report, or an action before it, must have waited for everything.
void EdgeCheck::check_all_ended(const Action& reader) {
  demand(reader, {.kind = Kind::count_tokens});
  std::vector<bool> has_ended(program_.size(), false);
  for (const Action& action : program_) {
    if (action.id > reader.id)
      faults_.push_back(fmt::format("rank {}: {} comes after {}, which must be the last action", rank_,
                                    to_string(action), to_string(reader)));
    for (const int id : action.after) has_ended[id] = true;
  }
  for (const Action& action : program_) {
    const bool pending = !has_ended[action.id] && action.id != reader.id;
    if (pending)
      faults_.push_back(
          fmt::format("rank {}: {} is still pending at the end: no action waits for it", rank_, to_string(action)));
  }
}

int EdgeCheck::id_of(const Action& action) const {
  const auto found = ids_.find({action.kind, action.stage, action.microbatch, action.unit});
  return found == ids_.end() ? -1 : found->second;
}

void EdgeCheck::demand(const Action& reader, const Action& writer) {
  const int id = id_of(writer);
  const bool waits = id >= 0 && std::binary_search(reader.after.begin(), reader.after.end(), id);
  if (!waits)
    faults_.push_back(fmt::format("rank {}: {} does not wait for {}", rank_, to_string(reader), to_string(writer)));
}

}  // namespace

std::vector<Action> expected_actions(int rank, const Schedule& schedule, const LoweringOptions& options) {
  std::vector<Action> expected = {{.kind = Kind::load_batch}, {.kind = Kind::count_tokens}, {.kind = Kind::report}};
  if (options.trains) expected.push_back({.kind = Kind::clear_gradients});
  if (options.trains && options.clips) expected.push_back({.kind = Kind::clip});
  const StageViews stages(rank, schedule, options);
  for (const int stage : schedule.stages_of(rank)) {
    for (int microbatch = 0; microbatch < schedule.num_microbatches; ++microbatch) {
      const auto expect = [&](Kind kind) {
        const Action pass{.kind = kind, .stage = stage, .microbatch = microbatch};
        if (!is_compute(kind) || !stages.is_by_units(pass)) return expected.push_back(pass);
        for (int unit = 0; unit < stages.shape(stage).num_units; ++unit)
          expected.push_back({.kind = kind, .stage = stage, .microbatch = microbatch, .unit = unit});
      };
      expect(Kind::forward);
      if (stages.is_elsewhere(stage - 1)) expect(Kind::receive_forward);
      if (stages.is_elsewhere(stage + 1)) expect(Kind::send_forward);
      if (!options.trains) continue;
      if (stages.is_elsewhere(stage + 1)) expect(Kind::receive_backward);
      if (stages.is_elsewhere(stage - 1)) expect(Kind::send_backward);
      const bool splits = stages.splits(stage, microbatch);
      for (const Kind kind :
           splits ? std::vector{Kind::backward_input, Kind::backward_weight} : std::vector{Kind::backward})
        expect(kind);
      for (int unit = 0; options.shards_gradients && unit < stages.num_gradients(stage); ++unit)
        for (const Kind kind : {Kind::open_gradients, Kind::reduce_gradients, Kind::store_gradients})
          expected.push_back({.kind = kind, .stage = stage, .microbatch = microbatch, .unit = unit});
    }
    for (int unit = 0; options.trains && unit < stages.num_units_of(stage); ++unit) {
      const auto expect = [&](Kind kind) { expected.push_back({.kind = kind, .stage = stage, .unit = unit}); };
      if (options.reduces_gradients && !options.shards_gradients) expect(Kind::reduce_gradients);
      if (options.stores_gradients() && !options.shards_gradients) expect(Kind::store_gradients);
      if (options.reduces_parts) expect(Kind::reduce_parts);
      if (stages.sums_replicas(stage, unit)) expect(Kind::sum_replicas);
      if (stages.sums_tied(stage, unit)) expect(Kind::sum_tied);
      if (options.takes_snapshot) expect(Kind::take_snapshot);
      expect(Kind::update);
      if (options.gathers_parameters) expect(Kind::gather_parameters);
    }
  }
  return expected;
}

std::vector<std::string> check_edges(int rank, const Program& program, const Schedule& schedule,
                                     const LoweringOptions& options) {
  return EdgeCheck(rank, program, schedule, options).run();
}

}  // namespace echelon
