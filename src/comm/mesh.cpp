#include "comm/mesh.h"

#include <fmt/format.h>

namespace echelon {

std::string Mesh::place_in_model() const {
  switch (part_.kind) {
    case LayerPart::Kind::whole: break;
    case LayerPart::Kind::ring_hop: return fmt::format("{}, hop {} of the ring", layer_, part_.index);
    case LayerPart::Kind::kv_head: return fmt::format("{}, kv head {}", layer_, part_.index);
    case LayerPart::Kind::to_heads: return layer_ + ", exchange of tokens for heads";
    case LayerPart::Kind::to_tokens: return layer_ + ", exchange of heads for tokens";
  }
  return layer_;
}

}  // namespace echelon
