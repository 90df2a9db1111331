#include "base/text_file.h"

#include <fstream>

namespace echelon {

std::optional<std::string> read_text_file(const std::string& path, std::size_t most_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (std::size_t block = 1U << 16U; file && text.size() <= most_bytes; block *= 2) {
    const std::size_t begin = text.size();
    text.resize(begin + block);
    file.read(text.data() + begin, static_cast<std::streamsize>(block));
    text.resize(begin + static_cast<std::size_t>(file.gcount()));
  }
  const bool is_whole = file.eof() && !file.bad() && text.size() <= most_bytes;
  return is_whole ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace echelon
