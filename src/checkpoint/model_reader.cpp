#include "checkpoint/model_reader.h"

#include "base/error.h"
#include "checkpoint/model_config.h"
#include "checkpoint/region_io.h"

#include <cstring>

namespace echelon {
namespace {

// Base models are saved without the prefix that the same model with a head has.
const WeightFolder::Entry* find_tensor(const WeightFolder& weights, std::string_view name) {
  const auto* entry = weights.find(name);
  if (entry != nullptr || !(name.starts_with("transformer.") || name.starts_with("model."))) return entry;
  return weights.find(name.substr(name.find('.') + 1));
}

FileShape shape_of(const Sizes& sizes) {
  FileShape shape;
  for (int dim = 0; dim < sizes.num_dims(); ++dim) shape.push_back(sizes[dim]);
  return shape;
}

}  // namespace

ModelReader::ModelReader(const std::filesystem::path& folder)
    : folder_(folder), spec_(read_model_spec(folder)), weights_(folder), parameters_(placed_parameters(spec_)) {
  for (const NamedShape& expected : file_tensors(spec_)) {
    const auto* entry = find_tensor(weights_, expected.name);
    require(entry != nullptr, "{} has no tensor '{}' {}, which its config.json asks for", folder_.string(),
            expected.name, to_string(expected.sizes));
    require(entry->tensor.shape == shape_of(expected.sizes), "{}: tensor '{}' is {}, but config.json makes it {}",
            entry->path.string(), expected.name, to_string(entry->tensor.shape), to_string(expected.sizes));
    require(entry->tensor.dtype.has_value() && entry->tensor.dtype != DType::int32,
            "{}: tensor '{}' has dtype {}; weights are F32, F64, BF16 or F16", entry->path.string(), expected.name,
            entry->tensor.format);
  }
}

void ModelReader::read(const Param& param, DType dtype, void* out) const {
  const auto found = parameters_.find(param.name);
  require(found != parameters_.end(), "{} has no parameter '{}'", folder_.string(), param.name);
  const auto& [sizes, rectangle] = found->second;
  const WeightFolder::Entry& entry = *find_tensor(weights_, rectangle.tensor);
  require(param.global_sizes == sizes, "{}: '{}' is {} (tensor '{}' {}), but the model that reads it has {}",
          entry.path.string(), param.name, to_string(sizes), rectangle.tensor, to_string(entry.tensor.shape),
          to_string(param.global_sizes));
  const FileRegion region = file_region(param, rectangle);
  if (region.is_padded)
    std::memset(out, 0, static_cast<std::size_t>(param.local_sizes().num_elements() * size_of(dtype)));
  read_region(File::open_to_read(entry.path), entry.tensor, region, dtype, out);
}

}  // namespace echelon
