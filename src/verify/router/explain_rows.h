// Explains the output of a mixture whose choices are right, by the rows that its experts give tokens on one rank: rows
// that are missing in a token's sum, and rows of other tokens in it.
#pragma once

#include "verify/activations.h"

namespace echelon {

/// Of a first read that is such an output. Empty if no such explanation fits, or if it is another read.
[[nodiscard]] std::vector<Finding> explain_expert_rows(const Case& at, std::int64_t step, const Activations& expected,
                                                       const FirstWrongRead& first);

}  // namespace echelon
