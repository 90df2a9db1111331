#include "engine/generation/generate.h"

#include "backend/backend.h"
#include "base/error.h"
#include "blueprint/generation_plan.h"
#include "checkpoint/model_reader.h"
#include "comm/thread/thread_world.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/device/rank_cores.h"
#include "nn/decoder/decode.h"
#include "nn/decoder/head.h"
#include "tensor/arena.h"

#include <algorithm>

namespace echelon {
namespace {

/// A model in memory that continues one sequence.
class Decoder {
 public:
  Decoder(GenerationModel model, std::int64_t num_prompt_tokens, RankDevice& device)
      : model_(std::move(model)),
        plan_(generation_memory(model_, num_prompt_tokens)),
        arena_(plan_.num_bytes(), device.memory()),
        ops_(device.ops()),
        mesh_(device.mesh()) {
    const LayerOptions& options = model_.options;
    for (int block = 0; block < static_cast<int>(options.model.num_hidden_layers); ++block)
      caches_.push_back({tensor({BufferRole::key_cache, block}, options.dtype, kv_cache_sizes(options)),
                         tensor({BufferRole::value_cache, block}, options.dtype, kv_cache_sizes(options))});
    const Sizes table = model_.stage->rope_table_sizes();
    const DType wide = accumulate_dtype(options.dtype);
    if (table.num_dims() > 0)
      model_.stage->bind_rope_tables(ops_, tensor({BufferRole::rope_cos}, wide, table),
                                     tensor({BufferRole::rope_sin}, wide, table));
  }

  void load(const ModelReader& reader) {
    std::vector<std::byte> host;
    int index = 0;
    for (Param* param : all_params(*model_.stage)) {
      param->value = tensor({BufferRole::param, index++}, model_.options.dtype, param->local_sizes());
      host.resize(static_cast<std::size_t>(param->value.num_bytes()));
      reader.read(param->name, param->slice, param->value.dtype, host.data());
      ops_.upload(param->value, host.data());
    }
    if (const Sizes sizes = router_bias_sizes(model_.options.model); sizes.num_dims() > 0) {
      std::vector<float> bias = reader.router_bias();
      bias.resize(static_cast<std::size_t>(sizes.num_elements()));
      router_.bias = tensor({BufferRole::router_bias}, DType::float32, sizes);
      ops_.upload(router_.bias, bias.data());
    }
  }

  /// The logits after `tokens`, which continue all tokens before.
  std::vector<double> decode(const std::vector<std::int32_t>& tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const PlannedBuffer& scratch = plan_.at({BufferRole::workspace});
    Stack workspace = arena_.region(scratch.offset, scratch.num_bytes);
    Context context = {ops_, mesh_, workspace, {}};
    context.microbatch.router = router_;
    const Tensor device_tokens = arena_.tensor(plan_.at({BufferRole::tokens}).offset, DType::int32, {count});
    const Tensor logits = tensor({BufferRole::logits}, DType::float32, {1, model_.stage->head().num_columns()});
    ops_.upload(device_tokens, tokens.data());
    model_.stage->decode(
        context, {.tokens = device_tokens, .first_position = num_decoded_, .caches = caches_, .logits = logits});
    num_decoded_ += count;
    std::vector<float> host(static_cast<std::size_t>(model_.stage->head().num_columns()));
    ops_.download(host.data(), logits);
    return {host.begin(), host.begin() + model_.options.model.vocab_size};
  }

 private:
  Tensor tensor(BufferKey key, DType dtype, const Sizes& sizes) {
    return arena_.tensor(plan_.at(key).offset, dtype, sizes);
  }

  GenerationModel model_;
  MemoryPlan plan_;
  Arena arena_;
  Ops& ops_;
  Mesh& mesh_;
  std::vector<KvCache> caches_;
  RouterState router_;
  std::int64_t num_decoded_ = 0;
};

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  if (!prompt.empty()) return tokenizer.encode(prompt);
  const auto begin = tokenizer.end_of_document();
  require(begin.has_value(), "the prompt is empty and the tokenizer has no token between documents; give a prompt");
  return {*begin};
}

}  // namespace

Generation generate(const GenerateOptions& options) {
  validate(options.sampling);
  require(options.max_new_tokens >= 1, "max_new_tokens = {} is below 1 (use 1)", options.max_new_tokens);
  const ModelReader reader(options.model);
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_in(options.model).string());
  require(tokenizer.vocab_size() <= reader.spec().vocab_size,
          "the tokenizer of '{}' has {} tokens, but the model's vocab_size is {}", options.model.string(),
          tokenizer.vocab_size(), reader.spec().vocab_size);
  std::vector<std::int32_t> tokens = prompt_tokens(tokenizer, options.prompt);
  const auto num_prompt_tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t most = reader.spec().max_position_embeddings;
  require(num_prompt_tokens < most, "the prompt has {} tokens, which leaves no room in the model's {} positions",
          num_prompt_tokens, most);
  const std::int64_t num_positions = num_prompt_tokens + std::min(most - num_prompt_tokens, options.max_new_tokens);
  Sampler sampler(options.sampling);
  const std::unique_ptr<Backend> backend = open_backend(options.device, "--device");

  Generation generation = {
      .text = {}, .num_prompt_tokens = num_prompt_tokens, .device = {}, .note = reader.unused_tensors_note()};
  run_thread_ranks(MeshShape(), {}, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device =
        backend->open(host, {.num_threads = claim_cores(RunConfig(), host).num_threads});
    generation.device = device->description();
    Decoder decoder(make_generation_model(reader.spec(), DType::float32, num_positions), num_prompt_tokens, *device);
    decoder.load(reader);
    while (num_prompt_tokens + generation.num_new_tokens < num_positions) {
      std::vector<double> logits = decoder.decode(tokens);
      logits.resize(static_cast<std::size_t>(std::min(tokenizer.vocab_size(), reader.spec().vocab_size)));
      const std::int32_t token = sampler.draw(logits);
      if (token == tokenizer.end_of_document()) break;
      generation.text += tokenizer.bytes(token);
      ++generation.num_new_tokens;
      if (options.on_text) options.on_text(tokenizer.bytes(token));
      tokens = {token};
    }
  });
  return generation;
}

}  // namespace echelon
