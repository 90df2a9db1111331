#include "predict/software/key_shares.h"

#include "nn/context_parallel/block_ring.h"

#include <cmath>

namespace echelon {
namespace {

/// Follows the order of nn/context_parallel/ring_attention.h. A hop is two sends and two receives; keys of hop h are
/// sent before attention number h, and in backward the gradients of the block of attention number h, which are those of
/// hop h - 1, directly after it.
class RingOrder {
 public:
  explicit RingOrder(std::size_t num_hops) : num_hops_(num_hops) {}

  void attended(bool is_backward) {
    ++num_attended_;
    gradients_left_ = is_backward && num_attended_ > 1 ? records_of_hop : 0;
  }

  struct Place {
    bool is_gradient = false;
    std::size_t hop = 0;  // counted from 0
  };
  Place next() {
    if (gradients_left_ > 0) {
      --gradients_left_;
      return {true, num_attended_ - 2};
    }
    if (num_attended_ > num_hops_) num_attended_ = 0;  // of the next layer
    return {false, num_attended_};
  }

 private:
  static constexpr int records_of_hop = 4;
  std::size_t num_hops_, num_attended_ = 0;
  int gradients_left_ = 0;
};

void scale(CommRecord& record, const RowShares& shares, std::size_t hop) {
  const auto part = [hop](const std::vector<double>& of, std::int64_t all) {
    return std::llround(of[hop] * static_cast<double>(all));
  };
  record.num_elements = part(shares.slowest, record.num_elements);
  record.sent_bytes = part(shares.mean, record.sent_bytes);
}

}  // namespace

void send_shares(const KeyShares& shares, const KeyExchange& exchange, CallTrace& trace) {
  const Group group = ring_group(exchange);
  RingOrder order(shares.of_windows.front().keys.mean.size());
  for (TraceEvent& event : trace.events) {
    if (const auto* operation = std::get_if<OpRecord>(&event)) {
      const bool is_backward = operation->kind == OpKind::attention_backward;
      if (is_backward || operation->kind == OpKind::attention) order.attended(is_backward);
      continue;
    }
    auto* const record = std::get_if<CommRecord>(&event);
    if (record == nullptr || record->group != group || record->dtype == DType::int32) continue;  // choices of experts
    const WindowShares& of_block = shares.of_windows[record->window];
    const bool is_hop = record->kind == CommKind::send || record->kind == CommKind::receive;
    if (is_hop) {
      const auto [is_gradient, hop] = order.next();
      scale(*record, is_gradient ? of_block.gradients : of_block.keys, hop);
    } else if (record->kind == CommKind::all_gather || record->kind == CommKind::reduce_scatter) {
      scale(*record, record->kind == CommKind::all_gather ? of_block.keys : of_block.gradients, 0);
    }
  }
}

}  // namespace echelon
