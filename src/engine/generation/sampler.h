// One token out of logits: temperature, top-k, and nucleus sampling (top-p; Holtzman et al. 2020, arXiv:1904.09751).
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace echelon {

struct SamplingOptions {
  double temperature = 1.0;  // 0: the likeliest token
  std::int64_t top_k = 0;    // only the k likeliest tokens; 0: all
  double top_p = 1.0;        // only the fewest likeliest tokens whose probabilities sum up to p
  std::int64_t seed = 1;
};

/// Throws Error naming the option and a valid value to use.
void validate(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options)
      : options_(options), random_(static_cast<std::uint64_t>(options.seed)) {
    validate(options);
  }
  /// The index of the drawn token. Equal seeds and logits give equal tokens on every machine.
  [[nodiscard]] std::int32_t draw(std::span<const double> logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace echelon
