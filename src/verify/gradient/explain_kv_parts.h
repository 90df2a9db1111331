// Explains a wrong part of the gradient of keys or values that tensor-parallel ranks share.
#pragma once

#include "verify/activations.h"

namespace echelon {

/// All explanations that fit the first read that differs; none if it is another's.
[[nodiscard]] std::vector<Finding> explain_kv_parts(const Case& at, std::int64_t step, const Activations& expected,
                                                    const FirstWrongRead& first);

}  // namespace echelon
