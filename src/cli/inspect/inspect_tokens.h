// echelon inspect of token files: their sizes, or some of their documents as text.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <string>

namespace echelon {

ExitStatus inspect_tokens(const std::string& prefix, bool json);

/// Prints `count` documents, evenly spaced, with what loss falls on in brackets, or in green on a terminal. Throws
/// Error if there is no tokenizer.json next to the files, or not the one that they were prepared with.
ExitStatus inspect_sample(const std::string& prefix, std::int64_t count, bool json);

}  // namespace echelon
