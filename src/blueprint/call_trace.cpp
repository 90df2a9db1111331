#include "blueprint/call_trace.h"

#include "executor/action_executor.h"
#include "executor/unit_state.h"

#include <algorithm>

namespace echelon {
namespace {

/// Buffers without data. Regions have no limit and report what was taken.
class SizedBuffers final : public Buffers {
 public:
  [[nodiscard]] Tensor tensor(BufferKey /*key*/, DType dtype, const Sizes& sizes) override {
    return {nullptr, dtype, sizes};
  }
  [[nodiscard]] Stack region(BufferKey /*key*/) override { return {}; }
  void note_use(BufferKey key, std::int64_t used_bytes) override {
    std::int64_t& most = used_bytes_[key];
    most = std::max(most, used_bytes);
  }
  void forget(BufferKey key) { used_bytes_.erase(key); }

  [[nodiscard]] std::int64_t used_bytes(BufferKey key) const {
    const auto found = used_bytes_.find(key);
    return found == used_bytes_.end() ? 0 : found->second;
  }

 private:
  std::map<BufferKey, std::int64_t> used_bytes_;
};

/// Executes actions on tensors without data. Forward comes first, because backward reads what forward saved. Of all
/// microbatches and actions of one kind, one stands for the others.
class Tracer final : public CommListener {
 public:
  Tracer(const RunConfig& config, int rank, ModelPart& part, bool trains)
      : mesh_(config.mesh_shape(), rank), executor_(config, {part, ops_, mesh_}) {
    const Sizes table = part.rope_table_sizes();
    const DType dtype = accumulate_dtype(part.options.dtype);
    for (StagePart& each : part.stages)
      each.stage->bind_rope_tables(ops_, {nullptr, dtype, table}, {nullptr, dtype, table});
    bind_state(part, buffers_);
    for (ShardedUnit* unit : part.units()) {
      unit->bind_parameters(whole_buffers(buffers_, {}, *unit, unit->options().dtype));
      unit->bind_gradients(whole_buffers(buffers_, {}, *unit, unit->options().grad_dtype));
    }
    values_.trains = trains;
    values_.has_loss_scale = part.options.dtype == DType::float16;
    ops_.listen([this](const OpRecord& record) { events_.emplace_back(record); });
    mesh_.listen(*this);
    executor_.start(buffers_, values_);
  }

  CallTrace trace(Action action) {
    action.microbatch = 0;
    action.id = 0;
    events_.clear();
    mesh_.clear();
    buffers_.forget({BufferRole::workspace});
    std::vector<Pending> in_progress = executor_.perform(action);
    CallTrace trace = {std::move(events_), buffers_.used_bytes({BufferRole::workspace})};
    for (Pending& pending : in_progress) pending.wait();
    return trace;
  }

  /// Of one microbatch.
  [[nodiscard]] std::int64_t used_bytes(BufferRole role, int stage) const {
    return buffers_.used_bytes({role, 0, stage});
  }

 private:
  void started(const CommRecord& record) override { events_.emplace_back(record); }
  void waited(std::size_t start) override { events_.emplace_back(CommWait{start}); }

  TraceOps ops_;
  TraceMesh mesh_;
  SizedBuffers buffers_;
  StepValues values_;
  ActionExecutor executor_;
  std::vector<TraceEvent> events_;
};

template <class Event>
std::vector<Event> events_of(const std::vector<TraceEvent>& events) {
  std::vector<Event> found;
  for (const TraceEvent& event : events)
    if (const auto* each = std::get_if<Event>(&event)) found.push_back(*each);
  return found;
}

}  // namespace

std::vector<OpRecord> CallTrace::operations() const { return events_of<OpRecord>(events); }
std::vector<CommRecord> CallTrace::communications() const { return events_of<CommRecord>(events); }

RankTrace::RankTrace(const RunConfig& config, int rank, ModelPart& part, const Program& program)
    : adds_up_microbatches_(!part.units().front()->options().shards_gradients()) {
  for (const Action& action : program)
    if (forms_weight_gradients(action.kind)) first_microbatch_.try_emplace(action.stage, action.microbatch);
  Tracer tracer(config, rank, part, !first_microbatch_.empty());
  const auto trace = [&](const Action& action) {
    const Key key = key_of(action);
    if (!calls_.contains(key)) calls_[key] = tracer.trace(action);
  };
  for (const StagePart& each : part.stages) {
    trace({.kind = ActionKind::forward, .stage = each.index});
    input_stash_bytes_[each.index] = tracer.used_bytes(BufferRole::input_stash, each.index);
    stash_bytes_[each.index] = tracer.used_bytes(BufferRole::stash, each.index) + input_stash_bytes_[each.index];
  }
  for (const Action& action : program) trace(action);
  for (const StagePart& each : part.stages)
    gradient_stash_bytes_[each.index] = tracer.used_bytes(BufferRole::gradient_stash, each.index);
}

RankTrace::Key RankTrace::key_of(const Action& action) const {
  const auto first = first_microbatch_.find(action.stage);
  const bool is_first = adds_up_microbatches_ && forms_weight_gradients(action.kind) &&
                        first != first_microbatch_.end() && action.microbatch == first->second;
  return {action.kind, action.stage, action.unit, is_first};
}

}  // namespace echelon
