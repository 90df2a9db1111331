#include "blueprint/generation_plan.h"

#include "base/error.h"
#include "comm/trace/trace_mesh.h"
#include "nn/decoder/decode.h"
#include "nn/decoder/head.h"
#include "ops/trace/trace_ops.h"

#include <algorithm>

namespace echelon {
namespace {

/// Sizes without data, until a decoder binds what it has loaded.
void bind_sizes(GenerationModel& model) {
  const LayerOptions& options = model.options;
  for (Param* param : all_params(*model.stage)) param->value = {nullptr, options.dtype, param->local_sizes()};
  const Sizes table = model.stage->rope_table_sizes();
  if (table.num_dims() == 0) return;
  TraceOps ops;
  const Tensor traced_table = {nullptr, accumulate_dtype(options.dtype), table};
  model.stage->bind_rope_tables(ops, traced_table, traced_table);
}

/// Scratch of a call with `num_tokens` new tokens.
std::int64_t decode_workspace_bytes(const GenerationModel& model, std::int64_t num_tokens) {
  TraceOps ops;
  const LayerOptions& options = model.options;
  TraceMesh mesh(generation_mesh(options.ep), options.ep_rank);
  Stack workspace;
  Context context = {ops, mesh, workspace, {}};
  context.microbatch.router.bias = {nullptr, DType::float32, router_bias_sizes(options.model)};
  const Tensor cache = {nullptr, options.dtype, kv_cache_sizes(options)};
  const std::vector<KvCache> caches(static_cast<std::size_t>(options.model.num_hidden_layers), {cache, cache});
  const Tensor logits = {nullptr, accumulate_dtype(options.dtype), {1, model.stage->head().num_columns()}};
  model.stage->decode(context, {.tokens = {nullptr, DType::int32, {num_tokens}}, .caches = caches, .logits = logits});
  return workspace.peak_bytes();
}

}  // namespace

GenerationModel make_generation_model(const ModelSpec& model, DType dtype, std::int64_t num_positions,
                                      const GenerationRank& rank) {
  require(num_positions <= model.max_position_embeddings,
          "{} positions are more than the model's max_position_embeddings = {}", num_positions,
          model.max_position_embeddings);
  GenerationModel made;
  made.options = {.model = model,
                  .dtype = dtype,
                  .grad_dtype = accumulate_dtype(dtype),
                  .ep = rank.ep,
                  .ep_rank = rank.ep_rank,
                  .seq_len = num_positions};
  made.stage = std::make_unique<Stage>(
      made.options, StageLayers{.num_layers = model.num_hidden_layers, .has_embedding = true, .has_head = true});
  return made;
}

std::vector<Param*> all_params(Stage& stage) {
  std::vector<Param*> params;
  for (int unit = 0; unit <= stage.num_units(); ++unit)
    for (Param* param : stage.unit_params(unit)) params.push_back(param);
  return params;
}

MemoryPlan generation_memory(GenerationModel& model, std::int64_t num_prompt_tokens) {
  bind_sizes(model);
  std::vector<PlannedBuffer> buffers;
  const auto add = [&](BufferKey key, MemoryCategory category, DType dtype, const Sizes& sizes) {
    const std::int64_t used_bytes = sizes.num_elements() * size_of(dtype);
    buffers.push_back({.key = key,
                       .category = category,
                       .num_bytes = aligned(used_bytes),
                       .padding_bytes = aligned(used_bytes) - used_bytes});
  };
  const LayerOptions& options = model.options;
  const DType wide = accumulate_dtype(options.dtype);
  int index = 0;
  for (const Param* param : all_params(*model.stage))
    add({BufferRole::param, index++}, MemoryCategory::parameters, options.dtype, param->local_sizes());
  const Sizes table = model.stage->rope_table_sizes();
  for (const BufferRole role : {BufferRole::rope_cos, BufferRole::rope_sin})
    if (table.num_dims() > 0) add({role}, MemoryCategory::constants, wide, table);
  for (int block = 0; block < static_cast<int>(options.model.num_hidden_layers); ++block)
    for (const BufferRole role : {BufferRole::key_cache, BufferRole::value_cache})
      add({role, block}, MemoryCategory::activations, options.dtype, kv_cache_sizes(options));
  if (const Sizes bias = router_bias_sizes(options.model); bias.num_dims() > 0)
    add({BufferRole::router_bias}, MemoryCategory::constants, DType::float32, bias);
  add({BufferRole::tokens}, MemoryCategory::batch, DType::int32, {num_prompt_tokens});
  add({BufferRole::logits}, MemoryCategory::boundaries, wide, {1, model.stage->head().num_columns()});
  const std::int64_t workspace =
      std::max(decode_workspace_bytes(model, num_prompt_tokens), decode_workspace_bytes(model, 1));
  buffers.push_back({.key = {BufferRole::workspace}, .category = MemoryCategory::workspace, .num_bytes = workspace});
  return MemoryPlan(std::move(buffers));
}

}  // namespace echelon
