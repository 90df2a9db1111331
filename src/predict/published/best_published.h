// The highest utilisations that were published, for comparison with predictions.
#pragma once

#include "spec/machine/machine_spec.h"

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

struct BestPublished {
  std::string_view gpu;
  double billions = 0;  // parameters of the model
  double mfu = 0;       // in 16 bits, by spec/model_spec.h's flops
  std::string_view source;
};

/// Of models of half to twice as many parameters; none where the GPU has no such run.
[[nodiscard]] std::optional<BestPublished> best_published_at(const DeviceSpec& device, double num_parameters);
/// Of any size.
[[nodiscard]] std::optional<BestPublished> best_published(const DeviceSpec& device);

}  // namespace echelon
