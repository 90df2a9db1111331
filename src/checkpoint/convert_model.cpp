#include "checkpoint/convert_model.h"

#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_names.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/config/config_fields.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/model_tokenizer.h"
#include "checkpoint/state/saved_config.h"
#include "files/file.h"

#include <algorithm>
#include <vector>

namespace echelon {
namespace {

/// dtype_of(parameter): that in which its values are moved.
template <class Weights, class DTypeOf>
void move_weights(const std::vector<NamedShape>& parameters, const Weights& weights, ModelWriter& writer,
                  DTypeOf&& dtype_of) {
  constexpr std::int64_t chunk = 1 << 22;
  std::vector<std::byte> values;
  for (const NamedShape& parameter : parameters) {
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
                        const ConvertOptions& options) {
  const SavedWeights weights(checkpoint);
  const RunConfig& config = weights.config();
  const RunScalars& scalars = weights.manifest().scalars;
  weights.verify_copies();
  const DType written = options.dtype.value_or(config.training.dtype);
  ModelWriter writer({.folder = folder,
                      .model = config.model,
                      .dtype = written,
                      .tokenizer = tokenizer_of_run(checkpoint, weights.manifest(), config),
                      .special_tokens = options.special_tokens,
                      .source = config.checkpoint.initial_load_path,
                      .training = {.seq_len = scalars.seq_len, .steps = scalars.step},
                      .text_only = options.text_only || config.checkpoint.text_only});
  writer.begin();
  move_weights(global_parameters(config.model), weights, writer, [&](const std::string&) { return written; });
  writer.write_router_bias(weights.router_bias());
  writer.finish();
}

struct SavedAdapters {
  const StateReader& reader;

  void read(const std::string& name, const TensorSlice& slice, DType dtype, std::byte* out) const {
    reader.read({.parameter = name, .state = "weight", .dtype = dtype, .slice = slice}, out);
  }
};

/// The adapters of a checkpoint, as its run would have written them.
void convert_adapters(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                      const ConvertOptions& options) {
  require(!options.text_only, "{} has adapters alone; leave out --text-only", checkpoint.string());
  const StateReader reader(checkpoint);
  const Manifest& manifest = reader.manifest();
  const RunConfig config = config_of(manifest, checkpoint);
  ModelWriter writer({.folder = folder,
                      .model = config.model,
                      .dtype = options.dtype.value_or(config.training.dtype),
                      .source = config.checkpoint.initial_load_path,
                      .text_only = config.checkpoint.text_only,
                      .adapter = AdapterConfig{.lora = config.lora,
                                               .base = config.checkpoint.initial_load_path,
                                               .base_digest = manifest.base,
                                               .steps = manifest.scalars.step,
                                               .source = config.lora.initial_load_path}});
  writer.begin();
  const std::vector<NamedShape> parameters = saved_parameters(config.model, config.lora);
  for (const NamedShape& parameter : parameters) reader.require_parameter(parameter.name, parameter.sizes);
  move_weights(parameters, SavedAdapters{reader}, writer, [](const std::string&) { return DType::float64; });
  writer.finish();
}

DType most_frequent(const std::map<std::string, DType>& dtypes) {
  std::map<DType, int> counts;
  for (const auto& [name, dtype] : dtypes) ++counts[dtype];
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

/// That which config.json says, if a tensor has it.
DType dtype_of(const std::filesystem::path& source, const std::map<std::string, DType>& dtypes) {
  const ConfigFields config(source / "config.json");
  for (const char* key : {"dtype", "torch_dtype"})
    for (const auto& [name, dtype] : dtypes)
      if (config.is_text(key) && config.text(key) == name_of(dtype)) return dtype;
  return most_frequent(dtypes);
}

/// Adapters with everything that PEFT's folder has.
void convert_adapter_folder(const std::filesystem::path& source, const std::filesystem::path& folder,
                            const ConvertOptions& options) {
  require(options.merged.empty() && !options.text_only && !options.upcycling.exists(),
          "{} has adapters alone, which only --dtype changes; use echelon convert BASE {} --merge {} for a model",
          source.string(), folder.string(), source.string());
  const ModelSpec model = read_model_spec(source);
  const AdapterReader reader(source, model);
  const std::map<std::string, DType> dtypes = options.dtype ? std::map<std::string, DType>() : reader.dtypes();
  AdapterConfig adapter = reader.config();
  adapter.source = source;
  ModelWriter writer({.folder = folder,
                      .model = model,
                      .dtype = options.dtype ? *options.dtype : most_frequent(dtypes),
                      .dtypes = dtypes,
                      .adapter = adapter});
  writer.begin();
  const auto places = placed_adapters(model, adapter.lora, adapter.names);
  move_weights(saved_parameters(model, adapter.lora), reader, writer, [&](const std::string& name) {
    return options.dtype.value_or(reader.dtypes().at(places.at(name).place.tensor));
  });
  writer.finish();
}

/// `weights`: those that are written, of the model of `source`.
template <class Weights>
void convert_folder(const std::filesystem::path& source, const Weights& weights, const std::filesystem::path& folder,
                    const ConvertOptions& options) {
  const std::optional<DType> dtype = options.dtype;
  const HuggingFaceReader reader(source);
  require(!options.text_only || reader.num_other_tensors() > 0,
          "{} is a language model already, without other parts; leave out --text-only", source.string());
  std::map<std::string, DType> dtypes;
  if (!dtype) dtypes = reader.dtypes();
  ModelWriter writer({.folder = folder,
                      .model = reader.spec(),
                      .dtype = dtype ? *dtype : dtype_of(source, dtypes),
                      .source = source,
                      .dtypes = dtypes,
                      .text_only = options.text_only});
  writer.begin();
  const auto places = placed_parameters(reader.spec());
  move_weights(global_parameters(reader.spec()), weights, writer, [&](const std::string& parameter) {
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

void upcycle_folder(const std::filesystem::path& source, const std::filesystem::path& folder,
                    const ConvertOptions& options) {
  require(options.merged.empty() && !options.text_only,
          "--upcycle takes a dense model alone; leave out --merge and --text-only, which make one first");
  const UpcycledWeights weights(source, options.upcycling);
  const DType written = options.dtype.value_or(dtype_of(source, HuggingFaceReader(source).dtypes()));
  const std::filesystem::path tokenizer = tokenizer_in(source);
  ModelWriter writer({.folder = folder,
                      .model = weights.spec(),
                      .dtype = written,
                      .tokenizer = has_target(tokenizer) ? tokenizer : std::filesystem::path(),
                      .special_tokens = options.special_tokens,
                      .training = {.seq_len = read_training_seq_len(source)}});
  writer.begin();
  move_weights(global_parameters(weights.spec()), weights, writer, [&](const std::string&) { return written; });
  writer.finish();
}

}  // namespace

void convert_model(const std::filesystem::path& source, const std::filesystem::path& folder,
                   const ConvertOptions& options) {
  require(!has_target(folder) || (is_folder(folder) && list_folder(folder).empty()),
          "{} exists already; choose another name for the model", folder.string());
  const bool merges = !options.merged.empty();
  if (is_checkpoint(source)) {
    require(!options.upcycling.exists(), "{} is a checkpoint; convert it to a folder first, then use --upcycle",
            source.string());
    require(!merges, "{} is a checkpoint; convert it to a folder first, then merge", source.string());
    return has_adapters(source) ? convert_adapters(source, folder, options)
                                : convert_checkpoint(source, folder, options);
  }
  if (is_adapter_folder(source)) return convert_adapter_folder(source, folder, options);
  require(is_folder(source) && has_target(source / "config.json"),
          "{} is not a checkpoint or a model: it has no manifest and no config.json; a run writes checkpoint/step-N",
          source.string());
  if (options.upcycling.exists())
    upcycle_folder(source, folder, options);
  else if (merges)
    convert_folder(source, MergedWeights(options.merged, source), folder, options);
  else
    convert_folder(source, HuggingFaceReader(source), folder, options);
}

}  // namespace echelon
