#include "engine/step.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace echelon {

Step::Step(const Blueprint& blueprint, const RankBlueprint& rank, const RankParts& parts)
    : config_(blueprint.config()),
      rank_(rank),
      model_(parts.model),
      ops_(parts.ops),
      mesh_(parts.mesh),
      recorder_(parts.recorder),
      buffers_{ProgramBuffers(parts.memory, ProgramKind::training),
               ProgramBuffers(parts.memory, ProgramKind::evaluation),
               ProgramBuffers(parts.memory, ProgramKind::training_with_snapshot)},
      executor_(config_, {parts.model.part(), parts.ops, parts.mesh}),
      batch_(config_, parts.model.part(), parts.mesh.rank()),
      next_batch_(batch_) {
  for (const ProgramKind program : blueprint.program_kinds())
    traffic_[static_cast<std::size_t>(program)] = context_traffic(config_, rank, program);
}

StepResult Step::run(ProgramKind kind, const StepInput& input) {
  kind_ = kind;
  input_ = input;
  values_ = {.trains = is_training(kind),
             .has_loss_scale = input.loss_scale.has_value(),
             .max_norm = input.max_norm,
             .adamw = input.adamw,
             .expert_loads = expert_loads_[static_cast<std::size_t>(kind)]};
  executor_.start(buffers_[static_cast<std::size_t>(kind)], values_);
  const Program& program = rank_.program(kind);
  pending_.clear();
  pending_.resize(program.size());
  const bool is_observed = observer_ || action_observer_ != nullptr;
  if (kind == ProgramKind::training && recorder_ != nullptr && !is_observed)
    replay(program);
  else
    perform_all(program);
  count_attention_work();
  for (const ExpertTraffic& of_layer : executor_.expert_traffic())
    expert_traffic_[static_cast<std::size_t>(kind)] += of_layer;
  return result();
}

AttentionWork& AttentionWork::operator+=(const AttentionWork& more) {
  pairs += more.pairs;
  planned_pairs += more.planned_pairs;
  recomputed_pairs += more.recomputed_pairs;
  planned_recomputed_pairs += more.planned_recomputed_pairs;
  sent_bytes += more.sent_bytes;
  planned_sent_bytes += more.planned_sent_bytes;
  return *this;
}

void Step::count_attention_work() {
  const ContextTraffic& traffic = traffic_[static_cast<std::size_t>(kind_)];
  const std::int64_t planned = traffic.planned_bytes;
  const std::vector<KeyRowCounts> rows = batch_.key_row_counts();
  const PairCounts& pairs = batch_.pairs();
  const bool recomputes = kind_ == ProgramKind::training;
  attention_work_ = {.pairs = pairs.num_pairs(),
                     .planned_pairs = pairs.num_planned_pairs(),
                     .recomputed_pairs = recomputes ? pairs.num_recomputed_pairs() : 0,
                     .planned_recomputed_pairs = recomputes ? pairs.num_planned_recomputed_pairs() : 0,
                     .sent_bytes = rows.empty() ? planned : traffic.sent_bytes(rows),
                     .planned_sent_bytes = planned};
  work_of_all_[static_cast<std::size_t>(kind_)] += attention_work_;
}

void Step::perform_all(std::span<const Action> actions) {
  const Program& program = rank_.program(kind_);
  for (const Action& action : actions) {
    try {
      for (const int id : action.after) finish(program[static_cast<std::size_t>(id)]);
      observed(action, ActionPart::perform, [&] { perform(action); });
      mesh_.poll();
    } catch (const PeerAborted&) {
      throw;
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", place_of(action), error.what()), error.status());
    } catch (const std::exception& error) {
      throw Failure(fmt::format("{}: {}", place_of(action), error.what()));
    }
  }
}

std::string Step::place_of(const Action& action) const {
  const std::string place = mesh_.place_in_model();
  return place.empty() ? to_string(action) : fmt::format("{}, {}", to_string(action), place);
}

// load_batch, the first action, and report, the last, communicate with the host. The actions between them are the same
// in every step. The first time they are enqueued one by one, since what is created or timed on first use cannot be
// recorded.
void Step::replay(std::span<const Action> program) {
  const std::span<const Action> between = program.subspan(1, program.size() - 2);
  const Constants now = constants();
  perform_all(program.first(1));
  if (performed_ != now) {
    perform_all(between);
  } else {
    if (recorded_ != now) {
      recorded_.reset();
      record(between, program.back());
      recorded_ = now;
    }
    recorder_->replay();
  }
  performed_ = now;
  perform_all(program.last(1));
}

void Step::record(std::span<const Action> actions, const Action& next) {
  try {
    recorder_->begin();
    perform_all(actions);
    for (const int id : next.after) finish(rank_.program(kind_)[static_cast<std::size_t>(id)]);
    recorder_->end();
  } catch (...) {
    recorder_->cancel();
    throw;
  }
}

Step::Constants Step::constants() const {
  AdamWOptions adamw = input_.adamw;
  adamw.lr = 0;
  adamw.step = 0;
  return {.adamw = adamw, .max_norm = input_.max_norm, .has_loss_scale = input_.loss_scale.has_value()};
}

void Step::finish(const Action& action) {
  std::vector<Pending>& under_way = pending_[static_cast<std::size_t>(action.id)];
  if (under_way.empty()) return;
  observed(action, ActionPart::wait, [&] {
    for (Pending& pending : under_way) pending.wait();
  });
  under_way.clear();
}

template <class F>
void Step::observed(const Action& action, ActionPart part, F&& f) {
  if (action_observer_ == nullptr) return f();
  action_observer_->begins(action, part);
  f();
  action_observer_->ends();
}

void Step::perform(const Action& action) {
  if (action.kind == ActionKind::load_batch) load_batch();
  if (action.kind == ActionKind::report) read_ahead();
  const bool gives_snapshot = kind_ == ProgramKind::training_with_snapshot && snapshot_reader_ != nullptr;
  if (gives_snapshot && action.kind == ActionKind::update) snapshot_reader_->release(model_.part().unit(action));
  pending_[static_cast<std::size_t>(action.id)] = executor_.perform(action);
  if (action.kind == ActionKind::clip && observer_) observe_gradients();
  if (gives_snapshot && action.kind == ActionKind::take_snapshot && is_last_of_snapshot(action)) {
    ops_.publish();
    snapshot_reader_->taken();
  }
}

bool Step::is_last_of_snapshot(const Action& action) const {
  return rank_.program(kind_)[static_cast<std::size_t>(action.id) + 1].kind != ActionKind::take_snapshot;
}

// What cannot be read is an error of the step that needs it. Where the host computes, nothing is gained.
void Step::read_ahead() {
  const bool is_host = ops_.host_address(executor_.scalars(count_scalar, num_count_scalars)) != nullptr;
  if (!input_.has_next || is_host || !is_training(kind_)) return;
  try {
    next_batch_.read(*input_.batches, input_.first_sequence + config_.training.global_batch_size);
  } catch (const std::exception&) {
    next_batch_.release();
  }
}

// Values that change in every step are uploaded with the tokens.
void Step::load_batch() {
  if (next_batch_.holds(input_.batches, input_.first_sequence))
    std::swap(batch_, next_batch_);
  else
    batch_.read(*input_.batches, input_.first_sequence);
  next_batch_.release();
  values_.batch = batch_.values();
  if (!ops_.computes_values()) values_.batch.key_transfers = nullptr;  // for types, all rows travel
  values_.given = {.num_targets = static_cast<double>(batch_.num_targets()),
                   .requests = summand_of(input_.request),
                   .num_saved = input_.has_saved ? 1.0 : 0.0,
                   .loss_scale = input_.loss_scale.value_or(1),
                   .adamw = scalars_of(input_.adamw)};
}

// Between clipping and the update.
void Step::observe_gradients() {
  double count = 0;
  ops_.download(&count, executor_.scalars(count_scalar, num_count_scalars));
  observer_(model_, count > 0 ? executor_.expected_targets() / count / input_.loss_scale.value_or(1) : 0.0);
}

StepResult Step::result() const {
  const StepScalars& read = values_.read;
  StepResult result = {.loss = read.num_targets > 0 ? read.loss / read.num_targets : 0.0,
                       .grad_norm = read.grad_norm,
                       .num_targets = read.num_targets,
                       .is_skipped = input_.loss_scale && !std::isfinite(read.grad_norm),
                       .request = highest_request(read.requests),
                       .num_saved = static_cast<std::int64_t>(read.num_saved)};
  if (result.is_skipped) result.grad_norm = std::numeric_limits<double>::infinity();  // an overflow may also give NaN
  return result;
}

}  // namespace echelon
