// The activations of feed-forward layers. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

namespace echelon {

/// y = gelu(x + bias), the tanh approximation (Hendrycks and Gimpel 2016). x, y [N, D]; bias [D] is optional. y may be
/// x.
struct GeluArgs {
  Tensor x, y;
  Tensor bias = {};
};
/// dx = dy gelu'(x + bias). With dbias [D], dbias += the column sums of dx. With y, y = gelu(x + bias) is recomputed,
/// which costs one multiplication here and saves the memory of y. dx may be x, and y may be dy.
struct GeluBackwardArgs {
  Tensor dy, x, dx;
  Tensor bias = {}, dbias = {}, y = {};
};
/// y = silu(gate) up (Shazeer 2020).
struct SwigluArgs {
  Tensor gate, up, y;
};
/// With y, y = silu(gate) up is recomputed. dgate may be gate, dup may be up, and y may be dy.
struct SwigluBackwardArgs {
  Tensor dy, gate, up, dgate, dup;
  Tensor y = {};
};

}  // namespace echelon
