// Sentences that the text, the drawing and the page of a context-parallel sequence share.
#pragma once

#include "pages/context_parallel/context_picture.h"

#include <string>

namespace echelon {

/// "4 ranks of a ring", "4 ranks that gather keys, 8 query and 2 kv heads"
[[nodiscard]] std::string ranks_text(const ContextPicture& picture);
/// What the rows of keys are that are sent, and how many.
[[nodiscard]] std::string sent_text(const ContextPicture& picture);
/// What the pairs of attention are, and what a rank waits for.
[[nodiscard]] std::string pairs_text(const ContextPicture& picture);
/// "0-3", "2"
[[nodiscard]] std::string range_text(std::int64_t first, std::int64_t count);

}  // namespace echelon
