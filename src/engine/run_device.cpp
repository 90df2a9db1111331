#include "engine/run_device.h"

#include "base/error.h"
#include "engine/device/device_memory.h"
#include "engine/device/machine_memory.h"
#include "engine/warm_up.h"
#include "nn/head_split.h"
#include "report/system_memory.h"
#include "spec/groups.h"
#include "spec/machine/host_spec.h"

namespace echelon {
namespace {

// Those of a step's actions and of its layers.
std::vector<Group> groups_of(const RunConfig& config) {
  std::vector<Group> groups = {step_group, data_group, shard_group,   replicate_group,
                               tp_group,   cp_group,   pipeline_group};
  if (config.model.tie_word_embeddings) groups.push_back(tied_group);
  const int replicas = kv_replicas(config.model, config.mesh_shape().degree(Axis::tp));
  if (replicas > 1) groups.push_back(kv_replica_group(replicas));
  const int head_ranks = key_exchange(config.parallelism).head_ranks;
  if (head_ranks > 1 && head_ranks < config.parallelism.context_parallel_degree)
    for (const Group& group : {cp_heads_group(head_ranks), cp_ring_group(head_ranks)}) groups.push_back(group);
  if (config.model.has_experts()) {
    const int num_ranks = num_expert_ranks(config.parallelism), inside = inner_expert_ranks(config);
    for (const Group& group : {expert_holders_group(num_ranks), sequence_group}) groups.push_back(group);
    if (inside > 1)
      for (const Group& group : {expert_inner_group(inside), expert_across_group(num_ranks, inside)})
        groups.push_back(group);
    else if (num_ranks > 1)
      groups.push_back(expert_group(num_ranks));
  }
  return groups;
}

/// Its facts, with the memory that is left when all ranks that share it have connected.
DeviceFacts with_free_memory(const RankDevice& device, Mesh& host) {
  host.comm({world_axes}).barrier().wait();
  DeviceFacts facts = device.facts();
  facts.memory_bytes = device.free_memory_bytes();
  return facts;
}

}  // namespace

std::unique_ptr<RankDevice> open_device(Backend& backend, const Blueprint& blueprint, Mesh& host, int num_threads,
                                        ProductRequest products) {
  const RunConfig& config = blueprint.config();
  const TrainingConfig& t = config.training;
  require(!t.linear_dtype || t.dtype != DType::float64 || backend.kind() == DeviceKind::cpu,
          "training.linear_dtype = '{}' with training.dtype = 'float64' is supported on CPUs only (use 'float32')",
          name_of(t.linear_dtype));
  products.dtype = t.dtype;
  std::unique_ptr<RankDevice> device =
      backend.open(host, {.num_threads = num_threads,
                          .deterministic = config.training.deterministic,
                          .allows_tf32 = config.training.float32_matmul_precision == MatmulPrecision::high,
                          .needs_float8 = config.training.linear_dtype.has_value(),
                          .attention = config.training.attention,
                          .backend = config.comm.backend,
                          .timeout_seconds = config.comm.timeout_seconds,
                          .products = std::move(products)});
  device->mesh().connect(groups_of(config));
  if (backend.kind() != DeviceKind::cpu) require_device_memory(blueprint, with_free_memory(*device, host), host);
  if (device->needs_warm_up()) warm_up(blueprint, *device);
  return device;
}

void use_arena(RankDevice& device, const RankMemory& memory) {
  const Arena& arena = memory.arena();
  std::byte* const base = arena.num_bytes() > 0 ? arena.tensor(0, DType::int32, {1}).data : nullptr;
  device.use_arena(base, arena.num_bytes(), memory.plan());
}

ProductRequest product_request(const RunConfig& config, const ProductNames& saved) {
  ProductRequest request = {.dtype = config.training.dtype, .saved = saved};
  if (config.training.device == DeviceChoice::cuda || config.metrics.machine.empty()) return request;
  request.machine_file = config.metrics.machine;
  request.of_machine = read_host(config.metrics.machine).products;
  return request;
}

WorkRecorder* recorder_of(RankDevice& device, const RunConfig& config) {
  if (!config.training.cuda_graphs) return nullptr;
  require(device.recorder() != nullptr,
          "training.cuda_graphs = true needs a GPU of its own for each rank, and rank {} computes on {} (use false)",
          device.mesh().rank(), device.description());
  require(config.parallelism.pipeline_parallel_degree == 1,
          "training.cuda_graphs = true is not supported with pipelines, whose transfers might deadlock within a graph, "
          "and parallelism.pipeline_parallel_degree = {} (use cuda_graphs = false)",
          config.parallelism.pipeline_parallel_degree);
  return device.recorder();
}

RunConfig with_device(RunConfig config, DeviceKind found) {
  if (found == DeviceKind::cuda) config.training.device = DeviceChoice::cuda;
  return config;
}

void require_host_memory(const Blueprint& blueprint, const RankPlacement& placement, const Backend& backend) {
  if (backend.kind() == DeviceKind::cpu) require_memory(blueprint, placement.num_ranks_on_host, system_memory_bytes());
}

}  // namespace echelon
