// What a token id means to every part of the engine, from the dataset to the loss.
#pragma once

#include <cstdint>

namespace echelon {

/// Targets with this value are not predicted (Hugging Face's and PyTorch's ignore_index).
inline constexpr std::int32_t ignored_target = -100;

}  // namespace echelon
