// Lowering, one pipeline rank at a time. Of the orders of the others a rank knows the receives to post alone: messages are matched by (stage, microbatch).
#include "schedule/lower.h"

#include "base/error.h"
#include "schedule/receives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Ids = std::vector<int>;
using Kind = ActionKind;

bool forms_weight_gradients(Kind kind) { return kind == Kind::backward || kind == Kind::backward_weight; }

class ProgramBuilder {
 public:
  ProgramBuilder(const Schedule& schedule, int rank, const LoweringOptions& options) : schedule_(schedule), rank_(rank), options_(options) {}
  /// `receives`: [position of the rank's order] what is posted before.
  Program build(const std::vector<Program>& receives);

 private:
  int add(const Action& place, Ids after);
  void begin_step();
  void run_forward(const Action& pass);
  void run_backward(const Action& pass);
  void run_last_gradient(const Action& pass);
  void send(Kind kind, int stage, int microbatch, int writer);
  void finish_gradient(int stage, int unit, int writer);
  void finish_tied_gradient(int stage, int writer);
  void update_parameters();
  void report();

  [[nodiscard]] int find(const Action& place) const;
  [[nodiscard]] Ids inputs_of(const Action& pass);
  [[nodiscard]] const StageShape& shape(int stage) const { return options_.stages[stage]; }
  [[nodiscard]] bool is_elsewhere(int stage) const { return stage >= 0 && stage < schedule_.num_stages && schedule_.rank_of_stage[stage] != rank_; }
  [[nodiscard]] bool expands(int stage) const;
  [[nodiscard]] bool sums_replicas(int stage, int unit) const;
  [[nodiscard]] int num_parts(int stage) const { return shape(stage).num_units + (shape(stage).has_tied_weight ? 1 : 0); }

  const Schedule& schedule_;
  int rank_;
  const LoweringOptions& options_;
  Program program_;
  std::map<std::tuple<Kind, int, int, int>, int> ids_;  // (kind, stage, microbatch, unit)
  std::map<std::pair<int, int>, int> last_backward_;    // (stage, microbatch) -> the pass that ends its input gradient
  std::map<std::pair<Kind, int>, int> last_send_;       // (kind, stage)
  std::map<std::pair<int, int>, int> gradient_done_;    // (stage, unit) -> the last action on its gradient
  Ids tied_writers_;                                    // the last passes that add to the tied weight's gradient
  int load_batch_ = -1, clear_gradients_ = -1, count_tokens_ = -1;
};

Program ProgramBuilder::build(const std::vector<Program>& receives) {
  const ComputeOrder& order = schedule_.ranks[rank_];
  std::map<int, std::size_t> last_gradient;  // of each stage: its position
  for (std::size_t i = 0; i < order.size(); ++i)
    if (forms_weight_gradients(order[i].kind)) last_gradient[order[i].stage] = i;
  begin_step();
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const Action& receive : receives[i]) add(receive, {});
    const Action& pass = order[i];
    if (pass.kind == Kind::forward)
      run_forward(pass);
    else if (forms_weight_gradients(pass.kind) && last_gradient[pass.stage] == i)
      run_last_gradient(pass);
    else
      run_backward(pass);
  }
  if (options_.trains) update_parameters();
  report();
  return std::move(program_);
}

int ProgramBuilder::add(const Action& place, Ids after) {
  const int id = static_cast<int>(program_.size());
  std::erase(after, -1);
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  program_.push_back({place.kind, place.stage, place.microbatch, place.unit, id, std::move(after)});
  ids_[{place.kind, place.stage, place.microbatch, place.unit}] = id;
  return id;
}

int ProgramBuilder::find(const Action& place) const {
  const auto found = ids_.find({place.kind, place.stage, place.microbatch, place.unit});
  return found == ids_.end() ? -1 : found->second;
}

void ProgramBuilder::begin_step() {
  load_batch_ = add({.kind = Kind::load_batch}, {});
  if (options_.trains) clear_gradients_ = add({.kind = Kind::clear_gradients}, {});
  count_tokens_ = add({.kind = Kind::count_tokens}, {load_batch_});
}

// What a pass must wait for: its messages, or what a stage of this rank has written; and once, since compute blocks, the batch and the cleared gradients.
Ids ProgramBuilder::inputs_of(const Action& pass) {
  const auto& [kind, stage, microbatch, unit, id, after] = pass;
  if (kind == Kind::forward) {
    const Kind written = is_elsewhere(stage - 1) ? Kind::receive_forward : Kind::forward;
    return {std::exchange(load_batch_, -1), find({.kind = written, .stage = written == Kind::forward ? stage - 1 : stage, .microbatch = microbatch})};
  }
  Ids inputs;
  if (forms_weight_gradients(kind)) inputs.push_back(std::exchange(clear_gradients_, -1));
  if (kind == Kind::backward_weight) {
    inputs.push_back(find({.kind = Kind::backward_input, .stage = stage, .microbatch = microbatch}));
    return inputs;
  }
  inputs.push_back(find({.kind = Kind::forward, .stage = stage, .microbatch = microbatch}));
  const auto behind = last_backward_.find({stage + 1, microbatch});
  inputs.push_back(behind != last_backward_.end() ? behind->second : find({.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch}));
  return inputs;
}

void ProgramBuilder::run_forward(const Action& pass) {
  const int forward = add(pass, inputs_of(pass));
  if (is_elsewhere(pass.stage + 1)) send(Kind::send_forward, pass.stage, pass.microbatch, forward);
}

void ProgramBuilder::run_backward(const Action& pass) {
  const int backward = add(pass, inputs_of(pass));
  if (pass.kind == Kind::backward_weight) return;
  last_backward_[{pass.stage, pass.microbatch}] = backward;
  if (is_elsewhere(pass.stage - 1)) send(Kind::send_backward, pass.stage, pass.microbatch, backward);
}

// The last weight gradients of a stage. Where they are reduced, unit by unit from the last to the first, so that the reduction of a unit goes on while the
// units before it are computed.
void ProgramBuilder::run_last_gradient(const Action& pass) {
  const int stage = pass.stage, num_units = shape(stage).num_units;
  if (!expands(stage)) {
    run_backward(pass);
    const int backward = find(pass);
    for (int unit = 0; unit < num_units; ++unit) gradient_done_[{stage, unit}] = backward;
    return finish_tied_gradient(stage, backward);
  }
  // The head is the last use of a tied weight in the last stage; where the embedding lies too, that is.
  const int tied_after = stage == 0 ? 0 : num_units - 1;
  Ids after = inputs_of(pass);
  for (int unit = num_units - 1; unit >= 0; --unit) {
    const int backward = add({.kind = pass.kind, .stage = stage, .microbatch = pass.microbatch, .unit = unit}, after);
    if (unit == 0 && pass.kind == Kind::backward) {
      last_backward_[{stage, pass.microbatch}] = backward;
      if (is_elsewhere(stage - 1)) send(Kind::send_backward, stage, pass.microbatch, backward);
    }
    finish_gradient(stage, unit, backward);
    if (unit == tied_after) finish_tied_gradient(stage, backward);
    after = {backward};
  }
}

// One send at a time per direction: the next one waits for this one, and with that the source buffer of this one is free.
void ProgramBuilder::send(Kind kind, int stage, int microbatch, int writer) {
  const auto last = last_send_.find({kind, stage});
  last_send_[{kind, stage}] = add({.kind = kind, .stage = stage, .microbatch = microbatch}, {writer, last == last_send_.end() ? -1 : last->second});
}

void ProgramBuilder::finish_gradient(int stage, int unit, int writer) {
  Ids writers = {writer};
  if (unit == shape(stage).num_units) writers = tied_writers_;
  int done = writer;
  if (sums_replicas(stage, unit)) done = add({.kind = Kind::sum_replicas, .stage = stage, .unit = unit}, writers);
  if (options_.reduces_gradients) {
    writers.insert(writers.end(), {done, count_tokens_});
    done = add({.kind = Kind::reduce_gradients, .stage = stage, .unit = unit}, writers);
  }
  gradient_done_[{stage, unit}] = done;
}

// A tied weight that two stages of this rank use is complete when the later of them is.
void ProgramBuilder::finish_tied_gradient(int stage, int writer) {
  const bool is_shared = options_.stages.back().borrows_tied_weight && (stage == 0 || shape(stage).borrows_tied_weight);
  if (!shape(stage).has_tied_weight && !is_shared) return;
  tied_writers_.push_back(writer);
  if (is_shared && tied_writers_.size() < 2) return;
  finish_gradient(is_shared ? 0 : stage, shape(is_shared ? 0 : stage).num_units, writer);
  tied_writers_.clear();
}

void ProgramBuilder::update_parameters() {
  const std::vector<int> stages = schedule_.stages_of(rank_);
  for (const int stage : stages) {
    if (!options_.ties_across_ranks || !shape(stage).has_tied_weight) continue;
    int& done = gradient_done_[{stage, shape(stage).num_units}];
    done = add({.kind = Kind::sum_tied, .stage = stage, .unit = shape(stage).num_units}, {done});
  }
  if (options_.clips) {
    Ids after = {count_tokens_};
    for (const Action& action : program_) {
      const bool writes_gradient =
          forms_weight_gradients(action.kind) || action.kind == Kind::sum_replicas || action.kind == Kind::reduce_gradients || action.kind == Kind::sum_tied;
      if (writes_gradient) after.push_back(action.id);
    }
    const int clip = add({.kind = Kind::clip}, after);
    for (auto& [unit, done] : gradient_done_) done = clip;
  }
  for (const int stage : stages) {
    for (int unit = 0; unit < num_parts(stage); ++unit) {
      const int done = gradient_done_[{stage, unit}];
      const int update = add({.kind = Kind::update, .stage = stage, .unit = unit}, {done, options_.clips ? -1 : count_tokens_});
      if (options_.gathers_parameters) add({.kind = Kind::gather_parameters, .stage = stage, .unit = unit}, {update});
    }
  }
}

// Waits for whatever nobody has waited for, so that nothing is pending when the step ends.
void ProgramBuilder::report() {
  std::vector<bool> is_awaited(program_.size(), false);
  for (const Action& action : program_) {
    for (const int id : action.after) is_awaited[id] = true;
  }
  Ids after = {count_tokens_};
  for (const Action& action : program_) {
    if (!is_awaited[action.id]) after.push_back(action.id);
  }
  add({.kind = Kind::report}, after);
}

bool ProgramBuilder::sums_replicas(int stage, int unit) const {
  const auto& sums = shape(stage).unit_sums_replicas;
  return unit < static_cast<int>(sums.size()) && sums[unit];
}

bool ProgramBuilder::expands(int stage) const {
  const auto& sums = shape(stage).unit_sums_replicas;
  return options_.reduces_gradients || std::find(sums.begin(), sums.end(), true) != sums.end();
}

}  // namespace

std::vector<Program> lower(const Schedule& schedule, const LoweringOptions& options) {
  require(schedule.num_stages >= 1 && schedule.num_microbatches >= 1, "a schedule of {} stages and {} microbatches has nothing to run; both must be 1 or more",
          schedule.num_stages, schedule.num_microbatches);
  require(static_cast<int>(options.stages.size()) == schedule.num_stages, "the shapes of {} stages do not fit a schedule of {} stages", options.stages.size(),
          schedule.num_stages);
  Schedule wanted = schedule;
  for (ComputeOrder& order : wanted.ranks)
    if (!options.trains) std::erase_if(order, [](const Action& pass) { return pass.kind != Kind::forward; });
  const auto receives = receives_to_post(wanted);
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(wanted.ranks.size()); ++rank) programs.push_back(ProgramBuilder(wanted, rank, options).build(receives[rank]));
  return programs;
}

}  // namespace echelon
