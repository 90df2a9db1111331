// One machine out of several measurements of it.
#pragma once

#include "spec/machine/host_spec.h"

namespace echelon {

/// The median of every rate, operation and collective; all measured in the same sizes.
[[nodiscard]] HostSpec median_host(const std::vector<HostSpec>& hosts);

}  // namespace echelon
