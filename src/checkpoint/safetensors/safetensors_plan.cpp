#include "checkpoint/safetensors/safetensors.h"

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <utility>

namespace echelon {
namespace {

std::int64_t num_bytes_of(const TensorPlan& tensor) {
  if (tensor.like) return tensor.like->num_bytes;
  std::int64_t num_bytes = size_of(tensor.dtype);
  for (const std::int64_t size : tensor.shape) num_bytes *= size;
  return num_bytes;
}

std::vector<std::vector<TensorPlan>> split_by_size(const std::vector<TensorPlan>& tensors,
                                                   std::int64_t max_file_bytes) {
  std::vector<std::vector<TensorPlan>> files(1);
  std::int64_t file_bytes = 0;
  for (const TensorPlan& tensor : tensors) {
    if (!files.back().empty() && file_bytes + num_bytes_of(tensor) > max_file_bytes) {
      files.emplace_back();
      file_bytes = 0;
    }
    files.back().push_back(tensor);
    file_bytes += num_bytes_of(tensor);
  }
  return files;
}

FilePlan plan_file(std::string file_name, const std::vector<TensorPlan>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};  // transformers refuses files without it
  FilePlan file;
  file.file_name = std::move(file_name);
  std::int64_t end = 0;
  for (const TensorPlan& tensor : tensors) {
    const std::int64_t first = std::exchange(end, end + num_bytes_of(tensor));
    FileTensor& planned = file.tensors[tensor.name];
    planned = tensor.like ? *tensor.like
                          : FileTensor{.format = std::string(safetensors_format(tensor.dtype)),
                                       .dtype = tensor.dtype,
                                       .shape = tensor.shape};
    planned.first_byte = first;
    planned.num_bytes = end - first;
    header[tensor.name] = {{"dtype", planned.format}, {"shape", planned.shape}, {"data_offsets", {first, end}}};
  }
  file.header = header_bytes_of(header.dump());
  const auto header_bytes = static_cast<std::int64_t>(file.header.size());
  for (auto& [name, tensor] : file.tensors) tensor.first_byte += header_bytes;
  file.num_bytes = header_bytes + end;
  return file;
}

std::string index_of(const std::vector<FilePlan>& files) {
  std::int64_t total_bytes = 0;
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  for (const FilePlan& file : files)
    for (const auto& [name, tensor] : file.tensors) {
      weight_map[name] = file.file_name;
      total_bytes += tensor.num_bytes;
    }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
}

}  // namespace

std::string header_bytes_of(std::string json, std::size_t alignment) {
  std::uint64_t length = json.size();
  const std::size_t num_bytes = sizeof length + json.size();
  json.append((alignment - num_bytes % alignment) % alignment, ' ');
  length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

const FilePlan* FolderPlan::file_of(std::string_view tensor) const {
  for (const FilePlan& file : files)
    if (file.tensors.contains(std::string(tensor))) return &file;
  return nullptr;
}

FolderPlan plan_safetensors(const std::vector<TensorPlan>& tensors, std::int64_t max_file_bytes) {
  const auto parts = split_by_size(tensors, max_file_bytes);
  FolderPlan plan;
  for (std::size_t i = 0; i < parts.size(); ++i)
    plan.files.push_back(plan_file(parts.size() == 1
                                       ? std::string(single_file_name)
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size()),
                                   parts[i]));
  if (parts.size() > 1) plan.index = index_of(plan.files);
  return plan;
}

}  // namespace echelon
