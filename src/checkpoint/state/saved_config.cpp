#include "checkpoint/state/saved_config.h"

#include "spec/config/config_reader.h"

namespace echelon {

RunConfig config_of(const Manifest& manifest, const std::filesystem::path& folder) {
  return read_run_config({.path = (folder / "manifest").string(),
                          .arguments = {},
                          .read_model = {},
                          .has_layout = false,
                          .reads_files = false,
                          .text = manifest.config});
}

}  // namespace echelon
