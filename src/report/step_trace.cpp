#include "report/step_trace.h"

#include <algorithm>
#include <cstddef>

namespace echelon {

Timeline timeline_of(const StepTrace& trace, const Program& program) {
  Timeline timeline;
  for (const Action& action : program)
    timeline.events.push_back({trace.rank, action.id, lane_of(action.kind), trace.start, trace.start});
  for (const Span& span : trace.spans) {
    if (!span.exchange.empty())
      add_exchange(timeline.exchanges, {trace.rank, span.action_id, span.exchange, span.under_way_since, span.end});
    if (span.kind != SpanKind::action && span.kind != SpanKind::wait) continue;
    Event& event = timeline.events[static_cast<std::size_t>(span.action_id)];
    if (span.kind == SpanKind::action) event.start = span.start;
    event.end = std::max(event.end, span.end);
  }
  return timeline;
}

}  // namespace echelon
