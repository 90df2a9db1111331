#include "checkpoint/hf/inspect.h"

#include "base/error.h"
#include "checkpoint/hf/config/config_fields.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/config/wrapper_config.h"
#include "checkpoint/hf/hf_reader.h"
#include "spec/families/family.h"

namespace echelon {
namespace {

void add_dropouts(const ConfigFields& config, Family family, FolderVerdict& verdict) {
  for (const FamilyField& field : description_of(family).fields) {
    const auto* dropout = std::get_if<DropoutField>(&field);
    if (dropout != nullptr && config.number(dropout->key, 0.0) != 0)
      verdict.notes.push_back(fmt::format("{} = {} is kept and not applied: Echelon has no dropout", dropout->key,
                                          config.number(dropout->key)));
  }
}

}  // namespace

FolderVerdict verdict_of(const std::filesystem::path& folder) {
  const ConfigFields config(folder / "config.json");
  FolderVerdict verdict = {.model_type = config.text("model_type"), .missing = faults_of_config(folder), .notes = {}};
  if (!verdict.missing.empty()) return verdict;
  try {
    const ConfigFields language = language_model_of(config);
    const std::string model_type = language.text("model_type");
    add_dropouts(language, parse_family(model_type), verdict);
    const HuggingFaceReader reader(folder);
    if (wraps_language_model(config))
      verdict.notes.push_back(
          fmt::format("its language model, of model_type {}, is trained; {} tensors of other parts stay as they are",
                      model_type, reader.num_other_tensors()));
    const std::string unused = reader.unused_tensors_note();
    if (!unused.empty()) verdict.notes.push_back(unused);
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

}  // namespace echelon
