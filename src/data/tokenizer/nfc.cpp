#include "data/tokenizer/nfc.h"

#include "base/error.h"
#include "base/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace echelon {
namespace {

void append_normalized(std::string_view valid, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                             static_cast<utf8proc_ssize_t>(valid.size()), &composed, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (size < 0)
    throw Failure(fmt::format("a text of {} bytes cannot be normalized: {}", valid.size(), utf8proc_errmsg(size)));
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  // Every character below U+0300, whose UTF-8 starts with 0xcc, is in form C already.
  const auto may_change = [](char byte) { return static_cast<std::uint8_t>(byte) >= 0xcc; };
  if (std::none_of(text.begin(), text.end(), may_change)) return text;
  storage.clear();
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) append_normalized(text.substr(0, valid), storage);
    text.remove_prefix(valid);
    while (!text.empty() && utf8_character_length(text) == 0) {
      storage += text[0];
      text.remove_prefix(1);
    }
  }
  return storage;
}

}  // namespace echelon
