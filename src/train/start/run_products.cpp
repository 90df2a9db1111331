#include "train/start/run_products.h"

#include "base/error.h"
#include "checkpoint/state/manifest.h"
#include "checkpoint/state/step_folders.h"
#include "files/file.h"
#include "train/save/state_saver.h"

namespace echelon {
namespace {

/// The folder from which a run will resume; empty: none. Resume finds out whether it may.
std::filesystem::path folder_to_resume(const RunConfig& config) {
  const std::string& load = config.checkpoint.load;
  const std::filesystem::path base = checkpoint_folder(config);
  const std::vector<SavedStep> saved = saved_steps(base);
  for (const SavedStep& one : saved)
    if (std::to_string(one.step) == load) return step_folder(base, one.step);
  if (!saved.empty()) return step_folder(base, saved.back().step);
  const bool is_choice = load == "auto" || load == "latest" || load == "none";
  return !is_choice && is_folder(load) ? std::filesystem::path(load) : std::filesystem::path();
}

ProductNames saved_products(const RunConfig& config) {
  try {
    const std::filesystem::path folder = folder_to_resume(config);
    return folder.empty() ? ProductNames() : read_manifest(folder).products;
  } catch (const Error&) {  // as Resume will say
    return {};
  }
}

}  // namespace

ProductRequest products_of_run(const RunConfig& config) { return product_request(config, saved_products(config)); }

}  // namespace echelon
