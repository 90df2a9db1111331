// Choices of a config. The parser turns names into these enums once; name_of prints them.
#pragma once

#include "context/context_method.h"
#include "context/load_balancer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class LrDecay : std::uint8_t { none, cosine, linear, wsd };
/// How long a rank of ZeRO-3 keeps the parameters that it gathered for a forward pass.
enum class ReshardAfterForward : std::uint8_t {
  never,       // until the backward pass of the same microbatch has used them: one gather a microbatch
  microbatch,  // until the next unit has them: gathered for each forward and again for each backward pass
  step,        // until their last use in the step: one gather a step
};
[[nodiscard]] std::string_view name_of(LrDecay decay);
[[nodiscard]] std::string_view name_of(ReshardAfterForward reshard);
/// Case-insensitive. Throws Error naming `key` and the closest valid value.
[[nodiscard]] LrDecay parse_lr_decay(std::string_view key, std::string_view name);
/// "always" is an alias of `microbatch`.
[[nodiscard]] ReshardAfterForward parse_reshard_after_forward(std::string_view key, std::string_view name);

/// automatic: cuda if there is a GPU.
enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };
/// automatic: mpi under mpirun or srun, else threads; nccl on GPUs.
enum class CommBackend : std::uint8_t { automatic, thread, mpi, nccl };
/// automatic: each rank is bound to its share of the cores.
enum class RankBinding : std::uint8_t { automatic, none };
/// Whether training continues while a checkpoint is written, and what a GPU's state is copied to meanwhile.
enum class AsyncMode : std::uint8_t { disabled, async, async_with_pinned_mem };
/// Precision of float32 matmuls; high: operands rounded to TensorFloat-32.
enum class MatmulPrecision : std::uint8_t { highest, high };
enum class LinearDType : std::uint8_t { float8 };
/// On GPUs. automatic: cuDNN where it has a plan, else our kernels.
enum class AttentionKernels : std::uint8_t { automatic, cudnn, own };
/// How documents become sequences. stream: windows of all tokens; best_fit: whole documents, so that few are split.
enum class Packing : std::uint8_t { stream, best_fit };
/// Which rows of a sequence an expert with a capacity takes first: earlier ones, or those with larger weights, which is
/// not causal.
enum class CapacityOrder : std::uint8_t { position, score };
/// How rows go to experts on other ranks: to each directly, or hierarchically, once to every node and on from there.
/// all_gather: tokens go to all ranks, and sums return. automatic: hierarchically where parallelism.ranks_per_node says
/// which ranks share nodes, and a group has several.
enum class ExpertDispatch : std::uint8_t { automatic, direct, hierarchical, all_gather };
/// What a run that resumes does not take from its checkpoint.
struct LoadExclusions {
  bool optimizer = false, lr_scheduler = false, dataloader = false;
  bool operator==(const LoadExclusions&) const = default;
};
/// Throws Error naming `key` and the closest valid name.
[[nodiscard]] LoadExclusions parse_load_exclusions(std::string_view key, const std::vector<std::string>& names);
[[nodiscard]] std::vector<std::string> names_of(const LoadExclusions& exclusions);

enum class OptimizerKind : std::uint8_t { adamw };
[[nodiscard]] std::string_view name_of(DeviceChoice device);  // "auto", "cpu", "cuda"
[[nodiscard]] std::string_view name_of(CommBackend backend);
[[nodiscard]] std::string_view name_of(RankBinding binding);
[[nodiscard]] std::string_view name_of(AsyncMode mode);
[[nodiscard]] std::string_view name_of(MatmulPrecision precision);
[[nodiscard]] std::string_view name_of(LinearDType dtype);
[[nodiscard]] std::string_view name_of(AttentionKernels kernels);  // "auto", "cudnn", "own"
[[nodiscard]] std::string_view name_of(Packing packing);
[[nodiscard]] std::string_view name_of(CapacityOrder order);
[[nodiscard]] std::string_view name_of(ExpertDispatch dispatch);
[[nodiscard]] std::string_view name_of(OptimizerKind optimizer);

/// The choice of exactly this name. Defined for the enums above, LoadBalancer and ContextMethod, whose names in
/// Megatron-LM (p2p, a2a, a2a+p2p) are aliases. Throws UnknownChoice (spec/choice.h)
/// naming `key` and the closest valid one.
template <class Choice>
[[nodiscard]] Choice parse_exactly(std::string_view key, std::string_view name);

/// Empty for the default.
template <class Choice>
[[nodiscard]] std::string_view name_of(const std::optional<Choice>& choice) {
  return choice ? name_of(*choice) : std::string_view();
}

}  // namespace echelon
