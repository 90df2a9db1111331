// What generation uses of its arena is what its plan says, buffer by buffer.
#include "blueprint/generation_plan.h"
#include "blueprint/small_config.h"
#include "comm/thread/thread_world.h"
#include "nn/decoder/decode.h"
#include "nn/decoder/head.h"
#include "nn/decoder/stage.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

/// Tensors of a plan, each of the planned size, in an arena that is not a byte larger.
class PlannedTensors {
 public:
  explicit PlannedTensors(const MemoryPlan& plan) : plan_(plan), arena_(plan.num_bytes()) {}

  Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) {
    used_.insert(key);
    EXPECT_EQ(aligned(sizes.num_elements() * size_of(dtype)), plan_.at(key).num_bytes);
    return arena_.tensor(plan_.at(key).offset, dtype, sizes);
  }
  Stack workspace() {
    used_.insert({BufferRole::workspace});
    return arena_.region(plan_.at({BufferRole::workspace}).offset, plan_.at({BufferRole::workspace}).num_bytes);
  }
  [[nodiscard]] std::size_t num_used() const { return used_.size(); }

 private:
  const MemoryPlan& plan_;
  Arena arena_;
  std::set<BufferKey> used_;
};

void expect_generation_uses_its_plan(const ModelSpec& spec, DType dtype, std::int64_t num_prompt_tokens) {
  GenerationModel model = make_generation_model(spec, dtype, num_prompt_tokens + 3);
  const MemoryPlan plan = generation_memory(model, num_prompt_tokens);
  PlannedTensors memory(plan);
  std::int64_t most_workspace = 0;
  run_thread_ranks(MeshShape(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    const DType wide = accumulate_dtype(dtype);
    int index = 0;
    for (Param* param : all_params(*model.stage))
      ops->fill(param->value = memory.tensor({BufferRole::param, index++}, dtype, param->local_sizes()), 0.01);
    std::vector<KvCache> caches;
    for (int block = 0; block < static_cast<int>(spec.num_hidden_layers); ++block)
      caches.push_back({memory.tensor({BufferRole::key_cache, block}, dtype, kv_cache_sizes(model.options)),
                        memory.tensor({BufferRole::value_cache, block}, dtype, kv_cache_sizes(model.options))});
    const Sizes table = model.stage->rope_table_sizes();
    if (table.num_dims() > 0)
      model.stage->bind_rope_tables(*ops, memory.tensor({BufferRole::rope_cos}, wide, table),
                                    memory.tensor({BufferRole::rope_sin}, wide, table));
    const Tensor tokens = memory.tensor({BufferRole::tokens}, DType::int32, {num_prompt_tokens});
    const Tensor logits = memory.tensor({BufferRole::logits}, wide, {1, model.stage->head().num_columns()});
    std::fill_n(tokens.as<std::int32_t>(), num_prompt_tokens, 1);
    for (std::int64_t decoded = 0, count = num_prompt_tokens; decoded < num_prompt_tokens + 3;
         decoded += count, count = 1) {
      Stack workspace = memory.workspace();
      Context context = {*ops, mesh, workspace, {}};
      model.stage->decode(context, {.tokens = {tokens.data, DType::int32, {count}},
                                    .first_position = decoded,
                                    .caches = caches,
                                    .logits = logits});
      most_workspace = std::max(most_workspace, workspace.peak_bytes());
    }
  });
  EXPECT_EQ(most_workspace, plan.at({BufferRole::workspace}).num_bytes);
  EXPECT_EQ(memory.num_used(), plan.buffers().size());
}

TEST(GenerationMemory, IsUsedAsPlanned) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3})
    for (const DType dtype : {DType::float32, DType::bfloat16})
      for (const std::int64_t num_prompt_tokens : {1, 2, 13}) {
        ModelSpec spec = family_defaults(family);
        const ModelSpec sizes = testing::small_config().model;
        spec.hidden_size = sizes.hidden_size;
        spec.num_hidden_layers = 2;
        spec.num_attention_heads = sizes.num_attention_heads;
        spec.num_key_value_heads = family == Family::gpt2 ? sizes.num_attention_heads : 2;
        spec.head_dim = sizes.head_dim;
        spec.intermediate_size = 72;
        spec.vocab_size = 131;
        spec.max_position_embeddings = 32;
        expect_generation_uses_its_plan(spec, dtype, num_prompt_tokens);
      }
}

}  // namespace
}  // namespace echelon
