#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"
#include "spec/families/family.h"

namespace echelon::fuzz {
namespace {

ModelSpec base() {
  ModelSpec model = family_defaults(Family::llama);
  model.hidden_size = 4;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.head_dim = 2;
  model.intermediate_size = 6;
  model.vocab_size = 8;
  model.max_position_embeddings = 8;
  return model;
}

void read_adapter(const InputFolder& folder) {
  const ModelSpec model = base();
  const AdapterReader reader(folder.path(), model);
  for (const NamedShape& parameter : saved_parameters(model, reader.config().lora)) {
    const TensorSlice whole(parameter.sizes);
    std::vector<float> out(static_cast<std::size_t>(whole.num_elements()));
    reader.read(parameter.name, whole, DType::float32, out.data());
  }
}

}  // namespace

int adapter(const std::uint8_t* data, std::size_t size) {
  static const InputFolder folder;
  std::string_view text = text_of(data, size);
  folder.put(adapter_config_name, take_part(text));
  std::string file =
      text.starts_with('!') ? std::string(text.substr(1)) : header_bytes_of(std::string(take_part(text)));
  if (!text.starts_with('!')) file += text;
  folder.put(adapter_weights_name, file);
  const HeapBound bound(size);
  for (const auto read : {+[] { read_adapter(folder); }, +[] { (void)read_adapter_base(folder.path()); }}) {
    try {
      read();
    } catch (const Error&) {
      continue;
    }
  }
  return 0;
}

}  // namespace echelon::fuzz
