// A step of training as data: what every rank does, in which order, and what must have ended before. Integers only; no
// tensor, device or transport.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class ActionKind : std::uint8_t {
  load_batch,       // tokens and targets of all microbatches of the step
  take_snapshot,    // copies what of a unit's state goes into a checkpoint, before its update
  clear_gradients,  // zeroes the gradients that backward adds to
  count_tokens,     // sums the number of valid targets over the data axes
  receive_forward,  // posts the receive of the stage's input from the previous stage
  forward,
  send_forward,      // starts the send of the stage's output to the next stage
  receive_backward,  // posts the receive of the gradient of the stage's output
  // Input and weight gradients in one pass, which can send its gradient only at its end.
  backward,
  backward_input,
  backward_weight,
  send_backward,
  // ZeRO >= 2: gives a unit the whole buffer for the gradients of one microbatch, and zeroes what backward adds to.
  open_gradients,
  // Starts the reduction of a unit's gradients over the data axes; under ZeRO over the shard axis, from level 2 on of
  // one microbatch.
  reduce_gradients,
  // What was reduced, to the gradients that are kept; from level 2 on it is added, and the whole buffer is closed.
  store_gradients,
  reduce_parts,  // starts the sum of a unit's shards over the replicas of a sharded model (hybrid sharding)
  // Sums a unit's gradients that are partial on each tensor-parallel rank (norms under sequence parallelism, shared kv
  // heads).
  sum_replicas,
  sum_tied,  // sums the tied weight's gradient over the first and the last stage
  clip,      // the global gradient norm and from it the factor of the gradients
  update,    // the optimizer on a unit's shard
  // Starts the all-gather of a unit's shards: after their update (ZeRO-1 and 2), or before they are used (ZeRO-3).
  gather_parameters,
  release_parameters,  // ZeRO-3: the gathered copy is not needed for now
  report,              // sums the loss over the ranks that have one
};
[[nodiscard]] std::string_view name_of(ActionKind kind);
[[nodiscard]] bool is_compute(ActionKind kind);  // forward, backward, backward_input, backward_weight
[[nodiscard]] inline bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
[[nodiscard]] inline bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}
[[nodiscard]] inline bool is_transfer(ActionKind kind) { return is_send(kind) || is_receive(kind); }
[[nodiscard]] inline bool is_forward_transfer(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::receive_forward;
}
[[nodiscard]] inline bool computes_weight_gradients(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_weight;
}

inline constexpr int whole_stage = -1;

struct Action {
  ActionKind kind{};
  int stage = -1;  // virtual pipeline stage
  int microbatch = -1;
  // A block of the stage, 0 = first in forward order; num_units(stage) = the tied weight; whole_stage = all in order.
  int unit = whole_stage;
  int id = -1;               // its position in its rank's program
  std::vector<int> after{};  // ids of this rank's actions that must have ended before this one starts; ascending
  bool operator==(const Action&) const = default;
};
[[nodiscard]] std::string to_string(const Action& action);  // "backward stage 1 microbatch 3 unit 0"

/// One rank's ordered list.
using Program = std::vector<Action>;

}  // namespace echelon
