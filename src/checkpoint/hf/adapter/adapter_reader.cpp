#include "checkpoint/hf/adapter/adapter_reader.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "checkpoint/hf/slice_io.h"
#include "checkpoint/safetensors/convert_values.h"
#include "files/folder_links.h"

#include <cstring>
#include <set>
#include <vector>

namespace echelon {

AdapterReader::AdapterReader(std::filesystem::path folder, const ModelSpec& model)
    : folder_(std::move(folder)), config_(read_adapter_config(folder_, model)), is_tied_(model.tie_word_embeddings) {
  const std::filesystem::path path = path_in_folder(folder_, adapter_weights_name);
  tensors_ = read_safetensors_header(path);
  config_.names = names_of_adapters(tensors_);
  parameters_ = placed_adapters(model, config_.lora, config_.names);
  std::set<std::string> known;
  for (const auto& [name, sizes] : adapter_tensors(model, config_.lora, config_.names)) {
    known.insert(name);
    const auto found = tensors_.find(name);
    require(found != tensors_.end(), "{} has no tensor '{}' {}: it is an adapter for another model", path.string(),
            name, to_string(sizes));
    require(found->second.shape == file_shape(sizes),
            "{}: tensor '{}' is {}, but {} and the model make it {}: it is an adapter for another model or rank",
            path.string(), name, to_string(found->second.shape), adapter_config_name, to_string(sizes));
    require(found->second.dtype.has_value() && found->second.dtype != DType::int32,
            "{}: tensor '{}' has dtype {}; weights are F32, F64, BF16 or F16", path.string(), name,
            found->second.format);
  }
  for (const auto& [name, tensor] : tensors_)
    require(known.contains(name), "{} has tensor '{}', which the model has no place for", path.string(),
            printable(name, 200));
}

std::map<std::string, DType> AdapterReader::dtypes() const {
  std::map<std::string, DType> dtypes;
  for (const auto& [name, tensor] : tensors_) dtypes[name] = *tensor.dtype;
  return dtypes;
}

void AdapterReader::read(const std::string& name, const TensorSlice& slice, DType dtype, void* out) const {
  const auto found = parameters_.find(name);
  require(found != parameters_.end() && found->second.sizes == slice.global_sizes(), "{} has no adapter '{}' {}",
          folder_.string(), name, to_string(slice.global_sizes()));
  if (slice.is_padded()) std::memset(out, 0, static_cast<std::size_t>(slice.num_elements() * size_of(dtype)));
  const FilePlace& place = found->second.place;
  const File file = File::open_in_folder(folder_, std::string(adapter_weights_name));
  read_slice(file, tensors_.at(place.tensor), place, slice, dtype, out);
  const std::int64_t count = slice.num_elements();
  require(first_not_finite(dtype, out, count) == count, "{}: tensor '{}' holds a value that is NaN or infinite in {}",
          folder_.string(), place.tensor, name_of(dtype));
  if (name == tied_weight && is_tied_) require_same_head(slice, dtype, out);
}

void AdapterReader::require_same_head(const TensorSlice& slice, DType dtype, const void* embedding) const {
  std::vector<std::byte> head(static_cast<std::size_t>(slice.num_elements() * size_of(dtype)));
  read(std::string(head_weight), slice, dtype, head.data());
  require(std::memcmp(head.data(), embedding, head.size()) == 0,
          "{}: tensors '{}' and '{}' differ, but the model ties them", folder_.string(),
          parameters_.at(std::string(head_weight)).place.tensor, parameters_.at(std::string(tied_weight)).place.tensor);
}

}  // namespace echelon
