#include "checkpoint/hf/weight_folder.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/text/printable.h"
#include "checkpoint/hf/stacked_experts.h"
#include "files/file.h"

namespace echelon {
namespace {

// Tensor -> file name. Only plain names: an index must not point outside its folder.
std::map<std::string, std::string> read_index(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / index_file_name;
  nlohmann::json index = parse_json_object(read_text_in_folder(folder, index_file_name), path.string());
  require(index.contains("weight_map") && index["weight_map"].is_object(),
          "{} is corrupt: it has no object \"weight_map\"", path.string());
  std::map<std::string, std::string> file_of;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    require(file.is_string(), "{} is corrupt: the file of '{}' is not a string", path.string(), tensor);
    const std::filesystem::path name = file.get<std::string>();
    require(name.has_filename() && name == name.filename() && name != "..",
            "{} is corrupt: '{}' is not the name of a file next to it", path.string(), name.string());
    file_of[tensor] = name.string();
  }
  return file_of;
}

/// As transformers names files of weights.
bool is_of_weights(std::string_view name) {
  const bool is_shard = name.starts_with("model-") && name.find("-of-") != std::string_view::npos;
  return name == single_file_name || (is_shard && name.ends_with(".safetensors"));
}

}  // namespace

WeightFolder::WeightFolder(const std::filesystem::path& folder) {
  require(is_folder(folder), "{} is not a folder", folder.string());
  const std::filesystem::path single = folder / single_file_name;
  Headers headers;
  if (has_target(single)) {
    const auto& tensors = headers[std::string(single_file_name)] = read_safetensors_header(single);
    for (const auto& [name, tensor] : tensors) entries_[name] = {single, tensor};
    require_each_once(folder, std::move(headers));
    return;
  }
  const std::filesystem::path index = folder / index_file_name;
  require(has_target(index), "{} has neither {} nor {}{}", folder.string(), single_file_name, index_file_name,
          has_target(folder / "pytorch_model.bin") ? "; convert its pytorch_model.bin to safetensors first" : "");
  for (const auto& [tensor, file] : read_index(folder)) {
    if (!headers.contains(file)) headers[file] = read_safetensors_header(folder / file);
    const auto found = headers[file].find(tensor);
    require(found != headers[file].end(), "{} has no tensor '{}', which {} lists", (folder / file).string(), tensor,
            index_file_name);
    entries_[tensor] = {folder / file, found->second};
  }
  require_each_once(folder, std::move(headers));
}

// Copies may differ, and which of them a program takes depends on the program.
void WeightFolder::require_each_once(const std::filesystem::path& folder, Headers headers) const {
  for (const std::string& file : list_folder(folder))
    if (is_of_weights(file) && !headers.contains(file)) headers[file] = read_safetensors_header(folder / file);
  for (const auto& [file, tensors] : headers)
    for (const auto& [name, tensor] : tensors) {
      const Entry* const taken = find(name);
      require(taken == nullptr || taken->path.filename() == file,
              "{} has tensor '{}' twice, in {} and in {} (remove one of them)", folder.string(), printable(name, 200),
              taken == nullptr ? "" : taken->path.filename().string(), file);
    }
}

WeightFolder WeightFolder::with_separate_experts(const std::filesystem::path& folder, const ModelSpec& model) {
  WeightFolder weights(folder);
  unstack_experts(model, weights.entries_);
  return weights;
}

const WeightFolder::Entry* WeightFolder::find(std::string_view tensor) const {
  const auto found = entries_.find(tensor);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace echelon
