// Activation checkpointing: what a decoder block recomputes in backward instead of saving it in forward (Chen et al.
// 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198). docs/internals/memory.md has the bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// The operations of a block whose results are saved or recomputed, in the order in which they run; and parts of one.
enum class BlockOperation : std::uint8_t {
  qkv_proj,       // q, k and v, normalised and rotated
  qk_norm,        // q and k only, from the results of their projections (models with norms of q and k)
  core_attn,      // the result of attention and its log-sum-exps
  o_proj,         // h = x + the attention branch
  mlp,            // the projections before the activation: gate and up; of a mixture of experts all of these:
  router,         // its logits
  experts,        // the rows that have come to them, and gate and up of these
  shared_expert,  // its gate and up, and its own gate's logits
};
[[nodiscard]] std::string_view name_of(BlockOperation operation);

inline constexpr BlockOperation parts_of_mixture[] = {BlockOperation::router, BlockOperation::experts,
                                                      BlockOperation::shared_expert};

/// A set of operations. Recomputing the projections of q and k recomputes their norms, so qkv_proj includes qk_norm;
/// mlp includes the parts of a mixture.
class BlockOperations {
 public:
  constexpr BlockOperations() = default;
  constexpr BlockOperations(std::initializer_list<BlockOperation> operations) {
    for (const BlockOperation operation : operations) add(operation);
  }
  constexpr void add(BlockOperation operation) {
    bits_ |= bit(operation);
    if (operation == BlockOperation::qkv_proj) bits_ |= bit(BlockOperation::qk_norm);
    if (operation == BlockOperation::mlp)
      for (const BlockOperation part : parts_of_mixture) bits_ |= bit(part);
  }
  [[nodiscard]] constexpr bool contain(BlockOperation operation) const { return (bits_ & bit(operation)) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  auto operator<=>(const BlockOperations&) const = default;

 private:
  static constexpr unsigned bit(BlockOperation operation) { return 1U << static_cast<unsigned>(operation); }
  unsigned bits_ = 0;
};

/// Everything between a norm's result and o_proj.
inline constexpr BlockOperations attention_internals = {BlockOperation::qkv_proj, BlockOperation::core_attn};
/// The block saves only its input.
inline constexpr BlockOperations whole_block = {BlockOperation::qkv_proj, BlockOperation::core_attn,
                                                BlockOperation::o_proj, BlockOperation::mlp};

/// "none", "selective", "full", or operations. Throws Error naming `key` and the closest valid value.
[[nodiscard]] BlockOperations parse_recompute(std::string_view key, const std::vector<std::string>& names);
/// One of the three words, or the names of the operations.
[[nodiscard]] std::vector<std::string> names_of(const BlockOperations& operations);

/// Which blocks of a pipeline stage: all, or the first recompute_num_layers (Megatron-LM's methods of these names).
enum class RecomputeMethod : std::uint8_t { uniform, block };
[[nodiscard]] std::string_view name_of(RecomputeMethod method);
[[nodiscard]] RecomputeMethod parse_recompute_method(std::string_view key, std::string_view name);

/// What a stage's blocks recompute.
struct Recompute {
  BlockOperations operations;
  // The first blocks of the stage; the others save everything.
  std::int64_t num_blocks = std::numeric_limits<std::int64_t>::max();

  [[nodiscard]] BlockOperations of_block(std::int64_t index_in_stage) const {
    return index_in_stage < num_blocks ? operations : BlockOperations();
  }
};

}  // namespace echelon
