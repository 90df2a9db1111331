// A timeline as text, one row per pipeline rank, like the figures of the papers.
#pragma once

#include "schedule/timeline.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

/// stage -> its index among the stages of its rank, from 0.
[[nodiscard]] std::map<int, int> turns_of(const std::vector<Program>& programs);
/// 'F', 'B' or 'W' of a compute action.
[[nodiscard]] char letter_of(ActionKind kind);

struct DrawOptions {
  // Columns for one unit of the timeline's time; 0: as many as the shortest forward or backward needs for its name.
  int columns_per_unit = 0;
  int max_columns = 200;  // a longer drawing is scaled down to this
};

/// "F3" is the forward and "B3==" the backward of the third microbatch (counted from 1, as the papers do), stretched to
/// its time with '='; blanks are the bubble. Split backwards are "B" (input) and "W" (weight). Of ranks with two stages
/// the second has small letters; of ranks with more, stage after stage has an 'a', a 'b', a 'c' at the end. Draws what
/// is computed and nothing else.
[[nodiscard]] std::string draw(const Timeline& timeline, const std::vector<Program>& programs,
                               const DrawOptions& options = {});

}  // namespace echelon
