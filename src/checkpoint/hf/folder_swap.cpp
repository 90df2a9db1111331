#include "checkpoint/hf/folder_swap.h"

#include "base/error.h"
#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/companion_files.h"
#include "checkpoint/safetensors/safetensors.h"
#include "files/file.h"

#include <algorithm>

namespace echelon {
namespace {

bool is_of_model(const std::filesystem::path& folder, const std::filesystem::path& name) {
  if (name == more_templates)
    return kind_of(folder / name) == NameKind::folder &&
           std::ranges::all_of(list_folder(folder / name), [](const auto& each) { return each.ends_with(".jinja"); });
  return name.extension() == ".safetensors" || name == "config.json" || name == adapter_config_name ||
         name == index_file_name || is_companion(name.string());
}

void require_only_model(const std::filesystem::path& folder) {
  const NameKind kind = kind_of(folder);
  if (kind == NameKind::nothing) return;
  require(kind != NameKind::other,
          "{} is a link, which is not replaced; move it away, or choose another name for the model", folder.string());
  require(kind == NameKind::folder, "{} exists and is not a folder; move it away, or choose another name for the model",
          folder.string());
  for (const std::string& name : list_folder(folder))
    require(is_of_model(folder, name),
            "{} contains '{}', which is not part of a model, so it is not replaced; move it away, or choose another "
            "name for the model",
            folder.string(), name);
}

std::filesystem::path parent_of(const std::filesystem::path& folder) {
  return folder.has_parent_path() ? folder.parent_path() : ".";
}

}  // namespace

std::filesystem::path temporary_name(const std::filesystem::path& folder) { return folder.string() + ".tmp"; }
std::filesystem::path outgoing_name(const std::filesystem::path& folder) { return folder.string() + ".old"; }

void require_replaceable(const std::filesystem::path& folder) {
  for (const auto& taken : {folder, temporary_name(folder), outgoing_name(folder)}) require_only_model(taken);
}

bool is_model_folder(const std::filesystem::path& folder) {
  return has_target(folder / "config.json") &&
         std::ranges::all_of(list_folder(folder), [&](const std::string& name) { return is_of_model(folder, name); });
}

void create_temporary(const std::filesystem::path& folder) {
  const std::filesystem::path temporary = temporary_name(folder);
  delete_folder(temporary);
  make_folder(temporary);
}

void swap_in(const std::filesystem::path& folder) {
  const std::filesystem::path temporary = temporary_name(folder);
  const std::filesystem::path outgoing = outgoing_name(folder);
  sync_folder(temporary);
  delete_folder(outgoing);
  if (!has_target(folder)) {
    replace_name(temporary, folder);
  } else if (exchange_names(temporary, folder)) {
    replace_name(temporary, outgoing);
  } else {  // a file system without exchange: briefly no folder has the name
    replace_name(folder, outgoing);
    replace_name(temporary, folder);
  }
  sync_folder(parent_of(folder));
  delete_folder(outgoing);
}

}  // namespace echelon
