// The numbers of a step that backends in the host's memory read when an operation runs.
#pragma once

#include "ops/ops.h"

#include <cstring>

namespace echelon {

[[nodiscard]] inline AdamWScalars scalars_of(const AdamWArgs& args) {
  AdamWScalars scalars;
  std::memcpy(&scalars, args.scalars.data, sizeof scalars);
  return scalars;
}

[[nodiscard]] inline double scale_of(const CrossEntropyBackwardArgs& args) {
  return args.loss_scale.exists() ? args.scale * *args.loss_scale.as<double>() : args.scale;
}

}  // namespace echelon
