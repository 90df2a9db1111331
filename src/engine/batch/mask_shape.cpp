#include "engine/batch/mask_shape.h"

namespace echelon {

MaskShape mask_shape_of(std::span<const std::int32_t> begin, std::span<const std::int32_t> end) {
  const std::size_t Tq = begin.size();
  std::size_t first = 0;
  while (first < Tq && begin[first] >= end[first]) ++first;
  if (first == Tq) return {};
  bool is_whole = true, is_causal = true;
  const std::int32_t end_key = end[Tq - 1];
  for (std::size_t i = first; i < Tq; ++i) {
    if (begin[i] != 0) return {};
    is_whole &= end[i] == end_key;
    is_causal &= end[i] == end_key - static_cast<std::int32_t>(Tq - 1 - i);
  }
  if (!is_whole && !is_causal) return {};
  return {.kind = is_causal ? MaskShape::Kind::causal : MaskShape::Kind::whole,
          .first_query = static_cast<std::int64_t>(first),
          .end_key = end_key};
}

}  // namespace echelon
