// Lowering, one pipeline rank at a time: a rank need not know the orders of the others, since messages are matched by (stage, microbatch).
#include "schedule/lower.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace echelon {
namespace {

using Ids = std::vector<int>;
using Kind = ActionKind;

class ProgramBuilder {
 public:
  ProgramBuilder(const Schedule& schedule, int rank, const LoweringOptions& options);
  Program build();

 private:
  int add(const Action& place, Ids after);
  void begin_step();
  void post_receive(const Action& consumer);
  void run_forward(int stage, int microbatch);
  void run_backward(int stage, int microbatch);
  void run_last_backward(int stage, int microbatch);
  void send(Kind kind, int stage, int microbatch, int writer);
  void finish_gradient(int stage, int unit, int writer);
  void update_parameters();
  void report();

  [[nodiscard]] int find(const Action& place) const;
  [[nodiscard]] bool expands(int stage) const;
  [[nodiscard]] bool sums_replicas(int stage, int unit) const;
  [[nodiscard]] int tied_unit(int stage) const { return options_.stages[stage].num_units; }
  [[nodiscard]] int num_parts(int stage) const { return options_.stages[stage].num_units + (options_.stages[stage].has_tied_weight ? 1 : 0); }

  const LoweringOptions& options_;
  ComputeOrder order_;  // without backwards if nothing is trained
  std::vector<int> stages_;
  int last_stage_;
  Program program_;
  std::map<std::tuple<Kind, int, int, int>, int> ids_;  // (kind, stage, microbatch, unit)
  std::map<std::pair<Kind, int>, int> last_send_;       // (kind, stage)
  std::map<std::pair<int, int>, int> gradient_done_;    // (stage, unit) -> the last action on its gradient
  int load_batch_ = -1, clear_gradients_ = -1, count_tokens_ = -1;
};

ProgramBuilder::ProgramBuilder(const Schedule& schedule, int rank, const LoweringOptions& options) : options_(options), last_stage_(schedule.num_stages - 1) {
  for (const Action& action : schedule.ranks[rank]) {
    if (options.trains || action.kind == Kind::forward) order_.push_back(action);
  }
  for (int stage = rank; stage < schedule.num_stages; stage += static_cast<int>(schedule.ranks.size())) stages_.push_back(stage);
}

Program ProgramBuilder::build() {
  begin_step();
  for (std::size_t i = 0; i < order_.size(); ++i) {
    // A receive is posted one compute action ahead of its consumer, so that the transfer overlaps that action and the sender never waits for both.
    if (i == 0) post_receive(order_[0]);
    if (i + 1 < order_.size()) post_receive(order_[i + 1]);
    const auto& [kind, stage, microbatch, unit, id, after] = order_[i];
    const bool is_last = std::none_of(order_.begin() + i + 1, order_.end(), [&](const Action& later) { return later.kind == kind && later.stage == stage; });
    if (kind == Kind::forward)
      run_forward(stage, microbatch);
    else if (is_last && expands(stage))
      run_last_backward(stage, microbatch);
    else
      run_backward(stage, microbatch);
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

void ProgramBuilder::post_receive(const Action& consumer) {
  if (consumer.kind == Kind::forward && consumer.stage > 0)
    add({.kind = Kind::receive_forward, .stage = consumer.stage, .microbatch = consumer.microbatch}, {});
  if (consumer.kind == Kind::backward && consumer.stage < last_stage_)
    add({.kind = Kind::receive_backward, .stage = consumer.stage, .microbatch = consumer.microbatch}, {});
}

void ProgramBuilder::run_forward(int stage, int microbatch) {
  const int received = find({.kind = Kind::receive_forward, .stage = stage, .microbatch = microbatch});
  const int forward = add({.kind = Kind::forward, .stage = stage, .microbatch = microbatch}, {load_batch_, received});
  load_batch_ = -1;  // compute blocks: whatever comes after the first one comes after the batch too
  if (stage < last_stage_) send(Kind::send_forward, stage, microbatch, forward);
}

void ProgramBuilder::run_backward(int stage, int microbatch) {
  const int forward = find({.kind = Kind::forward, .stage = stage, .microbatch = microbatch});
  const int received = find({.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch});
  const int backward = add({.kind = Kind::backward, .stage = stage, .microbatch = microbatch}, {clear_gradients_, forward, received});
  clear_gradients_ = -1;
  if (stage > 0) send(Kind::send_backward, stage, microbatch, backward);
  for (int unit = 0; unit < num_parts(stage); ++unit) gradient_done_[{stage, unit}] = backward;
}

// Unit by unit from the last to the first, so that the reduction of a unit goes on while the units before it are computed.
void ProgramBuilder::run_last_backward(int stage, int microbatch) {
  const int num_units = options_.stages[stage].num_units;
  // The head is the last use of a tied weight on the last stage; where the embedding lies too, that is.
  const int tied_after = options_.stages[stage].has_tied_weight ? (stage == 0 ? 0 : num_units - 1) : -1;
  const int forward = find({.kind = Kind::forward, .stage = stage, .microbatch = microbatch});
  Ids after = {clear_gradients_, forward, find({.kind = Kind::receive_backward, .stage = stage, .microbatch = microbatch})};
  clear_gradients_ = -1;
  for (int unit = num_units - 1; unit >= 0; --unit) {
    const int backward = add({.kind = Kind::backward, .stage = stage, .microbatch = microbatch, .unit = unit}, after);
    if (unit == 0 && stage > 0) send(Kind::send_backward, stage, microbatch, backward);
    finish_gradient(stage, unit, backward);
    if (unit == tied_after) finish_gradient(stage, num_units, backward);
    after = {backward};
  }
}

// One send at a time per direction: the next one waits for this one, and with that the source buffer of this one is free.
void ProgramBuilder::send(Kind kind, int stage, int microbatch, int writer) {
  const auto last = last_send_.find({kind, stage});
  last_send_[{kind, stage}] = add({.kind = kind, .stage = stage, .microbatch = microbatch}, {writer, last == last_send_.end() ? -1 : last->second});
}

void ProgramBuilder::finish_gradient(int stage, int unit, int writer) {
  int done = writer;
  if (sums_replicas(stage, unit)) done = add({.kind = Kind::sum_replicas, .stage = stage, .unit = unit}, {writer});
  if (options_.reduces_gradients) done = add({.kind = Kind::reduce_gradients, .stage = stage, .unit = unit}, {writer, done, count_tokens_});
  gradient_done_[{stage, unit}] = done;
}

void ProgramBuilder::update_parameters() {
  for (const int stage : stages_) {
    const bool sums_tied = options_.ties_across_ranks && options_.stages[stage].has_tied_weight;
    int& tied_done = gradient_done_[{stage, tied_unit(stage)}];
    if (sums_tied) tied_done = add({.kind = Kind::sum_tied, .stage = stage, .unit = tied_unit(stage)}, {tied_done});
  }
  if (options_.clips) {
    Ids after = {count_tokens_};
    for (const Action& action : program_) {
      const bool writes_gradient =
          action.kind == Kind::backward || action.kind == Kind::sum_replicas || action.kind == Kind::reduce_gradients || action.kind == Kind::sum_tied;
      if (writes_gradient) after.push_back(action.id);
    }
    const int clip = add({.kind = Kind::clip}, after);
    for (auto& [unit, done] : gradient_done_) done = clip;
  }
  for (const int stage : stages_) {
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
  const auto& sums = options_.stages[stage].unit_sums_replicas;
  return unit < static_cast<int>(sums.size()) && sums[unit];
}

bool ProgramBuilder::expands(int stage) const {
  const auto& sums = options_.stages[stage].unit_sums_replicas;
  return options_.reduces_gradients || std::find(sums.begin(), sums.end(), true) != sums.end();
}

}  // namespace

std::vector<Program> lower(const Schedule& schedule, const LoweringOptions& options) {
  require(schedule.num_stages >= 1 && schedule.num_microbatches >= 1, "a schedule of {} stages and {} microbatches has nothing to run; both must be 1 or more",
          schedule.num_stages, schedule.num_microbatches);
  require(static_cast<int>(options.stages.size()) == schedule.num_stages, "the shapes of {} stages do not fit a schedule of {} stages", options.stages.size(),
          schedule.num_stages);
  std::vector<Program> programs;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) programs.push_back(ProgramBuilder(schedule, rank, options).build());
  return programs;
}

}  // namespace echelon
