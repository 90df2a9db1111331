#include "checkpoint/hf/inspect.h"

#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/config/config_fields.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/config/wrapper_config.h"
#include "checkpoint/hf/hf_reader.h"
#include "files/folder_links.h"

namespace echelon {

FolderVerdict verdict_of(const std::filesystem::path& folder) {
  const ConfigFields config(folder / "config.json");
  FolderVerdict verdict = {.model_type = config.text("model_type"), .missing = faults_of_config(folder), .notes = {}};
  if (!verdict.missing.empty()) return verdict;
  try {
    const ConfigFields language = language_model_of(config);
    const std::string model_type = language.text("model_type");
    const HuggingFaceReader reader(folder);
    if (wraps_language_model(config))
      verdict.notes.push_back(
          fmt::format("its language model, of model_type {}, is trained; {} tensors of other parts stay as they are",
                      model_type, reader.num_other_tensors()));
    if (const std::string note = reader.note(); !note.empty()) verdict.notes.push_back(note);
  } catch (const Error& error) {
    verdict.missing.emplace_back(error.what());
  }
  return verdict;
}

std::vector<ListedTensor> list_tensors(const std::filesystem::path& folder) {
  const WeightFolder weights(folder);
  std::vector<ListedTensor> listed;
  for (const auto& [name, entry] : weights.entries())
    listed.push_back(
        {name, entry.tensor.format, entry.tensor.shape, entry.tensor.num_bytes, entry.path.filename().string()});
  return listed;
}

std::vector<ListedTensor> list_adapter_tensors(const std::filesystem::path& folder) {
  std::vector<ListedTensor> listed;
  for (const auto& [name, tensor] : read_safetensors_header(path_in_folder(folder, adapter_weights_name)))
    listed.push_back({name, tensor.format, tensor.shape, tensor.num_bytes, std::string(adapter_weights_name)});
  return listed;
}

}  // namespace echelon
