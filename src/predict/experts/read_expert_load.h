// The loads of experts that a command line names.
#pragma once

#include "spec/config/run_config.h"

#include <string>

namespace echelon {

/// "balanced", "zipf:1.2", or a file: a run's metrics.jsonl with metrics.expert_loads, of which the last step counts,
/// or a JSON list of the rows of each expert for each layer with experts. Throws Error naming --expert-load for other
/// text, for a model without experts, and for a file of another model.
[[nodiscard]] ExpertLoad read_expert_load(const std::string& text, const RunConfig& config);

/// "experts zipf:1.2: the most loaded of 8 ranks computes 1.31 times the mean, in 2 rounds", or "in 1 round; 12.5 % of
/// rows are dropped". Empty where loads are even and nothing is dropped.
[[nodiscard]] std::string expert_load_text(const RunConfig& config);

inline constexpr const char* expert_load_help =
    "of a mixture's experts: balanced, zipf:S (the i-th in a random order is chosen as 1 / i^S), or the metrics.jsonl "
    "of a run with metrics.expert_loads; default: balanced";

}  // namespace echelon
