#include "nn/param.h"

namespace echelon {

// FNV-1a, 64 bits, unlike std::hash.
std::uint64_t stream_of(const Param& param) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : param.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace echelon
