// How a software profile rewrites what Echelon's own code traced: its operations, and which of its messages are sent
// when.
#include "predict/software/operation_rewriter.h"
#include "spec/groups.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace echelon {
namespace {

/// Asynchronous tensor parallelism: a matmul starts on the parts that have arrived while the others are gathered, so
/// the wait for a gather moves after the matmul that reads it. A reduction needs the results of the matmul.
void gather_during_matmuls(std::vector<TraceEvent>& events) {
  const auto is_product = [](const TraceEvent& event) {
    const auto* operation = std::get_if<OpRecord>(&event);
    return operation != nullptr && operation->kind == OpKind::matmul;
  };
  for (auto wait = events.begin(); wait != events.end(); ++wait) {
    if (wait == events.begin() || !std::holds_alternative<CommWait>(*wait)) continue;
    const auto* gather = std::get_if<CommRecord>(&*std::prev(wait));
    if (gather == nullptr || gather->kind != CommKind::all_gather || !(gather->group == tp_group)) continue;
    const auto operations_end = std::find_if_not(
        std::next(wait), events.end(), [](const TraceEvent& event) { return std::holds_alternative<OpRecord>(event); });
    const auto product = std::find_if(std::next(wait), operations_end, is_product);
    if (product != operations_end) std::rotate(wait, std::next(wait), std::next(product));
  }
}

/// Every tensor-parallel rank holds the whole boundary: each sends its part, and the parts are gathered inside the
/// node.
void scatter(const SoftwareProfile& profile, const RunConfig& config, CallTrace& transfer) {
  const std::int64_t tp = config.parallelism.tensor_parallel_degree;
  if (!profile.scatters_transfers || tp == 1 || config.parallelism.sequence_parallel || transfer.events.empty()) return;
  auto& message = std::get<CommRecord>(transfer.events.front());
  CommRecord gather = message;
  message.num_elements /= tp;
  gather.kind = CommKind::all_gather;
  gather.group = tp_group;
  gather.group_size = static_cast<int>(tp);
  gather.peer = -1;
  transfer.events.emplace_back(gather);
}

void drop_communication(CallTrace& trace) {
  std::erase_if(trace.events, [](const TraceEvent& event) { return !std::holds_alternative<OpRecord>(event); });
}

bool is_reduction(ActionKind kind) { return kind == ActionKind::reduce_gradients || kind == ActionKind::reduce_parts; }

/// One reduction of all gradients of the rank, as many as its clipping squares.
void reduce_all(const RunConfig& config, CallTrace& clip) {
  const ParallelConfig& p = config.parallelism;
  const bool is_sharded = p.data_parallel_shard_degree > 1;
  CommRecord reduction = {.kind = is_sharded ? CommKind::reduce_scatter : CommKind::all_reduce,
                          .group = is_sharded ? shard_group : replicate_group};
  reduction.group_size = static_cast<int>(is_sharded ? p.data_parallel_shard_degree : p.data_parallel_replicate_degree);
  reduction.dtype = config.training.grad_dtype.value_or(DType::float32);
  for (const OpRecord& op : clip.operations())
    if (op.kind == OpKind::sum_of_squares) reduction.num_elements += op.m * (is_sharded ? reduction.group_size : 1);
  clip.events.emplace_back(reduction);
}

void attend_to_share(double share, std::vector<TraceEvent>& events) {
  const auto part = [&](std::int64_t all) { return std::llround(share * static_cast<double>(all)); };
  for (TraceEvent& event : events) {
    auto* const operation = std::get_if<OpRecord>(&event);
    if (operation == nullptr || (operation->kind != OpKind::attention && operation->kind != OpKind::attention_backward))
      continue;
    operation->n = part(operation->n);
    operation->flops = part(operation->flops);
  }
}

CallTrace rewritten_trace(const SoftwareProfile& profile, const RunConfig& config, const Action& action,
                          const CallTrace& trace) {
  CallTrace does = rewritten_operations(profile, config, action, trace);
  if (profile.gathers_during_matmuls && is_compute(action.kind)) gather_during_matmuls(does.events);
  if (is_send(action.kind)) scatter(profile, config, does);
  if (is_receive(action.kind)) does.events.clear();  // the message is timed where it is sent
  if (profile.reduces_at_the_end && config.parallelism.zero_level <= 1 && config.data_parallel_degree() > 1) {
    if (is_reduction(action.kind)) drop_communication(does);
    if (action.kind == ActionKind::clip) reduce_all(config, does);
  }
  return does;
}

}  // namespace

CallTrace rewritten(const SoftwareProfile& profile, const RunConfig& config, const Action& action,
                    const CallTrace& trace) {
  CallTrace does = profile.is_echelon ? trace : rewritten_trace(profile, config, action, trace);
  if (profile.attention_share != 1) attend_to_share(profile.attention_share, does.events);
  if (profile.is_echelon && profile.key_shares.skip_rows() && is_compute(action.kind))
    send_shares(profile.key_shares, key_exchange(config.parallelism), does);
  return does;
}

}  // namespace echelon
