#include "base/error.h"
#include "checkpoint/hf/generation_config.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

namespace echelon::fuzz {
namespace {

template <class Call>
void attempt(Call&& call) {
  try {
    call();
  } catch (const Error&) {
    return;
  }
}

void read_weights(const InputFolder& folder) {
  const ModelReader reader(folder.path());
  (void)reader.note();
  for (const NamedShape& parameter : global_parameters(reader.spec())) {
    const TensorSlice whole(parameter.sizes);
    const std::int64_t count = whole.num_elements();
    std::vector<float> out(static_cast<std::size_t>(count));
    attempt([&] { reader.read(parameter.name, whole, DType::float32, out.data()); });
    attempt([&] { reader.read(parameter.name, whole.elements({count / 3, count / 2}), DType::float32, out.data()); });
  }
}

}  // namespace

int model_folder(const std::uint8_t* data, std::size_t size) {
  static const InputFolder folder;
  std::string_view text = text_of(data, size);
  const std::string_view config = take_part(text);
  for (const char* name : {"config.json", "generation_config.json"}) folder.put(name, config);
  const bool is_raw = text.starts_with('!');
  if (is_raw) text.remove_prefix(1);
  std::string file;
  if (is_raw) {
    file = take_part(text);
  } else {
    file = header_bytes_of(std::string(take_part(text)));
    file += take_part(text);
  }
  for (const std::string_view name : {single_file_name, index_file_name}) folder.remove(name);
  folder.put(text.empty() ? single_file_name : "a.safetensors", file);
  if (!text.empty()) folder.put(index_file_name, text);
  const HeapBound bound(size);
  attempt([&] { (void)list_tensors(folder.path()); });
  attempt([&] { (void)read_training_seq_len(folder.path()); });
  attempt([&] { (void)read_capacity_factor(folder.path()); });
  attempt([&] { read_weights(folder); });
  attempt([&] { (void)generation_ends(folder.path()); });
  return 0;
}

}  // namespace echelon::fuzz
