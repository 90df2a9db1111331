#include "cli/inspect/inspect_model.h"

#include "base/text/printable.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "cli/inspect/print_json.h"
#include "cli/inspect/print_tensors.h"

#include <cstdio>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct ModelFolder {
  FolderVerdict verdict{};
  std::vector<ListedTensor> tensors;  // none if the files cannot be read, which the verdict says
};

ModelFolder read_model(const fs::path& folder) {
  require_model(folder);
  ModelFolder model;
  model.verdict = verdict_of(folder);
  try {
    model.tensors = list_tensors(folder);
  } catch (const Error& error) {
    if (model.verdict.missing.empty()) throw;
  }
  return model;
}

void print(const ModelFolder& model) {
  print_tensors(model.verdict.model_type, model.tensors);
  fmt::print("{}\n", model.verdict.missing.empty() ? "it can be trained" : "it cannot be trained:");
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

ExitStatus inspect_model(const std::filesystem::path& folder, bool json) {
  const ModelFolder model = read_model(folder);
  json ? print_json(to_json(model)) : print(model);
  std::fflush(stdout);
  if (!model.verdict.missing.empty()) throw Error(model.verdict.missing.front());
  return ExitStatus::success;
}

}  // namespace echelon
