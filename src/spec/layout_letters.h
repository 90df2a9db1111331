// Megatron's layout string: "Et*3|(tt|)*2tL" are the stages Ettt, tt, tt and tL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// The letters of each stage, with repeats expanded. Blanks and commas are skipped. Throws Error naming
/// parallelism.pipeline_parallel_layout, the character and the fault.
[[nodiscard]] std::vector<std::string> layout_letters(std::string_view text);

}  // namespace echelon
