// How fast attention by ranges of keys is: what long sequences take.
#pragma once

#include "ops/cpu/product_choice.h"
#include "tensor/dtype.h"

#include <functional>
#include <optional>

namespace echelon {

/// Flops per second of attention and its gradients.
using AttentionRate = std::function<double(DType dtype, int num_threads, double seconds)>;

/// Of one head of 64 over 4,096 tokens, a causal mask as ranges: 14 flops for each visible pair (query, key) and unit
/// of head width, of which the forward pass has 4.
[[nodiscard]] AttentionRate attention_rate(const std::optional<ProductChoice>& products);

}  // namespace echelon
