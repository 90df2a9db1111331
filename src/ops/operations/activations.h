// The activations of feed-forward layers. Legend: ops/ops.h.
#pragma once

#include "tensor/tensor.h"

#include <cstdint>

namespace echelon {

/// x Phi(x) with the distribution function Phi of the standard normal (Hendrycks and Gimpel 2016), or its approximation
/// by tanh.
enum class GeluKind : std::uint8_t { tanh, erf };
/// What SwiGLU and GeGLU apply to the gate (Shazeer 2020).
enum class GateKind : std::uint8_t { silu, gelu_tanh };

/// y = gelu(x + bias). x, y [N, D]; bias [D] is optional. y may be x.
struct GeluArgs {
  static constexpr bool leaves_amax = true;
  Tensor x, y;
  Tensor bias = {};
  GeluKind kind = GeluKind::tanh;
};
/// dx = dy gelu'(x + bias). With dbias [D], dbias += the column sums of dx. With y, y = gelu(x + bias) is recomputed,
/// which costs one multiplication here and saves the memory of y. dx may be x, and y may be dy.
struct GeluBackwardArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, x, dx;
  Tensor bias = {}, dbias = {}, y = {};
  GeluKind kind = GeluKind::tanh;
};
/// y = silu(gate) up, or with another function of the gate: gelu(gate) up is GeGLU.
struct SwigluArgs {
  static constexpr bool leaves_amax = true;
  Tensor gate, up, y;
  GateKind kind = GateKind::silu;
};
/// With y, y is recomputed. dgate may be gate, dup may be up, and y may be dy.
struct SwigluBackwardArgs {
  static constexpr bool leaves_amax = true;
  Tensor dy, gate, up, dgate, dup;
  Tensor y = {};
  GateKind kind = GateKind::silu;
};

}  // namespace echelon
