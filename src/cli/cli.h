// The program's command line: finds and runs the command, and turns an exception into one line and an exit status.
#pragma once

#include <string>
#include <vector>

namespace echelon {

/// `arguments` without the program's name. Returns 0, 1 (failure), 2 (bad input) or 130 (Ctrl-C); see ExitStatus. Never
/// throws.
[[nodiscard]] int run_cli(const std::vector<std::string>& arguments) noexcept;

}  // namespace echelon
