// One action in an SVG drawing.
#pragma once

#include "schedule/action.h"

#include <string>

namespace echelon {

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
};

/// Forwards are blue, gradients of the input (and fused backwards) green, those of the weights orange, the update
/// purple, collectives red, transfers teal, all others grey; mixed with white by `lightness`, 0 to 1. Wide passes show
/// the number of their microbatch, counted from 1.
[[nodiscard]] std::string svg_box(const Action& action, const Rectangle& rectangle, double lightness = 0);

}  // namespace echelon
