// echelon inspect of a config: what its blueprint says of a step, without a machine.
#pragma once

#include "base/error.h"

#include <string>
#include <vector>

namespace echelon {

/// `path` may be empty where the keys say everything.
ExitStatus inspect_config(const std::string& path, const std::vector<std::string>& config_arguments, bool json);

}  // namespace echelon
