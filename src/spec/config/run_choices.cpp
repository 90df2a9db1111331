#include "spec/config/run_choices.h"

#include "spec/choice.h"

namespace echelon {
namespace {

constexpr ReshardAfterForward all_reshards[] = {ReshardAfterForward::never, ReshardAfterForward::microbatch,
                                                ReshardAfterForward::step};
constexpr LrDecay all_decays[] = {LrDecay::none, LrDecay::cosine, LrDecay::linear, LrDecay::wsd};
constexpr DeviceChoice all_devices[] = {DeviceChoice::automatic, DeviceChoice::cpu, DeviceChoice::cuda};
constexpr CommBackend all_backends[] = {CommBackend::automatic, CommBackend::thread, CommBackend::mpi,
                                        CommBackend::nccl};
constexpr RankBinding all_bindings[] = {RankBinding::automatic, RankBinding::none};
constexpr AsyncMode all_async_modes[] = {AsyncMode::disabled, AsyncMode::async, AsyncMode::async_with_pinned_mem};
constexpr MatmulPrecision all_precisions[] = {MatmulPrecision::highest, MatmulPrecision::high};
constexpr LinearDType all_linear_dtypes[] = {LinearDType::float8};
constexpr AttentionKernels all_attention_kernels[] = {AttentionKernels::automatic, AttentionKernels::cudnn,
                                                      AttentionKernels::own};
constexpr Packing all_packings[] = {Packing::stream, Packing::best_fit};
constexpr CapacityOrder all_capacity_orders[] = {CapacityOrder::position, CapacityOrder::score};
constexpr ExpertDispatch all_dispatches[] = {ExpertDispatch::automatic, ExpertDispatch::direct,
                                             ExpertDispatch::hierarchical, ExpertDispatch::all_gather};
constexpr ContextMethod all_context_methods[] = {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses,
                                                 ContextMethod::ulysses_ring};
constexpr OptimizerKind all_optimizers[] = {OptimizerKind::adamw};

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

std::string_view name_of(DeviceChoice device) {
  switch (device) {
    case DeviceChoice::automatic: return "auto";
    case DeviceChoice::cpu: return "cpu";
    case DeviceChoice::cuda: return "cuda";
  }
  return "?";
}

std::string_view name_of(CommBackend backend) {
  switch (backend) {
    case CommBackend::automatic: return "auto";
    case CommBackend::thread: return "thread";
    case CommBackend::mpi: return "mpi";
    case CommBackend::nccl: return "nccl";
  }
  return "?";
}

std::string_view name_of(RankBinding binding) {
  switch (binding) {
    case RankBinding::automatic: return "auto";
    case RankBinding::none: return "none";
  }
  return "?";
}

std::string_view name_of(AsyncMode mode) {
  switch (mode) {
    case AsyncMode::disabled: return "disabled";
    case AsyncMode::async: return "async";
    case AsyncMode::async_with_pinned_mem: return "async_with_pinned_mem";
  }
  return "?";
}

std::string_view name_of(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::highest: return "highest";
    case MatmulPrecision::high: return "high";
  }
  return "?";
}

std::string_view name_of(LinearDType dtype) {
  switch (dtype) {
    case LinearDType::float8: return "float8";
  }
  return "?";
}

std::string_view name_of(AttentionKernels kernels) {
  switch (kernels) {
    case AttentionKernels::automatic: return "auto";
    case AttentionKernels::cudnn: return "cudnn";
    case AttentionKernels::own: return "own";
  }
  return "?";
}

std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::stream: return "stream";
    case Packing::best_fit: return "best_fit";
  }
  return "?";
}

std::string_view name_of(ExpertDispatch dispatch) {
  switch (dispatch) {
    case ExpertDispatch::automatic: return "auto";
    case ExpertDispatch::direct: return "direct";
    case ExpertDispatch::hierarchical: return "hierarchical";
    case ExpertDispatch::all_gather: return "all_gather";
  }
  return "?";
}

std::string_view name_of(CapacityOrder order) {
  switch (order) {
    case CapacityOrder::position: return "position";
    case CapacityOrder::score: return "score";
  }
  return "?";
}

std::string_view name_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::adamw: return "adamw";
  }
  return "?";
}

LrDecay parse_lr_decay(std::string_view key, std::string_view name) { return parse_choice(key, name, all_decays); }
ReshardAfterForward parse_reshard_after_forward(std::string_view key, std::string_view name) {
  return equal_but_for_case(name, "always") ? ReshardAfterForward::microbatch : parse_choice(key, name, all_reshards);
}

template <>
DeviceChoice parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<DeviceChoice>(key, name, all_devices);
}
template <>
CommBackend parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<CommBackend>(key, name, all_backends);
}
template <>
RankBinding parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<RankBinding>(key, name, all_bindings);
}
template <>
AsyncMode parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<AsyncMode>(key, name, all_async_modes);
}
template <>
MatmulPrecision parse_exactly(std::string_view key, std::string_view name) {
  constexpr std::string_view not_yet[] = {"medium"};
  return parse_exact_choice<MatmulPrecision>(key, name, all_precisions, not_yet);
}
template <>
LinearDType parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<LinearDType>(key, name, all_linear_dtypes);
}
template <>
AttentionKernels parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<AttentionKernels>(key, name, all_attention_kernels);
}
template <>
Packing parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<Packing>(key, name, all_packings);
}
template <>
CapacityOrder parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<CapacityOrder>(key, name, all_capacity_orders);
}
template <>
ExpertDispatch parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<ExpertDispatch>(key, name, all_dispatches);
}
template <>
ContextMethod parse_exactly(std::string_view key, std::string_view name) {
  if (name == "p2p") return ContextMethod::ring;
  if (name == "a2a") return ContextMethod::ulysses;
  if (name == "a2a+p2p") return ContextMethod::ulysses_ring;
  return parse_exact_choice<ContextMethod>(key, name, all_context_methods);
}
template <>
LoadBalancer parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<LoadBalancer>(key, name, load_balancers);
}
template <>
OptimizerKind parse_exactly(std::string_view key, std::string_view name) {
  return parse_exact_choice<OptimizerKind>(key, name, all_optimizers);
}

LoadExclusions parse_load_exclusions(std::string_view key, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known = {"optimizer", "lr_scheduler", "dataloader"};
  LoadExclusions exclusions;
  for (const std::string& name : names) {
    require(std::ranges::find(known, name) != known.end(), "{} has '{}', which is not one of {}; did you mean {}?", key,
            name, fmt::join(known, ", "), closest_name(name, known));
    (name == "optimizer"    ? exclusions.optimizer
     : name == "dataloader" ? exclusions.dataloader
                            : exclusions.lr_scheduler) = true;
  }
  return exclusions;
}

std::vector<std::string> names_of(const LoadExclusions& exclusions) {
  std::vector<std::string> names;
  if (exclusions.optimizer) names.emplace_back("optimizer");
  if (exclusions.lr_scheduler) names.emplace_back("lr_scheduler");
  if (exclusions.dataloader) names.emplace_back("dataloader");
  return names;
}

}  // namespace echelon
