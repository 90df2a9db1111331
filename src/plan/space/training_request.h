// The training that a plan is asked about: its tokens, and the failures that interrupt it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

/// The words of a command line.
struct TrainingQuestion {
  std::string tokens;  // "15T", "300B", "1.5e12"; empty: not asked
  std::optional<double> mtbf_hours = {}, checkpoint_seconds = {}, restart_seconds = {};
};

struct TrainingRequest {
  double tokens = 0;
  std::optional<double> mtbf_hours = {};          // of one device, or of a host; none: nothing fails
  std::optional<double> checkpoint_seconds = {};  // in which training is stopped; none: as predicted
  std::optional<double> restart_seconds = {};     // none: to read a checkpoint, as far as that is predicted
};

/// A positive number, which K, M, B or T multiplies by 1e3, 1e6, 1e9 or 1e12. Throws Error for other text.
[[nodiscard]] double parse_tokens(std::string_view text);

/// None if no tokens are asked for. Throws Error naming the flag, its value and a value that works.
[[nodiscard]] std::optional<TrainingRequest> read_training_request(const TrainingQuestion& question);

}  // namespace echelon
