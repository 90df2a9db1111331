#include "blueprint/call_trace.h"

#include <algorithm>

namespace echelon {
namespace {

template <class Event>
std::vector<Event> events_of(const std::vector<TraceEvent>& events) {
  std::vector<Event> found;
  for (const TraceEvent& event : events)
    if (const auto* each = std::get_if<Event>(&event)) found.push_back(*each);
  return found;
}

}  // namespace

CallTrace& CallTrace::operator+=(const CallTrace& next) {
  const auto num_starts = static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(), [](const TraceEvent& event) { return std::holds_alternative<CommRecord>(event); }));
  for (const TraceEvent& event : next.events) {
    if (const auto* wait = std::get_if<CommWait>(&event))
      events.emplace_back(CommWait{wait->start + num_starts});
    else
      events.push_back(event);
  }
  workspace_bytes = std::max(workspace_bytes, next.workspace_bytes);
  return *this;
}

std::vector<OpRecord> CallTrace::operations() const { return events_of<OpRecord>(events); }
std::vector<CommRecord> CallTrace::communications() const { return events_of<CommRecord>(events); }

}  // namespace echelon
