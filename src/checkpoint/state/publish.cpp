#include "checkpoint/state/publish.h"

#include "checkpoint/state/state_names.h"
#include "files/file.h"

namespace echelon {

void publish_manifest(const std::filesystem::path& folder, const Manifest& manifest) {
  const std::filesystem::path path = folder / manifest_name(manifest.attempt), temporary = path.string() + ".tmp";
  const std::string text = to_text(manifest);
  remove_file(temporary);
  {
    File file = File::create_new(temporary);
    file.write_at(0, text.data(), std::ssize(text));
    file.sync();
    file.close();
  }
  give_name(temporary, path);
  sync_folder(folder);
}

}  // namespace echelon
