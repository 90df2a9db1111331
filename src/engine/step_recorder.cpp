#include "engine/step_recorder.h"

#include "base/clock.h"

namespace echelon {
namespace {

Span span_of(const TimedOperation& operation) {
  return {.kind = SpanKind::operation,
          .name = name_of(operation.kind),
          .start = operation.start,
          .end = operation.end,
          .dtype = name_of(operation.dtype),
          .m = operation.cost.m,
          .n = operation.cost.n,
          .k = operation.cost.k,
          .flops = operation.cost.flops,
          .bytes = operation.cost.bytes,
          .group = {}};
}

/// "all_reduce wait"; such names outlive all spans.
std::string_view name_of_call(const TimedCall& call) {
  static const std::map<std::pair<CommKind, TimedCall::Phase>, std::string> names = [] {
    std::map<std::pair<CommKind, TimedCall::Phase>, std::string> table;
    for (int kind = 0; kind <= static_cast<int>(CommKind::barrier); ++kind)
      for (const auto phase : {TimedCall::Phase::start, TimedCall::Phase::wait})
        table[{static_cast<CommKind>(kind), phase}] =
            fmt::format("{} {}", name_of(static_cast<CommKind>(kind)), name_of(phase));
    return table;
  }();
  return call.phase == TimedCall::Phase::poll ? "poll" : std::string_view(names.at({call.kind, call.phase}));
}

Span span_of(const TimedCall& call) {
  const bool is_poll = call.phase == TimedCall::Phase::poll, is_wait = call.phase == TimedCall::Phase::wait;
  return {.kind = SpanKind::communication,
          .name = name_of_call(call),
          .start = call.start,
          .end = call.end,
          .dtype = {},
          .bytes = call.num_bytes,
          .group = is_poll ? std::string() : name_of(call.group),
          .exchange = is_wait ? name_of(call.purpose) : std::string_view(),
          .under_way_since = call.under_way_since};
}

}  // namespace

StepRecorder::StepRecorder(Ops& ops, Mesh& mesh)
    : ops_(ops,
           [this](const TimedOperation& operation) {
             if (is_recording_) add(span_of(operation));
           }),
      mesh_(mesh, [this](const TimedCall& call) {
        if (is_recording_) add(span_of(call));
      }) {}

void StepRecorder::begin_step(std::int64_t step) {
  steps_.push_back({.step = step, .rank = mesh_.rank(), .start = 0, .end = 0, .attention_share = 1, .spans = {}});
  if (steps_.size() > 1) steps_.back().spans.reserve(steps_.front().spans.size());
  is_recording_ = true;
  steps_.back().start = now_seconds();
}

void StepRecorder::end_step(double attention_share) {
  steps_.back().attention_share = attention_share;
  steps_.back().end = now_seconds();
  is_recording_ = false;
}

void StepRecorder::begins(const Action& action, ActionPart part) {
  open_ = {.kind = part == ActionPart::perform ? SpanKind::action : SpanKind::wait,
           .name = name_of(action.kind),
           .action_id = action.id,
           .start = now_seconds(),
           .dtype = {},
           .group = {}};
}

void StepRecorder::ends() {
  open_.end = now_seconds();
  if (is_recording_) add(open_);
  open_ = {};
}

void StepRecorder::add(Span span) {
  span.action_id = open_.action_id;
  steps_.back().spans.push_back(std::move(span));
}

}  // namespace echelon
