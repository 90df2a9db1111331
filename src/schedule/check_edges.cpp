#include "schedule/check_edges.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Kind = ActionKind;

bool forms_weight_gradients(Kind kind) { return kind == Kind::backward || kind == Kind::backward_weight; }

// What the schedule and the options say about the stages of a rank.
class StageViews {
 public:
  StageViews(int rank, const Schedule& schedule, const LoweringOptions& options) : rank_(rank), schedule_(schedule), options_(options) {
    for (const Action& pass : schedule.ranks[rank]) {
      if (forms_weight_gradients(pass.kind)) last_gradient_[pass.stage] = pass;
      if (pass.kind == Kind::backward_input || pass.kind == Kind::backward_weight) splits_.insert({pass.stage, pass.microbatch});
    }
  }

  [[nodiscard]] const StageShape& shape(int stage) const { return options_.stages[stage]; }
  [[nodiscard]] int num_parts(int stage) const { return shape(stage).num_units + (shape(stage).has_tied_weight ? 1 : 0); }
  [[nodiscard]] bool is_here(int stage) const { return exists(stage) && schedule_.rank_of_stage[stage] == rank_; }
  [[nodiscard]] bool is_elsewhere(int stage) const { return exists(stage) && schedule_.rank_of_stage[stage] != rank_; }
  [[nodiscard]] bool splits(int stage, int microbatch) const { return splits_.contains({stage, microbatch}); }
  [[nodiscard]] bool sums_replicas(int stage, int unit) const {
    const std::vector<bool>& sums = shape(stage).unit_sums_replicas;
    return unit < static_cast<int>(sums.size()) && sums[unit];
  }
  [[nodiscard]] bool sums_tied(int stage, int unit) const { return options_.ties_across_ranks && unit == shape(stage).num_units; }
  /// Whether this pass, as the last of its stage that forms weight gradients, goes unit by unit.
  [[nodiscard]] bool is_by_units(const Action& pass) const {
    const auto last = last_gradient_.find(pass.stage);
    if (last == last_gradient_.end() || last->second.kind != pass.kind || last->second.microbatch != pass.microbatch) return false;
    const std::vector<bool>& sums = shape(pass.stage).unit_sums_replicas;
    return options_.reduces_gradients || std::find(sums.begin(), sums.end(), true) != sums.end();
  }
  /// The passes after which the gradient of a unit is complete on this rank: one, or two that share a tied weight.
  [[nodiscard]] std::vector<Action> complete(int stage, int unit) const {
    if (unit < shape(stage).num_units) return {last_gradient(stage, unit)};
    if (options_.stages.back().borrows_tied_weight && stage == 0) {
      const int last = schedule_.num_stages - 1;
      return {last_gradient(stage, 0), last_gradient(last, shape(last).num_units - 1)};
    }
    return {last_gradient(stage, stage == 0 ? 0 : unit - 1)};
  }
  /// The action that ends the input gradient of a microbatch in a stage.
  [[nodiscard]] Action goes_back(int stage, int microbatch) const {
    Action pass{.kind = splits(stage, microbatch) ? Kind::backward_input : Kind::backward, .stage = stage, .microbatch = microbatch};
    if (is_by_units(pass)) pass.unit = 0;
    return pass;
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
  void check_gradient(const Action& reader);
  void check_update(const Action& reader);
  enum class Stop : std::uint8_t { nowhere, before_tied };
  void demand_gradient(const Action& reader, Stop stop);
  void check_clip(const Action& reader);
  void check_all_ended(const Action& reader);
  void demand(const Action& reader, const Action& writer);

  int rank_;
  const Program& program_;
  const LoweringOptions& options_;
  StageViews stages_;
  std::map<std::tuple<Kind, int, int, int>, int> ids_;
  std::map<std::pair<Kind, int>, int> last_send_;  // (kind, stage)
  std::vector<std::string> faults_;
};

EdgeCheck::EdgeCheck(int rank, const Program& program, const Schedule& schedule, const LoweringOptions& options)
    : rank_(rank), program_(program), options_(options), stages_(rank, schedule, options) {
  for (const Action& action : program) ids_[{action.kind, action.stage, action.microbatch, action.unit}] = action.id;
}

std::vector<std::string> EdgeCheck::run() {
  bool computed = false, adds_to_gradients = false;
  for (const Action& reader : program_) {
    if (is_compute(reader.kind) && !std::exchange(computed, true)) demand(reader, {.kind = Kind::load_batch});
    if (forms_weight_gradients(reader.kind) && !std::exchange(adds_to_gradients, true)) demand(reader, {.kind = Kind::clear_gradients});
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
      case Kind::sum_replicas:
      case Kind::reduce_gradients:
      case Kind::sum_tied: check_gradient(reader); break;
      case Kind::update: check_update(reader); break;
      case Kind::clip: check_clip(reader); break;
      case Kind::gather_parameters: demand(reader, {.kind = Kind::update, .stage = reader.stage, .unit = reader.unit}); break;
      case Kind::report: check_all_ended(reader); break;
    }
  }
  return std::move(faults_);
}

void EdgeCheck::check_forward(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  if (stages_.is_elsewhere(stage - 1)) demand(reader, {.kind = Kind::receive_forward, .stage = stage, .microbatch = microbatch});
  if (stages_.is_here(stage - 1)) demand(reader, {.kind = Kind::forward, .stage = stage - 1, .microbatch = microbatch});
}

void EdgeCheck::check_backward(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  if (reader.unit != whole_stage && reader.unit < stages_.shape(stage).num_units - 1)
    return demand(reader, {.kind = reader.kind, .stage = stage, .microbatch = microbatch, .unit = reader.unit + 1});
  if (reader.kind == Kind::backward_weight) return demand(reader, {.kind = Kind::backward_input, .stage = stage, .microbatch = microbatch});
  demand(reader, {.kind = Kind::forward, .stage = stage, .microbatch = microbatch});
  if (stages_.is_elsewhere(stage + 1)) demand(reader, {.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch});
  if (stages_.is_here(stage + 1)) demand(reader, stages_.goes_back(stage + 1, microbatch));
}

// A send waits for what it sends, and for the send before it, whose buffer is free then.
void EdgeCheck::check_send(const Action& reader) {
  const int stage = reader.stage, microbatch = reader.microbatch;
  const bool is_forward = reader.kind == Kind::send_forward;
  demand(reader, is_forward ? Action{.kind = Kind::forward, .stage = stage, .microbatch = microbatch} : stages_.goes_back(stage, microbatch));
  const auto [last, is_first] = last_send_.try_emplace({reader.kind, stage}, reader.id);
  if (!is_first) demand(reader, program_[std::exchange(last->second, reader.id)]);
}

void EdgeCheck::check_gradient(const Action& reader) {
  const int stage = reader.stage, unit = reader.unit;
  if (reader.kind == Kind::sum_tied) return demand_gradient(reader, Stop::before_tied);
  for (const Action& writer : stages_.complete(stage, unit)) demand(reader, writer);
  if (reader.kind == Kind::sum_replicas) return;
  demand(reader, {.kind = Kind::count_tokens});
  if (stages_.sums_replicas(stage, unit)) demand(reader, {.kind = Kind::sum_replicas, .stage = stage, .unit = unit});
}

void EdgeCheck::check_update(const Action& reader) {
  if (options_.clips) return demand(reader, {.kind = Kind::clip});
  demand_gradient(reader, Stop::nowhere);
  demand(reader, {.kind = Kind::count_tokens});
}

// The last action on the gradient of the reader's unit, or the last one before a tied weight's sum.
void EdgeCheck::demand_gradient(const Action& reader, Stop stop) {
  const auto on_unit = [&](Kind kind) { return Action{.kind = kind, .stage = reader.stage, .unit = reader.unit}; };
  if (stop == Stop::nowhere && stages_.sums_tied(reader.stage, reader.unit)) return demand(reader, on_unit(Kind::sum_tied));
  if (options_.reduces_gradients) return demand(reader, on_unit(Kind::reduce_gradients));
  if (stages_.sums_replicas(reader.stage, reader.unit)) return demand(reader, on_unit(Kind::sum_replicas));
  int last = -1;
  for (const Action& writer : stages_.complete(reader.stage, reader.unit)) {
    const auto found = ids_.find({writer.kind, writer.stage, writer.microbatch, writer.unit});
    if (found != ids_.end()) last = std::max(last, found->second);
  }
  if (last >= 0) demand(reader, program_[last]);
}

void EdgeCheck::check_clip(const Action& reader) {
  demand(reader, {.kind = Kind::count_tokens});
  for (const Action& writer : program_) {
    const bool writes_gradient =
        forms_weight_gradients(writer.kind) || writer.kind == Kind::sum_replicas || writer.kind == Kind::reduce_gradients || writer.kind == Kind::sum_tied;
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
  const bool waits = found != ids_.end() && std::binary_search(reader.after.begin(), reader.after.end(), found->second);
  if (!waits) faults_.push_back(fmt::format("rank {}: {} does not wait for {}", rank_, to_string(reader), to_string(writer)));
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
      for (const Kind kind : splits ? std::vector{Kind::backward_input, Kind::backward_weight} : std::vector{Kind::backward}) expect(kind);
    }
    for (int unit = 0; options.trains && unit < stages.num_parts(stage); ++unit) {
      const auto expect = [&](Kind kind) { expected.push_back({.kind = kind, .stage = stage, .unit = unit}); };
      if (stages.sums_replicas(stage, unit)) expect(Kind::sum_replicas);
      if (options.reduces_gradients) expect(Kind::reduce_gradients);
      if (stages.sums_tied(stage, unit)) expect(Kind::sum_tied);
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
