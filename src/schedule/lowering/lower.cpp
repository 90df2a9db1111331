// Lowering, one pipeline rank at a time. Of the other ranks it needs only the receives to post; messages are matched by
// (stage, microbatch).
#include "schedule/lowering/lower.h"

#include "base/error.h"
#include "schedule/lowering/gather_plan.h"
#include "schedule/lowering/gradient_chains.h"
#include "schedule/lowering/gradient_plan.h"
#include "schedule/lowering/id_table.h"
#include "schedule/lowering/receives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

using Ids = std::vector<int>;
using Kind = ActionKind;

/// Of the kinds of passes.
int index_of(Kind kind) {
  switch (kind) {
    case Kind::forward: return 0;
    case Kind::backward: return 1;
    case Kind::backward_input: return 2;
    default: return 3;  // backward_weight
  }
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Schedule& schedule, int rank, const LoweringOptions& options);
  /// `receives`: [position of the rank's order] what is posted before.
  Program build(const std::vector<Program>& receives);

 private:
  int add(const Action& place, Ids after);
  void begin_step();
  void run(int position);
  void receive(const Action& place);
  void send_results(const Action& pass, int writer);
  void send(Kind kind, int stage, int microbatch, int writer);
  void gather(const UnitKey& key);
  void release(const UnitKey& key, int last_user);
  void open_gradients(const Action& pass, const UnitKey& key);
  void finish_gradients(const CompleteGradient& formed, const Action& pass);
  void sum_tied_weight();
  void clip();
  void update(const UnitKey& key);
  void report();

  [[nodiscard]] Ids inputs_of(const Action& pass);
  [[nodiscard]] std::vector<UnitKey> own_units() const;
  [[nodiscard]] Action gradient_of(const Action& pass, const UnitKey& key) const;
  [[nodiscard]] bool is_elsewhere(int stage) const {
    return stage >= 0 && stage < schedule_.num_stages && schedule_.rank_of_stage[stage] != rank_;
  }

  const Schedule& schedule_;
  int rank_;
  const LoweringOptions& options_;
  UnitPasses passes_;
  GatherPlan gathers_;
  GradientPlan gradients_;
  Program program_;
  Ids passes_ids_;  // of each pass
  IdTable received_forward_{schedule_}, received_backward_{schedule_};
  IdTable opened_{schedule_};                      // open_gradients, by unit
  IdTable last_of_{schedule_};                     // the last unit of a pass, by index_of(kind)
  IdTable end_of_backward_{schedule_};             // the pass that ends the gradient of the stage's input
  std::map<std::pair<Kind, int>, int> last_send_;  // (kind, stage)
  std::map<UnitKey, int> snapshots_;
  std::map<UnitKey, int> gathered_, released_, done_;  // the last such action; done_: on the gradient
  GradientChains chains_;
  int load_batch_ = -1, clear_gradients_ = -1, count_tokens_ = -1, unread_count_ = -1;
};

ProgramBuilder::ProgramBuilder(const Schedule& schedule, int rank, const LoweringOptions& options)
    : schedule_(schedule),
      rank_(rank),
      options_(options),
      passes_(by_units(schedule.ranks[rank], options)),
      gradients_(gradient_plan(passes_, options)),
      chains_(options, [this](const Action& place, Ids after) { return add(place, std::move(after)); }) {
  if (options.shards_parameters) gathers_ = gather_plan(passes_, options);
}

Program ProgramBuilder::build(const std::vector<Program>& receives) {
  program_.reserve(4 * passes_.size());
  passes_ids_.reserve(passes_.size());
  begin_step();
  std::size_t num_begun = 0;
  for (int position = 0; position < static_cast<int>(passes_.size()); ++position) {
    if (begins_pass(passes_[position], options_))
      for (const Action& each : receives[num_begun++]) receive(each);
    run(position);
  }
  if (options_.trains) {
    chains_.finish();
    sum_tied_weight();
    if (options_.clips) clip();
    for (const UnitKey& key : own_units()) update(key);
  }
  report();
  return std::move(program_);
}

int ProgramBuilder::add(const Action& place, Ids after) {
  const int id = static_cast<int>(program_.size());
  std::erase(after, -1);
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  program_.push_back({place.kind, place.stage, place.microbatch, place.unit, id, std::move(after)});
  return id;
}

void ProgramBuilder::begin_step() {
  load_batch_ = add({.kind = Kind::load_batch}, {});
  for (const UnitKey& key : options_.takes_snapshot ? own_units() : std::vector<UnitKey>())
    snapshots_[key] = add({.kind = Kind::take_snapshot, .stage = key.stage, .unit = key.unit}, {load_batch_});
  if (options_.trains) clear_gradients_ = add({.kind = Kind::clear_gradients}, {});
  count_tokens_ = add({.kind = Kind::count_tokens}, {load_batch_});
  if (options_.backward_reads_count) unread_count_ = count_tokens_;
}

// One pass of a unit or a whole stage, with the actions on its parameters and gradients. Passes by units overlap with
// the gather of the parameters that follow and the reduction of the gradients before.
void ProgramBuilder::run(int position) {
  const Action& pass = passes_[position];
  if (options_.shards_parameters)
    for (const UnitKey& key : gathers_.before[position]) gather(key);
  for (const UnitKey& key : gradients_.opened_before[position]) open_gradients(pass, key);

  const int id = add(pass, inputs_of(pass));
  passes_ids_.push_back(id);
  last_of_.set(pass.stage, pass.microbatch, index_of(pass.kind), id);
  if (ends_pass(pass, options_)) send_results(pass, id);
  if (options_.shards_parameters)
    for (const UnitKey& key : gathers_.after[position]) release(key, id);
  chains_.advance();
  for (const CompleteGradient& formed : gradients_.complete_after[position]) finish_gradients(formed, pass);
}

void ProgramBuilder::receive(const Action& place) {
  IdTable& received = place.kind == Kind::receive_forward ? received_forward_ : received_backward_;
  received.set(place.stage, place.microbatch, add(place, {}));
}

// What a pass must wait for: the unit before it, its messages, or the output of a stage of this rank; its parameters;
// and the buffers of its gradients. The first pass also waits for the batch, the cleared gradients and the count of
// targets; once is enough, since compute blocks.
Ids ProgramBuilder::inputs_of(const Action& pass) {
  const auto& [kind, stage, microbatch, unit, id, after] = pass;
  const auto end_of = [&](Kind wanted, int of_stage) { return last_of_.at(of_stage, microbatch, index_of(wanted)); };
  Ids inputs;
  inputs.reserve(4);  // most have fewer
  if (kind == Kind::forward) inputs.push_back(std::exchange(load_batch_, -1));
  if (computes_weight_gradients(kind)) inputs.push_back(std::exchange(clear_gradients_, -1));
  if (kind != Kind::forward) inputs.push_back(std::exchange(unread_count_, -1));
  for (const UnitKey& key : options_.shards_parameters ? units_of(pass, options_) : std::vector<UnitKey>())
    inputs.push_back(std::exchange(gathered_[key], -1));
  if (computes_weight_gradients(kind) && options_.shards_gradients)
    for (const UnitKey& key : units_of(pass, options_)) {
      const Action opened = gradient_of(pass, key);
      inputs.push_back(opened_.at(opened.stage, opened.microbatch, opened.unit));
    }
  if (!begins_pass(pass, options_)) {
    inputs.push_back(end_of(kind, stage));
  } else if (kind == Kind::forward) {
    inputs.push_back(is_elsewhere(stage - 1) ? received_forward_.at(stage, microbatch)
                                             : end_of(Kind::forward, stage - 1));
  } else if (kind == Kind::backward_weight) {
    inputs.push_back(end_of(Kind::backward_input, stage));
  } else {
    const int behind = end_of_backward_.at(stage + 1, microbatch);
    inputs.push_back(end_of(Kind::forward, stage));
    inputs.push_back(behind >= 0 ? behind : received_backward_.at(stage, microbatch));
  }
  return inputs;
}

void ProgramBuilder::send_results(const Action& pass, int writer) {
  const auto& [kind, stage, microbatch, unit, id, after] = pass;
  if (kind == Kind::backward_weight) return;
  if (kind == Kind::forward) {
    if (is_elsewhere(stage + 1)) send(Kind::send_forward, stage, microbatch, writer);
    return;
  }
  end_of_backward_.set(stage, microbatch, writer);
  if (is_elsewhere(stage - 1)) send(Kind::send_backward, stage, microbatch, writer);
}

// One send at a time per direction: the next one waits for this one, and with that the source buffer of this one is
// free.
void ProgramBuilder::send(Kind kind, int stage, int microbatch, int writer) {
  const auto last = last_send_.find({kind, stage});
  last_send_[{kind, stage}] = add({.kind = kind, .stage = stage, .microbatch = microbatch},
                                  {writer, last == last_send_.end() ? -1 : last->second});
}

// There is one whole copy at a time: the next one waits until this one is released.
void ProgramBuilder::gather(const UnitKey& key) {
  const auto released = released_.find(key);
  gathered_[key] = add({.kind = Kind::gather_parameters, .stage = key.stage, .unit = key.unit},
                       {released == released_.end() ? -1 : released->second});
}

void ProgramBuilder::release(const UnitKey& key, int last_user) {
  released_[key] = add({.kind = Kind::release_parameters, .stage = key.stage, .unit = key.unit}, {last_user});
}

// There is one whole buffer at a time: the last one is closed before.
void ProgramBuilder::open_gradients(const Action& pass, const UnitKey& key) {
  chains_.finish(key);
  Action opened = gradient_of(pass, key);
  opened.kind = Kind::open_gradients;
  opened_.set(opened.stage, opened.microbatch, opened.unit, add(opened, {chains_.done(key)}));
}

void ProgramBuilder::finish_gradients(const CompleteGradient& formed, const Action& pass) {
  Ids writers;
  for (const int position : formed.writers) writers.push_back(passes_ids_[position]);
  const Action place = options_.shards_gradients ? gradient_of(pass, formed.key)
                                                 : Action{.stage = formed.key.stage, .unit = formed.key.unit};
  chains_.begin({.key = formed.key, .place = place, .writers = writers, .is_last = formed.is_last}, count_tokens_);
}

// Of one microbatch, named by the stage that computes it: a tied weight that two stages of a rank share gets a gradient
// from either.
Action ProgramBuilder::gradient_of(const Action& pass, const UnitKey& key) const {
  const int unit = key.stage == pass.stage ? key.unit : options_.stages[pass.stage].num_units;
  return {.stage = pass.stage, .microbatch = pass.microbatch, .unit = unit};
}

std::vector<UnitKey> ProgramBuilder::own_units() const {
  std::vector<UnitKey> units;
  for (const int stage : schedule_.stages_of(rank_)) {
    const StageShape& shape = options_.stages[stage];
    for (int unit = 0; unit < shape.num_units + (shape.has_tied_weight ? 1 : 0); ++unit) units.push_back({stage, unit});
  }
  return units;
}

void ProgramBuilder::sum_tied_weight() {
  for (const UnitKey& key : own_units()) {
    done_[key] = chains_.done(key);
    const bool is_tied = key.unit == options_.stages[key.stage].num_units;
    if (is_tied && options_.ties_across_ranks)
      done_[key] = add({.kind = Kind::sum_tied, .stage = key.stage, .unit = key.unit}, {done_[key]});
  }
}

void ProgramBuilder::clip() {
  Ids after = {count_tokens_};
  for (const auto& [key, done] : done_) after.push_back(done);
  const int clip = add({.kind = Kind::clip}, after);
  for (auto& [key, done] : done_) done = clip;
}

void ProgramBuilder::update(const UnitKey& key) {
  const int update =
      add({.kind = Kind::update, .stage = key.stage, .unit = key.unit},
          {options_.takes_snapshot ? snapshots_.at(key) : -1, done_[key], options_.clips ? -1 : count_tokens_});
  if (options_.gathers_parameters)
    add({.kind = Kind::gather_parameters, .stage = key.stage, .unit = key.unit}, {update});
}

// Waits for all actions that no other action waits for, so that nothing is pending when the step ends.
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

}  // namespace

std::vector<Program> lower(const Schedule& schedule, const LoweringOptions& options) {
  require(schedule.num_stages >= 1 && schedule.num_microbatches >= 1,
          "a schedule of {} stages and {} microbatches has nothing to run; both must be 1 or more", schedule.num_stages,
          schedule.num_microbatches);
  require(static_cast<int>(options.stages.size()) == schedule.num_stages,
          "the shapes of {} stages do not fit a schedule of {} stages", options.stages.size(), schedule.num_stages);
  Schedule wanted = schedule;
  for (ComputeOrder& order : wanted.ranks)
    if (!options.trains) std::erase_if(order, [](const Action& pass) { return pass.kind != Kind::forward; });
  const auto receives = receives_to_post(wanted);
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(wanted.ranks.size()); ++rank)
    programs.push_back(ProgramBuilder(wanted, rank, options).build(receives[rank]));
  return programs;
}

}  // namespace echelon
