// The floating point operations that a run needs for a token: what tflops and MFU count.
#pragma once

#include "spec/config/run_config.h"

namespace echelon {

/// model_flops_per_token of the config's model and sequence length, where a frozen weight takes 4 flops and not 6: it
/// has no gradient, and what is below needs dx. An adapter adds 6 r (in + out) (Hu et al. 2021, arXiv:2106.09685). The
/// dx of the first block is counted also where nothing below is trained.
[[nodiscard]] double model_flops_per_token(const RunConfig& config);
/// Of a step, where attention to so many of the pairs (query, key) of whole sequences is computed.
[[nodiscard]] double model_flops_of_step(const RunConfig& config, double pairs_share);

}  // namespace echelon
