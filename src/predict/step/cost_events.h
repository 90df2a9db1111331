// An action as a list of what takes time. Computing and communicating are two lanes: a communication runs from its
// start, after those that were started before it, and the action stops at a wait until it has ended.
#pragma once

#include "blueprint/call_trace.h"
#include "predict/step/issue_time.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <variant>
#include <vector>

namespace echelon {

/// Seconds of computing, the start of a communication in a group of more than one rank, or the wait for one.
using CostEvent = std::variant<double, CommRecord, CommWait>;

/// Small: the hops of a ring communicate the same thousands of times, which is kept once.
class CostEvents {
 public:
  CostEvents() = default;
  CostEvents(std::initializer_list<CostEvent> events) {
    for (const CostEvent& event : events)
      if (const auto* const seconds = std::get_if<double>(&event))
        compute(*seconds);
      else if (const auto* const record = std::get_if<CommRecord>(&event))
        start(*record);
      else
        wait(std::get<CommWait>(event).start);
  }

  /// Without a communication between them, computations become one event.
  void compute(double seconds, const IssueTime& issue = {}) {
    if (events_.empty() || events_.back().kind != Kind::computing) events_.push_back({.kind = Kind::computing});
    events_.back().issue.then(issue, seconds);
    events_.back().seconds += seconds;
  }
  void start(const CommRecord& record) {
    auto same = std::find(records_.rbegin(), records_.rend(), record);  // most often one of the last
    if (same == records_.rend()) {
      records_.push_back(record);
      same = records_.rbegin();
    }
    events_.push_back({.kind = Kind::start, .index = static_cast<std::uint32_t>(records_.rend() - same - 1)});
  }
  /// For the `start`-th communication.
  void wait(std::size_t start) { events_.push_back({.kind = Kind::wait, .index = static_cast<std::uint32_t>(start)}); }
  void shrink_to_fit() {
    events_.shrink_to_fit();
    records_.shrink_to_fit();
  }

  /// Those that differ.
  [[nodiscard]] const std::vector<CommRecord>& records() const { return records_; }
  [[nodiscard]] double compute_seconds() const {
    double sum = 0;
    for (const Event& event : events_) sum += event.seconds;
    return sum;
  }
  /// Until both lanes have ended. `seconds_of(record)`: of a communication, one of records(). `placed(record, start,
  /// end)` is told when each is under way.
  template <class SecondsOfCommunication, class Placed>
  [[nodiscard]] double seconds(SecondsOfCommunication&& seconds_of, Placed&& placed) const {
    double computed = 0, communicated = 0;  // until when each lane is busy
    std::vector<double> ends;               // of communications
    ends.reserve(events_.size());
    for (const Event& event : events_) switch (event.kind) {
        case Kind::computing: computed += event.seconds; break;
        case Kind::start: {
          const CommRecord& started = records_[event.index];
          const double start = std::max(communicated, computed);
          communicated = start + seconds_of(started);
          placed(started, start, communicated);
          ends.push_back(communicated);
          break;
        }
        case Kind::wait: computed = std::max(computed, ends[event.index]); break;
      }
    return std::max(computed, communicated);
  }
  template <class SecondsOfCommunication>
  [[nodiscard]] double seconds(SecondsOfCommunication&& seconds_of) const {
    return seconds(seconds_of, [](const CommRecord&, double, double) {});
  }
  /// By a host that takes `collective_seconds` to issue a communication.
  template <class SecondsOfCommunication>
  [[nodiscard]] IssueTime issue_time(double collective_seconds, SecondsOfCommunication&& seconds_of) const {
    double host = 0, computed = 0, communicated = 0;  // until when each is busy
    std::vector<double> ends;                         // of communications
    for (const Event& event : events_) switch (event.kind) {
        case Kind::computing:
          computed = std::max(computed + event.seconds, host + event.issue.after_host_seconds);
          host += event.issue.issue_seconds;
          break;
        case Kind::start:
          host += collective_seconds;
          communicated = std::max({communicated, computed, host}) + seconds_of(records_[event.index]);
          ends.push_back(communicated);
          break;
        case Kind::wait: computed = std::max(computed, ends[event.index]); break;
      }
    return {host, std::max({host, computed, communicated})};
  }
  bool operator==(const CostEvents&) const = default;

 private:
  enum class Kind : std::uint32_t { computing, start, wait };
  struct Event {
    Kind kind = Kind::computing;
    std::uint32_t index = 0;  // of a record, or of a start
    double seconds = 0;       // of computing
    IssueTime issue = {};     // likewise
    bool operator==(const Event&) const = default;
  };

  std::vector<Event> events_;
  std::vector<CommRecord> records_;
};

}  // namespace echelon
