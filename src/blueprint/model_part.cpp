#include "blueprint/model_part.h"

#include "nn/head_split.h"

namespace echelon {
namespace {

LayerOptions layer_options(const RunConfig& config, const MeshShape& mesh, int rank) {
  LayerOptions options;
  options.model = config.model;
  options.dtype = parse_dtype(config.training.dtype);
  options.grad_dtype = config.training.grad_dtype.empty() ? accumulate_dtype(options.dtype) : parse_dtype(config.training.grad_dtype);
  options.num_sequences = config.training.micro_batch_size;
  options.seq_len = config.training.seq_len;
  options.tp = mesh.degree(Axis::tp);
  options.tp_rank = mesh.coordinate(rank, Axis::tp);
  options.sequence_parallel = config.parallelism.sequence_parallel && options.tp > 1;
  return options;
}

ShardOptions shard_options(const LayerOptions& layers, const MeshShape& mesh, int rank) {
  ShardOptions options;
  options.shard_degree = mesh.degree(Axis::dp_shard) * mesh.degree(Axis::cp);
  options.shard_index = mesh.coordinate(rank, Axis::dp_shard) * mesh.degree(Axis::cp) + mesh.coordinate(rank, Axis::cp);
  options.kv_replicas = kv_replicas(layers.model, layers.tp);
  options.is_first_copy = mesh.coordinate(rank, Axis::dp_replicate) == 0;
  options.dtype = layers.dtype;
  options.grad_dtype = layers.grad_dtype;
  return options;
}

}  // namespace

ModelPart make_model_part(const RunConfig& config, int rank) {
  const MeshShape mesh = config.mesh_shape();
  const ParallelConfig& parallelism = config.parallelism;
  ModelPart part;
  part.options = layer_options(config, mesh, rank);
  part.stage_index = mesh.coordinate(rank, Axis::pp);
  part.layers =
      stage_layout(config.model.num_hidden_layers, mesh.degree(Axis::pp), parallelism.pipeline_parallel_layout)[static_cast<std::size_t>(part.stage_index)];
  part.stage = std::make_unique<Stage>(part.options, part.layers);

  ShardOptions options = shard_options(part.options, mesh, rank);
  for (int unit = 0; unit < part.stage->num_units(); ++unit) part.units.emplace_back(part.stage->unit_params(unit), options);
  if (part.stage->has_tied_weight()) {
    // The last stage's copy of the tied weight is the first stage's, updated alike.
    options.is_first_copy = options.is_first_copy && part.is_first();
    part.units.emplace_back(part.stage->unit_params(part.stage->num_units()), options);
  }
  return part;
}

std::vector<Param*> ModelPart::params() const {
  std::vector<Param*> params;
  for (const ShardedUnit& unit : units)
    for (const Bucket& bucket : unit.buckets())
      for (const Segment& segment : bucket.segments) params.push_back(segment.param);
  return params;
}

std::vector<const Param*> ModelPart::written_params() const {
  std::vector<const Param*> params;
  for (const ShardedUnit& unit : units)
    for (const Bucket& bucket : unit.buckets())
      for (const Segment& segment : bucket.segments)
        if (unit.options().is_first_copy && unit.options().shard_index == 0 && segment.param->is_first_copy) params.push_back(segment.param);
  return params;
}

}  // namespace echelon
