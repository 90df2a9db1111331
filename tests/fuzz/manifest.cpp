#include "base/error.h"
#include "checkpoint/state/digest.h"
#include "checkpoint/state/saved_config.h"
#include "fuzz/heap_bound.h"
#include "fuzz/input_folder.h"
#include "fuzz/targets.h"

#include <fmt/format.h>

namespace echelon::fuzz {
namespace {

void read(const std::string& text) {
  Manifest manifest;
  try {
    manifest = parse_manifest(text, "step-7/manifest.json");
  } catch (const Error&) {
    return;
  }
  if (parse_manifest(to_text(manifest), "step-7/manifest.json") != manifest)
    throw std::logic_error("a manifest that is written and read again is another one");
  try {
    (void)config_of(manifest, "step-7");
  } catch (const Error&) {
    return;
  }
}

}  // namespace

int manifest(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  const HeapBound bound(size);
  if (text.starts_with('{')) {
    read(std::string(text));
    read(fmt::format("{{\"digest\":\"{}\",\"manifest\":{}}}\n", to_text(digest_of(text)), text));
  } else {
    Manifest manifest;
    manifest.config = text;
    read(to_text(manifest));
  }
  return 0;
}

}  // namespace echelon::fuzz
