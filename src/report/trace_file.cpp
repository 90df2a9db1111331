#include "report/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

constexpr int step_tid = 0, exchange_tid = 2;
constexpr Lane lanes[] = {Lane::compute, Lane::transfer, Lane::collective};

/// What is exchanged is next to what computes.
int tid_of(Lane lane) { return lane == Lane::compute ? 1 : 2 + static_cast<int>(lane); }

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::compute: return "compute";
    case Lane::transfer: return "transfer";
    case Lane::collective: return "collective";
  }
  return "?";
}

std::string_view category_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::action: return "action";
    case SpanKind::wait: return "wait";
    case SpanKind::operation: return "operation";
    case SpanKind::communication: return "communication";
  }
  return "?";
}

double microseconds(double seconds) { return seconds * 1e6; }

Json metadata(std::string_view what, int rank, int tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", tid}, {"args", {{"name", name}}}};
}

Json arguments_of(const Span& span, const Program& program) {
  Json args = Json::object();
  if (span.action_id >= 0) {
    const Action& action = program[static_cast<std::size_t>(span.action_id)];
    args["action"] = to_string(action);
    args["id"] = action.id;
  }
  if (span.kind == SpanKind::operation) {
    args["m"] = span.m;
    args["n"] = span.n;
    args["k"] = span.k;
    args["dtype"] = span.dtype;
    args["flops"] = span.flops;
    if (span.flops > 0 && span.seconds() > 0)
      args["gflops_per_second"] = static_cast<double>(span.flops) / span.seconds() / 1e9;
  }
  if (span.kind == SpanKind::operation || span.kind == SpanKind::communication) args["bytes"] = span.bytes;
  if (!span.group.empty()) args["group"] = span.group;
  return args;
}

Json complete(const Span& span, int rank, const Program& program) {
  const Lane lane =
      span.action_id < 0 ? Lane::collective : lane_of(program[static_cast<std::size_t>(span.action_id)].kind);
  const std::string name = span.kind == SpanKind::wait ? fmt::format("wait {}", span.name) : std::string(span.name);
  return {{"ph", "X"},
          {"name", name},
          {"cat", category_of(span.kind)},
          {"pid", rank},
          {"tid", tid_of(lane)},
          {"ts", microseconds(span.start)},
          {"dur", microseconds(span.seconds())},
          {"args", arguments_of(span, program)}};
}

/// An action from its start until its wait. Such events may overlap, so they are not spans of a lane.
void add_flights(Json& events, const StepTrace& step, const Program& program) {
  const Timeline timeline = timeline_of(step, program);
  for (const Span& span : step.spans) {
    if (span.kind != SpanKind::wait) continue;
    const Event& event = timeline.events[static_cast<std::size_t>(span.action_id)];
    const std::string id = fmt::format("{}.{}.{}", step.rank, step.step, span.action_id);
    const std::string name = to_string(program[static_cast<std::size_t>(span.action_id)]);
    for (const auto& [phase, time] : {std::pair{"b", event.start}, std::pair{"e", event.end}})
      events.push_back({{"ph", phase},
                        {"name", name},
                        {"cat", "under way"},
                        {"id", id},
                        {"pid", step.rank},
                        {"tid", tid_of(event.lane)},
                        {"ts", microseconds(time)}});
  }
}

void add_exchanges(Json& events, const StepTrace& step, const Program& program) {
  for (const ExchangeEvent& exchange : timeline_of(step, program).exchanges)
    events.push_back(
        {{"ph", "X"},
         {"name", exchange.name},
         {"cat", "exchange"},
         {"pid", step.rank},
         {"tid", exchange_tid},
         {"ts", microseconds(exchange.start)},
         {"dur", microseconds(exchange.end - exchange.start)},
         {"args",
          {{"action", to_string(program[static_cast<std::size_t>(exchange.action_id)])}, {"id", exchange.action_id}}}});
}

bool has_exchanges(const std::vector<StepTrace>& steps) {
  return std::ranges::any_of(steps, [](const StepTrace& step) {
    return std::ranges::any_of(step.spans, [](const Span& span) { return !span.exchange.empty(); });
  });
}

}  // namespace

std::string to_chrome_json(const std::vector<StepTrace>& steps, const Program& program) {
  Json events = Json::array();
  if (!steps.empty()) {
    const int rank = steps.front().rank;
    events.push_back(metadata("process_name", rank, step_tid, fmt::format("rank {}", rank)));
    events.push_back(metadata("thread_name", rank, step_tid, "step"));
    for (const Lane lane : lanes)
      events.push_back(metadata("thread_name", rank, tid_of(lane), std::string(name_of(lane))));
    if (has_exchanges(steps)) events.push_back(metadata("thread_name", rank, exchange_tid, "exchange of experts"));
  }
  for (const StepTrace& step : steps) {
    events.push_back({{"ph", "X"},
                      {"name", fmt::format("step {}", step.step)},
                      {"cat", "step"},
                      {"pid", step.rank},
                      {"tid", step_tid},
                      {"ts", microseconds(step.start)},
                      {"dur", microseconds(step.end - step.start)}});
    for (const Span& span : step.spans) events.push_back(complete(span, step.rank, program));
    add_flights(events, step, program);
    add_exchanges(events, step, program);
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace echelon
