// Formats values and layouts for several commands.
#pragma once

#include "spec/config/run_config.h"

#include <string>
#include <string_view>

namespace echelon {

/// "1.234 GB": four digits, and a prefix for every factor of a thousand.
[[nodiscard]] std::string with_unit(double number, std::string_view unit);

/// "16,384 ranks = pp 16 x dp_shard 128 x tp 8, sequence parallel, ZeRO-1; 16 microbatches of 1 x 8192 tokens"
[[nodiscard]] std::string layout_line(const RunConfig& config);

}  // namespace echelon
