// Units for amounts in bytes.
#pragma once

namespace echelon {

inline constexpr double gib = 1 << 30;  // bytes

}  // namespace echelon
