// The page's style and script: the files of src/report/page/, which the build turns into strings.
#pragma once

#include <string_view>

namespace echelon {

extern const std::string_view page_style;
extern const std::string_view page_script;

}  // namespace echelon
