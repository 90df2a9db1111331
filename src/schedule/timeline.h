// The times of actions: one type for a measured step and a predicted one, so that the two can be compared.
#pragma once

#include "schedule/action.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

namespace echelon {

enum class Lane : std::uint8_t { compute, transfer, collective };
[[nodiscard]] Lane lane_of(ActionKind kind);

/// One action of one pipeline rank. Times are seconds, or units of whatever cost was given to `simulate_programs`.
struct Event {
  int rank = -1;
  int action_id = -1;  // its position in programs[rank]
  Lane lane{};
  double start = 0, end = 0;
  bool operator==(const Event&) const = default;
};

/// The time of an event that does not happen.
inline constexpr double no_time = std::numeric_limits<double>::infinity();

/// Rows of experts on their way inside a pass, next to what its rank computes. Those of a rank follow each other.
struct ExchangeEvent {
  int rank = -1, action_id = -1;
  std::string_view name;  // "dispatch", "combine"; outlives the event
  double start = 0, end = 0;
};
/// Adds it; what overlaps or touches the one before, of the same rank, action and name, becomes one with it.
void add_exchange(std::vector<ExchangeEvent>& exchanges, const ExchangeEvent& next);

struct Timeline {
  std::vector<Event> events;  // rank after rank, in the order of their programs
  std::vector<ExchangeEvent> exchanges = {};
};

/// How long an action of a rank takes after all its participants have arrived.
using Cost = std::function<double(int rank, const Action&)>;

/// The costs of the papers' figures: what a stage needs for one microbatch. A backward of one unit takes its even part
/// of `backward`; all else is free.
struct StageCosts {
  double forward = 1;
  double backward = 2;
  double transfer = 0;
  int num_units = 1;  // of each stage
};
[[nodiscard]] Cost cost_of(const StageCosts& costs);

/// Runs programs without data: every action starts and ends as early as the graph of event_graph.h lets it. Throws
/// Failure if they deadlock.
[[nodiscard]] Timeline simulate_programs(const std::vector<Program>& programs, const Cost& cost);

/// The fraction of time, between the first and the last forward or backward of any rank, in which ranks run neither.
[[nodiscard]] double bubble(const Timeline& timeline, const std::vector<Program>& programs);

}  // namespace echelon
