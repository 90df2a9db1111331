#include "blueprint/unit_trace.h"

#include "executor/action_executor.h"
#include "executor/unit_state.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

/// Far apart, so that no two buffers overlap. They have no memory.
std::byte* address_of_buffer(std::int64_t number) {
  constexpr std::uintptr_t most_bytes = std::uintptr_t{1} << 46U;
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(number + 1) * most_bytes);
}

/// Buffers without data. Regions have no limit and report what was taken.
class SizedBuffers final : public Buffers {
 public:
  [[nodiscard]] Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) override {
    return {address_of(key), dtype, sizes};
  }
  [[nodiscard]] Stack region(BufferKey key) override { return Stack(address_of(key)); }
  void note_use(BufferKey key, const RegionUse& use) override {
    RegionUse& most = use_[key.role];
    if (use.num_bytes > most.num_bytes) most = use;
  }
  void forget(BufferRole role) { use_.erase(role); }

  [[nodiscard]] RegionUse use_of(BufferRole role) const {
    const auto found = use_.find(role);
    return found == use_.end() ? RegionUse() : found->second;
  }

 private:
  std::byte* address_of(const BufferKey& key) {
    const auto number = static_cast<std::int64_t>(addresses_.size()) + 1;  // 0 is the workspace of repeated calls
    return addresses_.try_emplace(key, address_of_buffer(number)).first->second;
  }

  std::map<BufferRole, RegionUse> use_;
  std::map<BufferKey, std::byte*> addresses_;
};

/// Executes actions on tensors without data and records them.
class Tracer final : public CommListener, public RepeatedCalls {
 public:
  /// `recorded`: by calls of this rank before; null: by none.
  Tracer(const RunConfig& config, int rank, ModelPart& part, bool trains, RecordedCalls* recorded = nullptr)
      : part_(part),
        window_(part.options.window_index(part.options.model.window_of(0)).value_or(0)),
        mesh_(config.mesh_shape(), rank),
        recorded_(recorded != nullptr ? *recorded : own_),
        executor_(config, {part, ops_, mesh_, this}) {
    if (!part.stages.empty()) bind_rope(part, ops_, buffers_);
    bind_state(part, buffers_);
    for (ShardedUnit* unit : part.units()) {
      unit->bind_parameters(whole_buffers(buffers_, {BufferRole::gathered_param}, *unit, unit->options().dtype));
      unit->bind_gradients(whole_buffers(buffers_, {BufferRole::unreduced_grad}, *unit, unit->options().grad_dtype));
    }
    values_.trains = trains;
    values_.has_loss_scale = part.options.dtype == DType::float16;
    ops_.listen([this](const OpRecord& record) { events_.emplace_back(record); });
    ops_.count_kernels([this](std::int64_t kernels) { add_late(kernels); });
    mesh_.listen(*this);
    executor_.start(buffers_, values_);
  }

  [[nodiscard]] CallTrace trace(Action action) {
    action.microbatch = 0;
    action.id = 0;
    buffers_.forget(BufferRole::workspace);
    return recorded([&] { return executor_.perform(action); });
  }
  /// Of the part's only stage: its unit, or its tied weight.
  [[nodiscard]] CallTrace trace(ActionKind kind, int unit) {
    return trace({.kind = kind, .stage = part_.stages.front().index, .unit = unit});
  }
  /// Of the part's only unit. Returns the bytes of its workspace.
  std::int64_t tell(ActionKind kind, PassKind pass, bool is_first, const TellPass& told) {
    CallTrace traced = trace(kind, 0);
    told(pass, is_first, traced);
    events_ = std::move(traced.events);  // its memory, most often
    return traced.workspace_bytes;
  }
  /// The next weight gradients are the first ones, at any level of sharding.
  void open_gradients() {
    for (ShardedUnit* unit : part_.units()) unit->zero_gradients(ops_);
  }
  [[nodiscard]] CallTrace clear_gradients(ShardedUnit& unit) {
    return recorded([&] { return unit.clear_gradients(ops_), std::vector<Pending>(); });
  }
  [[nodiscard]] CallTrace squares(const ShardedUnit& unit) {
    const Tensor sum = executor_.scalars(clip_scalar, num_clip_scalars);
    return recorded([&] { return unit.add_squares(ops_, sum), std::vector<Pending>(); });
  }

  [[nodiscard]] RegionUse use_of(BufferRole role) const { return buffers_.use_of(role); }

 private:
  /// Kernels that nothing follows which they are fused with, to the last operation.
  void add_late(std::int64_t kernels) {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (auto* const operation = std::get_if<OpRecord>(&*event)) {
        operation->num_kernels += static_cast<std::int32_t>(kernels);
        return;
      }
  }
  void started(const CommRecord& record) override {
    CommRecord of_block = record;
    of_block.window = window_;
    events_.emplace_back(of_block);
    starts_.push_back(num_starts_++);
  }
  void waited(std::size_t start) override { events_.emplace_back(CommWait{starts_[start]}); }

  void make(const Key& key, Stack& workspace, const std::function<void()>& call) override {
    const auto known = recorded_.find(key);
    const std::int64_t bytes = known != recorded_.end() ? repeat(known->second) : record(key, workspace, call);
    const Stack::Scope scope(workspace);
    (void)workspace.take(DType::float32, {bytes / size_of(DType::float32)});
  }
  /// Makes the call, on a workspace that measures it alone. Returns what it took.
  std::int64_t record(const Key& key, Stack& workspace, const std::function<void()>& call) {
    ops_.publish();
    const std::size_t first_event = events_.size(), first_start = num_starts_;
    const Stack before = std::exchange(workspace, Stack(address_of_buffer(0)));
    call();
    ops_.publish();
    RecordedCall recorded = {.workspace_bytes = std::exchange(workspace, before).peak_bytes()};
    recorded.events.assign(events_.begin() + static_cast<std::ptrdiff_t>(first_event), events_.end());
    recorded.num_starts = num_starts_ - first_start;
    for (TraceEvent& event : recorded.events)
      if (auto* const wait = std::get_if<CommWait>(&event)) {
        if (wait->start < first_start) throw Failure("a repeated call waits for what was started before it");
        wait->start -= first_start;
      }
    return recorded_.emplace(key, std::move(recorded)).first->second.workspace_bytes;
  }
  std::int64_t repeat(const RecordedCall& recorded) {
    ops_.publish();
    for (TraceEvent event : recorded.events) {
      if (auto* const wait = std::get_if<CommWait>(&event)) wait->start += num_starts_;
      events_.push_back(event);
    }
    num_starts_ += recorded.num_starts;
    return recorded.workspace_bytes;
  }

  template <class Call>
  CallTrace recorded(Call&& call) {
    constexpr std::size_t usual = 128;
    events_.clear();
    events_.reserve(usual);
    starts_.clear();
    num_starts_ = 0;
    mesh_.clear();
    ops_.publish();
    std::vector<Pending> in_progress = call();
    ops_.publish();
    CallTrace trace = {std::move(events_), buffers_.use_of(BufferRole::workspace).num_bytes};
    for (Pending& pending : in_progress) pending.wait();
    return trace;
  }

  ModelPart& part_;
  std::size_t window_;  // of the part's block, if it has one
  TraceOps ops_;
  TraceMesh mesh_;
  SizedBuffers buffers_;
  StepValues values_;
  RecordedCalls own_;
  RecordedCalls& recorded_;
  ActionExecutor executor_;
  std::vector<TraceEvent> events_;
  // By a communication's number on the mesh, which calls that were not made have none on: its number in the trace.
  std::vector<std::size_t> starts_;
  std::size_t num_starts_ = 0;
};

constexpr auto at(PassKind kind) { return static_cast<std::size_t>(kind); }

// A pass leaves in the stash what the next ones read. The gradient of the input is the same in every microbatch.
UnitPasses trace_passes(const RunConfig& config, int rank, const UnitKind& kind, bool trains, RecordedCalls& recorded,
                        const TellPass& told) {
  ModelPart part = make_unit_part(config, rank, kind);
  Tracer tracer(config, rank, part, trains, &recorded);
  UnitPasses passes;
  const auto trace = [&](PassKind pass, bool is_first, ActionKind action) {
    (is_first ? passes.first : passes.later)[at(pass)].workspace_bytes = tracer.tell(action, pass, is_first, told);
  };
  trace(PassKind::forward, true, ActionKind::forward);
  passes.input_stash = tracer.use_of(BufferRole::input_stash);
  passes.stash = tracer.use_of(BufferRole::stash);
  if (!trains) return passes;
  tracer.open_gradients();
  for (const bool is_first : {true, false}) trace(PassKind::backward, is_first, ActionKind::backward);
  trace(PassKind::backward_input, true, ActionKind::backward_input);
  passes.gradient_stash = tracer.use_of(BufferRole::gradient_stash);
  tracer.open_gradients();
  for (const bool is_first : {true, false}) trace(PassKind::backward_weight, is_first, ActionKind::backward_weight);
  return passes;
}

void trace_first_passes(const RunConfig& config, int rank, const UnitKind& kind, const TellPass& told) {
  ModelPart part = make_unit_part(config, rank, kind);
  Tracer tracer(config, rank, part, true);
  const auto trace = [&](PassKind pass, ActionKind action) { tracer.tell(action, pass, true, told); };
  trace(PassKind::forward, ActionKind::forward);
  tracer.open_gradients();
  trace(PassKind::backward, ActionKind::backward);
  tracer.open_gradients();
  trace(PassKind::backward_input, ActionKind::backward_input);
  trace(PassKind::backward_weight, ActionKind::backward_weight);
}

StateTraces trace_state(const RunConfig& config, int rank, const UnitKind& kind) {
  ModelPart part = make_unit_part(config, rank, kind);
  Tracer tracer(config, rank, part, true);
  const int index = kind.role == UnitKind::Role::tied_weight ? 1 : 0;
  ShardedUnit& unit = unit_of(part, kind);
  StateTraces traces;
  const auto trace = [&](ActionKind action) { traces[action] = tracer.trace(action, index); };
  traces[ActionKind::clear_gradients] = tracer.clear_gradients(unit);
  traces[ActionKind::clip] = tracer.squares(unit);
  if (unit.options().level > 0) trace(ActionKind::gather_parameters);
  trace(ActionKind::release_parameters);
  trace(ActionKind::open_gradients);
  trace(ActionKind::reduce_gradients);
  trace(ActionKind::store_gradients);
  if (unit.options().reduces_parts) trace(ActionKind::reduce_parts);
  if (unit.sums_replicas()) trace(ActionKind::sum_replicas);
  if (kind.has_copy) trace(ActionKind::sum_tied);
  if (config.checkpoint.saves_asynchronously()) trace(ActionKind::take_snapshot);
  trace(ActionKind::update);
  return traces;
}

}  // namespace

bool computes_weight_gradients(PassKind pass) {
  return pass == PassKind::backward || pass == PassKind::backward_weight;
}

std::optional<PassKind> pass_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return PassKind::forward;
    case ActionKind::backward: return PassKind::backward;
    case ActionKind::backward_input: return PassKind::backward_input;
    case ActionKind::backward_weight: return PassKind::backward_weight;
    default: return std::nullopt;
  }
}

UnitTraces::Key UnitTraces::key_of(const UnitKind& kind, int rank, bool trains) const {
  const MeshShape mesh = config_.mesh_shape();
  Coordinates coordinates = mesh.coordinates_of(rank);
  coordinates[static_cast<std::size_t>(Axis::pp)] = 0;
  return {kind, mesh.rank_of(coordinates), trains};
}

UnitPasses UnitTraces::tell_passes(const UnitKind& kind, int rank, bool trains, const TellPass& told) {
  return trace_passes(config_, rank, kind, trains, recorded_[std::get<int>(key_of(kind, rank, trains))], told);
}

const UnitPasses& UnitTraces::passes(const UnitKind& kind, int rank, bool trains) {
  const auto [known, is_new] = passes_.try_emplace(key_of(kind, rank, trains));
  if (!is_new) return known->second;
  UnitPasses traced;
  UnitPasses passes = tell_passes(kind, rank, trains, [&](PassKind pass, bool is_first, CallTrace& trace) {
    (is_first ? traced.first : traced.later)[at(pass)].events = std::move(trace.events);
  });
  for (std::size_t pass = 0; pass < num_pass_kinds; ++pass) {
    passes.first[pass].events = std::move(traced.first[pass].events);
    passes.later[pass].events = std::move(traced.later[pass].events);
  }
  return known->second = std::move(passes);
}

void UnitTraces::tell_first_passes(const UnitKind& kind, int rank, const TellPass& told) const {
  trace_first_passes(config_, rank, kind, told);
}

PassTraces UnitTraces::first_passes(const UnitKind& kind, int rank) const {
  PassTraces passes;
  tell_first_passes(kind, rank,
                    [&](PassKind pass, bool /*is_first*/, CallTrace& trace) { passes[at(pass)] = std::move(trace); });
  return passes;
}

const StateTraces& UnitTraces::state(const UnitKind& kind, int rank) {
  const auto [known, is_new] = states_.try_emplace(key_of(kind_of_state(kind), rank, true));
  if (is_new) known->second = trace_state(config_, rank, kind);
  return known->second;
}

CallTrace trace_without_units(const RunConfig& config, int rank, ModelPart& part, const Action& action, bool trains) {
  return Tracer(config, rank, part, trains).trace(action);
}

}  // namespace echelon
