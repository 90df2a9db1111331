#include "checkpoint/model_tokenizer.h"

#include "checkpoint/hf/adapter/adapter_config.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/state/saved_config.h"
#include "checkpoint/state/state_names.h"
#include "files/file.h"
#include "files/folder_links.h"

#include <algorithm>

namespace echelon {
namespace {

/// The link of a download cache itself: next to its target are no other files of the model.
std::filesystem::path checked_in(const std::filesystem::path& folder) {
  (void)path_in_folder(folder, checkpoint_tokenizer_name);
  return folder / checkpoint_tokenizer_name;
}

/// As convert takes it: with the files of the first folder, unless the run has another tokenizer.
std::filesystem::path tokenizer_of_checkpoint(const std::filesystem::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  const RunConfig config = config_of(manifest, checkpoint);
  const std::filesystem::path own = tokenizer_of_run(checkpoint, manifest, config);
  const std::filesystem::path source = source_of(config.checkpoint.initial_load_path, config.model.family);
  const bool has_source = !source.empty() && has_target(source / checkpoint_tokenizer_name);
  if (own.empty())
    return checked_in(has_source && !has_target(checkpoint / checkpoint_tokenizer_name) ? source : checkpoint);
  const bool is_of_source = has_source && read_text(own) == read_text_in_folder(source, checkpoint_tokenizer_name);
  return is_of_source ? checked_in(source) : own;
}

}  // namespace

std::filesystem::path tokenizer_of_run(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                       const RunConfig& config) {
  const auto is_tokenizer = [](const Manifest::Copy& copy) { return copy.name == checkpoint_tokenizer_name; };
  if (std::ranges::none_of(manifest.copies, is_tokenizer)) return {};
  std::filesystem::path copy = checked_in(checkpoint);
  const std::filesystem::path own = config.checkpoint.tokenizer;
  return has_target(own) && read_text(own) == read_text(copy) ? own : copy;
}

std::filesystem::path tokenizer_in(const std::filesystem::path& folder) {
  if (is_checkpoint(folder)) return tokenizer_of_checkpoint(folder);
  std::filesystem::path own = checked_in(folder);
  return !has_target(own) && is_adapter_folder(folder) ? tokenizer_in(base_of_adapters(folder)) : own;
}

}  // namespace echelon
