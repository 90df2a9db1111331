#include "report/html/bar_code.h"

#include "base/text/base64.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace echelon {
namespace {

void append(std::string& bytes, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(0x80 | (number & 0x7f));
  bytes += static_cast<char>(number);
}

void append_signed(std::string& bytes, std::int64_t number) {
  append(bytes,
         number >= 0 ? 2 * static_cast<std::uint64_t>(number) : 2 * static_cast<std::uint64_t>(-(number + 1)) + 1);
}

/// The bar that the next one is encoded relative to.
struct Before {
  std::int64_t ticks = 0, number = 0;
};

}  // namespace

BarCode encode(const HtmlTimeline& timeline) {
  BarCode code;
  std::vector<std::vector<const TimelineBar*>> rows(timeline.rows.size());
  for (const TimelineBar& bar : timeline.bars) {
    code.span_seconds = std::max(code.span_seconds, bar.end);
    rows[static_cast<std::size_t>(bar.row)].push_back(&bar);
  }
  const auto ticks = [&](double seconds) {
    return std::llround(seconds / code.span_seconds * static_cast<double>(BarCode::num_ticks));
  };
  std::map<BarGroup, std::uint64_t> index_of;
  std::string bytes;
  for (auto& row : rows) {
    std::stable_sort(row.begin(), row.end(), [](const auto* a, const auto* b) { return a->start < b->start; });
    append(bytes, row.size());
    std::int64_t end_before = 0;
    std::map<std::uint64_t, Before> before;
    for (const TimelineBar* bar : row) {
      const BarGroup group = {bar->kind, bar->stage, bar->num_actions > 1};
      const auto [found, is_new] = index_of.emplace(group, index_of.size());
      if (is_new) code.groups.push_back(group);
      Before& last = before[found->second];
      const Before now = {ticks(bar->end) - ticks(bar->start), group.is_merged ? bar->num_actions : bar->microbatch};
      append(bytes, found->second);
      append_signed(bytes, ticks(bar->start) - end_before);
      append_signed(bytes, now.ticks - last.ticks);
      append_signed(bytes, now.number - last.number);
      last = now;
      end_before = ticks(bar->end);
    }
  }
  code.base64 = to_base64(bytes);
  return code;
}

}  // namespace echelon
