// echelon inspect of a config: prints the blueprint's figures of a step, without a machine.
#pragma once

#include "base/error.h"

#include <string>
#include <vector>

namespace echelon {

/// `path` may be empty if the keys define the run.
ExitStatus inspect_config(const std::string& path, const std::vector<std::string>& config_arguments, bool json);

}  // namespace echelon
