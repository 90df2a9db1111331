#include "checkpoint/convert_model.h"

#include "base/error.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

/// dtype_of(parameter): that in which its values are moved.
template <class Weights, class DTypeOf>
void move_weights(const ModelSpec& model, const Weights& weights, ModelWriter& writer, DTypeOf&& dtype_of) {
  constexpr std::int64_t chunk = 1 << 22;
  std::vector<std::byte> values;
  for (const NamedShape& parameter : global_parameters(model)) {
    const TensorSlice whole(parameter.sizes);
    const DType dtype = dtype_of(parameter.name);
    for (std::int64_t first = 0; first < whole.num_elements(); first += chunk) {
      const TensorSlice part = whole.elements({first, std::min(chunk, whole.num_elements() - first)});
      values.resize(static_cast<std::size_t>(part.num_elements() * size_of(dtype)));
      weights.read(parameter.name, part, dtype, values.data());
      writer.write(parameter.name, part, dtype, values.data());
    }
  }
}

void convert_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::optional<DType> dtype) {
  const SavedWeights weights(checkpoint);
  const RunConfig& config = weights.config();
  const RunScalars& scalars = weights.manifest().scalars;
  weights.verify_copies();
  const bool has_tokenizer = std::ranges::any_of(
      weights.manifest().copies, [](const Manifest::Copy& copy) { return copy.name == checkpoint_tokenizer_name; });
  const DType written = dtype.value_or(config.training.dtype);
  ModelWriter writer({.folder = folder,
                      .model = config.model,
                      .dtype = written,
                      .tokenizer = has_tokenizer ? checkpoint / checkpoint_tokenizer_name : std::filesystem::path(),
                      .source = config.checkpoint.initial_load_path,
                      .training = {.seq_len = scalars.seq_len, .steps = scalars.step}});
  writer.begin();
  move_weights(config.model, weights, writer, [&](const std::string&) { return written; });
  writer.write_router_bias(weights.router_bias());
  writer.finish();
}

DType most_frequent(const std::map<std::string, DType>& dtypes) {
  std::map<DType, int> counts;
  for (const auto& [name, dtype] : dtypes) ++counts[dtype];
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

void convert_folder(const std::filesystem::path& source, const std::filesystem::path& folder,
                    std::optional<DType> dtype) {
  const HuggingFaceReader reader(source);
  std::map<std::string, DType> dtypes;
  if (!dtype) dtypes = reader.dtypes();
  ModelWriter writer({.folder = folder,
                      .model = reader.spec(),
                      .dtype = dtype ? *dtype : most_frequent(dtypes),
                      .source = source,
                      .dtypes = dtypes});
  writer.begin();
  const auto places = placed_parameters(reader.spec());
  move_weights(reader.spec(), reader, writer, [&](const std::string& parameter) {
    if (dtype) return *dtype;
    const std::vector<std::string> tensors = places.at(parameter).tensors();
    for (const std::string& tensor : tensors)
      require(dtypes.at(tensor) == dtypes.at(tensors[0]),
              "{}: tensor '{}' has dtype {}, but '{}' has {}: the experts of a layer have one (use --dtype)",
              source.string(), tensor, name_of(dtypes.at(tensor)), tensors[0], name_of(dtypes.at(tensors[0])));
    return dtypes.at(tensors[0]);
  });
  writer.write_router_bias(reader.router_bias());
  writer.finish();
}

}  // namespace

void convert_model(const std::filesystem::path& source, const std::filesystem::path& folder,
                   std::optional<DType> dtype) {
  require(!has_target(folder) || (is_folder(folder) && list_folder(folder).empty()),
          "{} exists already; choose another name for the model", folder.string());
  if (is_checkpoint(source)) return convert_checkpoint(source, folder, dtype);
  require(is_folder(source) && has_target(source / "config.json"),
          "{} is not a checkpoint or a model: it has no manifest and no config.json; a run writes checkpoint/step-N",
          source.string());
  convert_folder(source, folder, dtype);
}

}  // namespace echelon
