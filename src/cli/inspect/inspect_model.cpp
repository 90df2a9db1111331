#include "cli/inspect/inspect_model.h"

#include "base/text/printable.h"
#include "checkpoint/hf/inspect.h"
#include "checkpoint/model_reader.h"
#include "cli/inspect/print_json.h"

#include <algorithm>
#include <cstdio>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct ModelFolder {
  FolderVerdict verdict{};
  std::vector<ListedTensor> tensors;  // none if the files cannot be read, which the verdict says
  std::int64_t num_parameters = 0, num_bytes = 0;
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
  for (const ListedTensor& tensor : model.tensors) {
    std::int64_t size = 1;
    for (const std::int64_t dim : tensor.shape) size *= dim;
    model.num_parameters += size;
    model.num_bytes += tensor.num_bytes;
  }
  return model;
}

void print(const ModelFolder& model) {
  std::size_t width = 0;
  for (const ListedTensor& tensor : model.tensors) width = std::max(width, printable(tensor.name).size());
  for (const ListedTensor& tensor : model.tensors)
    fmt::print("{:<{}}  {:<4}  {}\n", printable(tensor.name), width, printable(tensor.format), to_string(tensor.shape));
  fmt::print("{}: {} tensors, {} parameters, {:.1f} MB\n", printable(model.verdict.model_type, 200),
             model.tensors.size(), model.num_parameters, static_cast<double>(model.num_bytes) / 1e6);
  fmt::print("{}\n", model.verdict.missing.empty() ? "it can be trained" : "it cannot be trained:");
  for (const auto* sentences : {&model.verdict.missing, &model.verdict.notes})
    for (const std::string& sentence : *sentences) fmt::print("  {}\n", printable(sentence));
}

nlohmann::ordered_json to_json(const ModelFolder& model) {
  auto tensors = nlohmann::ordered_json::array();
  for (const ListedTensor& tensor : model.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.format},
                       {"shape", tensor.shape},
                       {"num_bytes", tensor.num_bytes},
                       {"file", tensor.file_name}});
  return {{"model_type", model.verdict.model_type}, {"num_parameters", model.num_parameters},
          {"num_bytes", model.num_bytes},           {"missing", model.verdict.missing},
          {"notes", model.verdict.notes},           {"tensors", tensors}};
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
