// Encodes tens of thousands of bars compactly for the page's script: about four characters per bar if bars repeat, ten
// if they are measured.
//
//     row: number of bars, then of each, in the order of their starts:
//          group, start - end of the bar before, (end - start) - that of the group's bar before, microbatch - that of
//          the group's bar before
//
// as variable-length integers (7 bits a byte, low ones first, the high bit says that more follow), signed ones as 2 n
// or -2 n - 1; all in base64.
#pragma once

#include "report/html/html_timeline.h"

#include <string>
#include <vector>

namespace echelon {

struct BarGroup {
  BarKind kind{};
  int stage = -1;
  bool is_merged = false;  // then the number of actions replaces the microbatch
  auto operator<=>(const BarGroup&) const = default;
};

struct BarCode {
  static constexpr std::int64_t num_ticks = 1 << 24;  // relative to the whole time
  double span_seconds = 0;
  std::vector<BarGroup> groups;
  std::string base64;
};

[[nodiscard]] BarCode encode(const HtmlTimeline& timeline);

}  // namespace echelon
