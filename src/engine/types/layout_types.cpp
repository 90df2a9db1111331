#include "engine/types/layout_types.h"

#include "base/error.h"
#include "blueprint/traffic/transfer_check.h"
#include "comm/typed/typed_mesh.h"
#include "data/unread_batches.h"
#include "engine/types/named_memory.h"
#include "nn/head_split.h"
#include "ops/typed/typed_ops.h"

namespace echelon {
namespace {

int kv_replicas_of(const Blueprint& blueprint) {
  return kv_replicas(blueprint.config().model, blueprint.mesh().degree(Axis::tp));
}

ExpertRanks expert_ranks_of(const Blueprint& blueprint) {
  const ParallelConfig& p = blueprint.config().parallelism;
  return {.num_ranks = num_expert_ranks(p),
          .inside = inner_expert_ranks(blueprint.config()),
          .divide_features = num_feature_ranks(p) > 1};
}

int head_ranks_of(const Blueprint& blueprint) { return key_exchange(blueprint.config().parallelism).head_ranks; }

}  // namespace

void check_layout_types(const Blueprint& blueprint) {
  for (const int rank : representative_ranks(blueprint.mesh(), kv_replicas_of(blueprint), head_ranks_of(blueprint),
                                             expert_ranks_of(blueprint).num_ranks))
    check_layout_types(blueprint, rank);
}

void rehearse(const Blueprint& blueprint) {
  if (const std::vector<std::string> faults = check_transfers(blueprint); !faults.empty())
    throw Failure(faults.front());
  const RunConfig rehearsed = for_rehearsal(blueprint.config());
  rehearsed == blueprint.config() ? check_layout_types(blueprint) : check_layout_types(Blueprint(rehearsed));
}

RunConfig for_rehearsal(RunConfig config) {
  const std::int64_t enough = 4 * config.parallelism.pipeline_parallel_degree;
  const bool is_long = config.num_microbatches() > enough && config.parallelism.pipeline_parallel_schedule_csv.empty();
  if (is_long)
    config.training.global_batch_size = enough * config.training.micro_batch_size * config.data_parallel_degree();
  return config;
}

void check_layout_types(const Blueprint& blueprint, int rank, const Interpose& interpose) {
  const RankAxes axes(blueprint.mesh(), rank, kv_replicas_of(blueprint), head_ranks_of(blueprint),
                      expert_ranks_of(blueprint));
  if (axes.all().empty()) return;
  TypedMemory memory;
  TypedOps typed_ops(memory, axes);
  TypedMesh typed_mesh(blueprint.mesh(), memory, axes, boundary_type(blueprint.config()));
  const std::unique_ptr<RankInterposer> interposer = interpose ? interpose(typed_ops, typed_mesh) : nullptr;
  Ops& ops = interposer ? interposer->ops() : typed_ops;
  Mesh& mesh = interposer ? interposer->mesh() : typed_mesh;
  RankRun run(blueprint, mesh, ops, bare_addresses(), nullptr, bare_addresses());
  if (interposer) interposer->attach(run);
  NamedParams params(run, axes, memory);
  name_scalars(run, blueprint.config(), memory);
  const UnreadBatches batches;
  run.step().observe_actions(params);
  try {
    const ProgramKind kind = blueprint.program_kinds().back() == ProgramKind::training_with_snapshot
                                 ? ProgramKind::training_with_snapshot
                                 : ProgramKind::training;
    params.watch(kind);
    run.step().run(kind, training_input(blueprint.config(), batches, 1, LossScaler(blueprint.config())));
    params.require_counted();
    params.require_as_before();
    params.watch(ProgramKind::evaluation);
    run.step().run(ProgramKind::evaluation, {.batches = &batches, .adamw = {}});
  } catch (const Error& error) {
    throw Failure(fmt::format("layout types of rank {}: {}", rank, error.what()));
  }
}

}  // namespace echelon
