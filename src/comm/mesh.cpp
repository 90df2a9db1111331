#include "comm/mesh.h"

#include <fmt/format.h>

namespace echelon {

std::string Mesh::place_in_model() const {
  return hop_ < 0 ? std::string(layer_) : fmt::format("{}, hop {} of the ring", layer_, hop_);
}

}  // namespace echelon
