#include "cli/inspect/inspect_model.h"

#include "base/text/printable.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "cli/inspect/print_json.h"
#include "cli/inspect/print_tensors.h"
#include "spec/parameter_list.h"

#include <algorithm>
#include <cstdio>

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// Throws Error for a value that training would refuse.
void read_values(const fs::path& folder) {
  constexpr std::int64_t chunk = 1 << 22;
  const ModelReader reader(folder);
  std::vector<float> values;
  for (const NamedShape& parameter : global_parameters(reader.spec())) {
    const TensorSlice whole(parameter.sizes);
    for (std::int64_t first = 0; first < whole.num_elements(); first += chunk) {
      const std::int64_t count = std::min(chunk, whole.num_elements() - first);
      values.resize(static_cast<std::size_t>(count));
      reader.read(parameter.name, whole.elements({first, count}), DType::float32, values.data());
    }
  }
}

struct ModelFolder {
  FolderVerdict verdict{};
  bool has_read_values = false;
  std::vector<ListedTensor> tensors;  // none if the files cannot be read, which the verdict says
};

ModelFolder read_model(const fs::path& folder, bool reads_values) {
  require_model(folder);
  ModelFolder model;
  model.verdict = verdict_of(folder);
  model.has_read_values = reads_values && model.verdict.missing.empty();
  try {
    if (model.has_read_values) read_values(folder);
  } catch (const Error& error) {
    model.verdict.missing.emplace_back(error.what());
  }
  try {
    model.tensors = list_tensors(folder);
  } catch (const Error& error) {
    if (model.verdict.missing.empty()) throw;
  }
  return model;
}

void print(const ModelFolder& model) {
  print_tensors(model.verdict.model_type, model.tensors);
  fmt::print("{}\n", !model.verdict.missing.empty() ? "it cannot be trained:"
                     : model.has_read_values        ? "it can be trained"
                                             : "it can be trained if all values are finite (--verify reads them)");
  for (const auto* sentences : {&model.verdict.missing, &model.verdict.notes})
    for (const std::string& sentence : *sentences) fmt::print("  {}\n", printable(sentence));
}

nlohmann::ordered_json to_json(const ModelFolder& model) {
  nlohmann::ordered_json json = {
      {"model_type", model.verdict.model_type}, {"missing", model.verdict.missing}, {"notes", model.verdict.notes}};
  json.update(tensors_json(model.tensors));
  return json;
}

}  // namespace

ExitStatus inspect_model(const std::filesystem::path& folder, bool reads_values, bool json) {
  const ModelFolder model = read_model(folder, reads_values);
  json ? print_json(to_json(model)) : print(model);
  std::fflush(stdout);
  if (!model.verdict.missing.empty()) throw Error(model.verdict.missing.front());
  return ExitStatus::success;
}

}  // namespace echelon
