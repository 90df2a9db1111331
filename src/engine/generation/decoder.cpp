#include "engine/generation/decoder.h"

#include "nn/decoder/head.h"

namespace echelon {

Decoder::Decoder(const ModelSpec& model, DecoderRoom room, RankDevice& device)
    : room_(room),
      model_(make_generation_model(model, DType::float32, room.num_positions,
                                   {device.mesh().shape().num_ranks(), device.mesh().rank()})),
      plan_(generation_memory(model_, room.num_prompt_tokens)),
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

void Decoder::load(const ModelReader& reader) {
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

std::vector<double> Decoder::decode(const std::vector<std::int32_t>& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const PlannedBuffer& scratch = plan_.at({BufferRole::workspace});
  Stack workspace = arena_.region(scratch.offset, scratch.num_bytes);
  Context context = {ops_, mesh_, workspace, {}};
  context.microbatch.router = router_;
  const Tensor device_tokens = arena_.tensor(plan_.at({BufferRole::tokens}).offset, DType::int32, {count});
  const Tensor logits = tensor({BufferRole::logits}, DType::float32, {1, model_.stage->head().num_columns()});
  ops_.upload(device_tokens, tokens.data());
  model_.stage->decode(context,
                       {.tokens = device_tokens, .first_position = num_decoded_, .caches = caches_, .logits = logits});
  num_decoded_ += count;
  std::vector<float> host(static_cast<std::size_t>(model_.stage->head().num_columns()));
  ops_.download(host.data(), logits);
  return {host.begin(), host.begin() + model_.options.model.vocab_size};
}

}  // namespace echelon
