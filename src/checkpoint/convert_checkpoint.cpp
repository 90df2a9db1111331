#include "checkpoint/convert_checkpoint.h"

#include "base/error.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"

#include <algorithm>
#include <vector>

namespace echelon {

void convert_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& folder,
                        std::optional<DType> dtype) {
  require(is_checkpoint(checkpoint), "{} is not a checkpoint: it has no manifest; a run writes it to checkpoint/step-N",
          checkpoint.string());
  require(!has_target(folder) || (is_folder(folder) && list_folder(folder).empty()),
          "{} exists already; choose another name for the model", folder.string());
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
                      .training = {.seq_len = scalars.seq_len, .steps = scalars.step}});
  writer.begin();
  constexpr std::int64_t chunk = 1 << 22;
  std::vector<std::byte> values;
  for (const NamedShape& parameter : global_parameters(config.model)) {
    const TensorSlice whole(parameter.sizes);
    for (std::int64_t first = 0; first < whole.num_elements(); first += chunk) {
      const TensorSlice part = whole.elements({first, std::min(chunk, whole.num_elements() - first)});
      values.resize(static_cast<std::size_t>(part.num_elements() * size_of(written)));
      weights.read(parameter.name, part, written, values.data());
      writer.write(parameter.name, part, written, values.data());
    }
  }
  writer.finish();
}

}  // namespace echelon
