// Every pipeline schedule by name: what config, drawings and documents know of it, in one table.
#pragma once

#include "schedule/generators/zb_auto.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace echelon {

enum class PipelineSchedule : std::uint8_t {
  naive,
  gpipe,
  one_f_one_b,
  interleaved_one_f_one_b,
  looped_bfs,
  interleaved_zero_bubble,
  zb_h1,
  zb_h2,
  zb_1p,
  zb_2p,
  zb_v,
  dualpipe_v,
};

enum class Placement : std::uint8_t { loop, v };                 // of stages on ranks: s % p | down and up again
enum class BackwardKinds : std::uint8_t { fused, split, both };  // a backward in one piece | input and weights apart

/// All that a generator may ask for.
struct ScheduleRequest {
  int num_ranks = 1;
  int num_microbatches = 1;
  int num_virtual = 0;   // stages a rank; 0: the schedule's default
  PassTimes times{};     // of those that are found by search; all others depend on whole numbers alone
  MemoryLimit memory{};  // likewise; limit 0: the schedule's own
};

struct ScheduleEntry {
  PipelineSchedule kind{};
  std::string_view name;         // the papers'
  std::string_view also_called;  // torchtitan's, where it differs
  Placement placement{};
  int least_virtual = 1, most_virtual = 1, default_virtual = 1;
  BackwardKinds backward{};
  int microbatches_per_rank = 0;  // at least so many times the number of ranks
  Schedule (*generate)(const ScheduleRequest& request) = nullptr;
  std::string_view source;
};

[[nodiscard]] std::span<const ScheduleEntry> all_schedules();
[[nodiscard]] const ScheduleEntry& entry_of(PipelineSchedule kind);
[[nodiscard]] std::string_view name_of(PipelineSchedule kind);
[[nodiscard]] std::string_view name_of(Placement placement);
[[nodiscard]] std::string_view name_of(BackwardKinds kinds);

/// In any letter case, with or without dashes. Throws Error naming `key` and the closest valid value.
[[nodiscard]] PipelineSchedule parse_pipeline_schedule(std::string_view key, std::string_view name);

/// The user's names for what may be invalid in a request.
struct ScheduleKeys {
  std::string_view schedule, num_virtual, num_microbatches, memory_limit;
  std::int64_t per_microbatch = 1;  // by how much the value of the key that sets num_microbatches grows with one more
};

/// Fills in the number of virtual stages if the request leaves it open. Throws Error naming the key if the schedule
/// does not exist for these ranks, microbatches, virtual stages or this limit.
[[nodiscard]] ScheduleRequest checked(PipelineSchedule kind, const ScheduleRequest& request, const ScheduleKeys& keys);
[[nodiscard]] Schedule make_schedule(PipelineSchedule kind, const ScheduleRequest& request, const ScheduleKeys& keys);

/// Throws Error naming `key` if a rank holds more activations than the limit, unless that is 0.
void check_memory(const Schedule& schedule, const MemoryLimit& memory, std::string_view key);

}  // namespace echelon
