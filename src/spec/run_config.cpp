#include "spec/run_config.h"

#include "base/error.h"
#include "spec/choice.h"

#include <limits>

namespace echelon {
namespace {

constexpr ReshardAfterForward all_reshards[] = {ReshardAfterForward::never, ReshardAfterForward::microbatch,
                                                ReshardAfterForward::step};
constexpr LrDecay all_decays[] = {LrDecay::none, LrDecay::cosine, LrDecay::linear, LrDecay::wsd};

}  // namespace

std::string_view name_of(LrDecay decay) {
  switch (decay) {
    case LrDecay::none: return "none";
    case LrDecay::cosine: return "cosine";
    case LrDecay::linear: return "linear";
    case LrDecay::wsd: return "wsd";
  }
  return "?";
}

std::string_view name_of(ReshardAfterForward reshard) {
  switch (reshard) {
    case ReshardAfterForward::never: return "never";
    case ReshardAfterForward::microbatch: return "microbatch";
    case ReshardAfterForward::step: return "step";
  }
  return "?";
}

LrDecay parse_lr_decay(std::string_view key, std::string_view name) { return parse_choice(key, name, all_decays); }
ReshardAfterForward parse_reshard_after_forward(std::string_view key, std::string_view name) {
  return equal_but_for_case(name, "always") ? ReshardAfterForward::microbatch : parse_choice(key, name, all_reshards);
}

MeshShape RunConfig::mesh_shape() const {
  const auto degree = [](std::string_view key, std::int64_t value) {
    require(value >= 1 && value <= std::numeric_limits<int>::max(),
            "parallelism.{} = {} is no number of ranks; nearest: 1", key, value);
    return static_cast<int>(value);
  };
  const ParallelConfig& p = parallelism;
  return MeshShape(
      {
          1,  // cluster
          degree("data_parallel_replicate_degree", p.data_parallel_replicate_degree),
          degree("pipeline_parallel_degree", p.pipeline_parallel_degree),
          degree("data_parallel_shard_degree", p.data_parallel_shard_degree),
          degree("context_parallel_degree", p.context_parallel_degree),
          degree("tensor_parallel_degree", p.tensor_parallel_degree),
      },
      p.order);
}

std::int64_t RunConfig::data_parallel_degree() const {
  return parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree;
}

std::int64_t RunConfig::num_microbatches() const {
  return training.global_batch_size / (data_parallel_degree() * training.micro_batch_size);
}

}  // namespace echelon
