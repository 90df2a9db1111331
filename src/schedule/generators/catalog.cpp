#include "schedule/generators/catalog.h"

#include "base/error.h"
#include "schedule/simulation/rates.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace echelon {
namespace {

using Request = ScheduleRequest;
constexpr int any = std::numeric_limits<int>::max();

Schedule zb_under_limit(const Request& r, double own_limit) {
  return zb_auto_schedule(r.num_ranks, r.num_microbatches, r.times,
                          {r.memory.limit > 0 ? r.memory.limit : own_limit, r.memory.weight_memory});
}

// clang-format off
constexpr ScheduleEntry entries[] = {
    {PipelineSchedule::naive, "naive", "", Placement::loop, 1, 1, 1, BackwardKinds::fused, 0,
     [](const Request& r) { return naive_schedule(r.num_ranks, r.num_microbatches); }, "one microbatch after the other"},
    {PipelineSchedule::gpipe, "GPipe", "", Placement::loop, 1, 1, 1, BackwardKinds::fused, 0,
     [](const Request& r) { return gpipe_schedule(r.num_ranks, r.num_microbatches); }, "Huang et al. 2019, arXiv:1811.06965"},
    {PipelineSchedule::one_f_one_b, "1F1B", "", Placement::loop, 1, 1, 1, BackwardKinds::fused, 0,
     [](const Request& r) { return one_f_one_b_schedule(r.num_ranks, r.num_microbatches); }, "Narayanan et al. 2021, arXiv:2104.04473, fig. 4 top"},
    {PipelineSchedule::interleaved_one_f_one_b, "Interleaved1F1B", "1F1B-I", Placement::loop, 2, any, 2, BackwardKinds::fused, 0,
     [](const Request& r) { return interleaved_one_f_one_b_schedule(r.num_ranks, r.num_microbatches, r.num_virtual); },
     "Narayanan et al. 2021, arXiv:2104.04473, fig. 4 bottom"},
    {PipelineSchedule::looped_bfs, "LoopedBFS", "", Placement::loop, 1, any, 2, BackwardKinds::fused, 0,
     [](const Request& r) { return looped_bfs_schedule(r.num_ranks, r.num_microbatches, r.num_virtual); }, "Lamy-Poirier 2022, arXiv:2211.05953"},
    {PipelineSchedule::interleaved_zero_bubble, "InterleavedZeroBubble", "", Placement::loop, 1, any, 2, BackwardKinds::split, 0,
     [](const Request& r) { return interleaved_zero_bubble_schedule(r.num_ranks, r.num_microbatches, r.num_virtual); }, "ZB-H1's weights in interleaved 1F1B"},
    {PipelineSchedule::zb_h1, "ZB-H1", "", Placement::loop, 1, 1, 1, BackwardKinds::split, 0,
     [](const Request& r) { return zb_h1_schedule(r.num_ranks, r.num_microbatches); }, "Qi et al. 2023, arXiv:2401.10241, fig. 3 top"},
    {PipelineSchedule::zb_h2, "ZB-H2", "", Placement::loop, 1, 1, 1, BackwardKinds::split, 0,
     [](const Request& r) { return zb_h2_schedule(r.num_ranks, r.num_microbatches); }, "Qi et al. 2023, arXiv:2401.10241, fig. 3 bottom"},
    {PipelineSchedule::zb_1p, "ZB-1p", "", Placement::loop, 1, 1, 1, BackwardKinds::split, 0,
     [](const Request& r) { return zb_under_limit(r, r.num_ranks); }, "Qi et al. 2023, arXiv:2401.10241, section 3"},
    {PipelineSchedule::zb_2p, "ZB-2p", "", Placement::loop, 1, 1, 1, BackwardKinds::split, 0,
     [](const Request& r) { return zb_under_limit(r, 2.0 * r.num_ranks); }, "Qi et al. 2023, arXiv:2401.10241, section 3"},
    {PipelineSchedule::zb_v, "ZB-V", "ZBVZeroBubble", Placement::v, 2, 2, 2, BackwardKinds::split, 0,
     [](const Request& r) { return zb_v_schedule(r.num_ranks, r.num_microbatches); }, "Qi et al. 2024, arXiv:2405.15362"},
    {PipelineSchedule::dualpipe_v, "DualPipeV", "", Placement::v, 2, 2, 2, BackwardKinds::both, 2,
     [](const Request& r) { return dualpipe_v_schedule(r.num_ranks, r.num_microbatches); }, "DeepSeek-AI 2024, arXiv:2412.19437, folded into a V"},
};
// clang-format on

std::string without_dashes(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

}  // namespace

std::span<const ScheduleEntry> all_schedules() { return entries; }

const ScheduleEntry& entry_of(PipelineSchedule kind) {
  return *std::find_if(std::begin(entries), std::end(entries),
                       [&](const ScheduleEntry& entry) { return entry.kind == kind; });
}

std::string_view name_of(PipelineSchedule kind) { return entry_of(kind).name; }
std::string_view name_of(Placement placement) { return placement == Placement::loop ? "loop" : "V"; }

std::string_view name_of(BackwardKinds kinds) {
  switch (kinds) {
    case BackwardKinds::fused: return "fused";
    case BackwardKinds::split: return "split";
    case BackwardKinds::both: return "both";
  }
  return "?";
}

PipelineSchedule parse_pipeline_schedule(std::string_view key, std::string_view name) {
  const std::string plain = without_dashes(name);
  std::vector<std::string_view> names;
  for (const ScheduleEntry& entry : entries) {
    for (const std::string_view known : {entry.name, entry.also_called}) {
      if (known.empty()) continue;
      if (plain == without_dashes(known)) return entry.kind;
      names.push_back(known);
    }
  }
  throw Error(fmt::format("{} = '{}' is not one of {}; did you mean {}?", key, name, fmt::join(names, ", "),
                          closest_name(name, names)));
}

ScheduleRequest checked(PipelineSchedule kind, const ScheduleRequest& request, const ScheduleKeys& keys) {
  const ScheduleEntry& entry = entry_of(kind);
  ScheduleRequest asked = request;
  if (asked.num_virtual == 0) asked.num_virtual = entry.default_virtual;
  const int closest_virtual = std::clamp(asked.num_virtual, entry.least_virtual, entry.most_virtual);
  require(asked.num_virtual == closest_virtual, "{} = {} is not supported for {} = '{}' (use {})", keys.num_virtual,
          asked.num_virtual, keys.schedule, entry.name, closest_virtual);
  const int least_microbatches = entry.microbatches_per_rank * asked.num_ranks;
  require(asked.num_microbatches >= least_microbatches,
          "{} = '{}' on {} ranks needs at least {} microbatches, but {} makes {} (use {} = {})", keys.schedule,
          entry.name, asked.num_ranks, least_microbatches, keys.num_microbatches, asked.num_microbatches,
          keys.num_microbatches, least_microbatches * keys.per_microbatch);
  require(asked.memory.limit == 0 || asked.memory.limit >= 1, "{} = {} has no room for a microbatch (use 1)",
          keys.memory_limit, asked.memory.limit);
  return asked;
}

Schedule make_schedule(PipelineSchedule kind, const ScheduleRequest& request, const ScheduleKeys& keys) {
  Schedule schedule = entry_of(kind).generate(checked(kind, request, keys));
  check_memory(schedule, request.memory, keys.memory_limit);
  return schedule;
}

void check_memory(const Schedule& schedule, const MemoryLimit& memory, std::string_view key) {
  if (memory.limit == 0) return;
  const std::vector<double> peaks = peak_memory(schedule, memory.weight_memory);
  const auto highest = std::max_element(peaks.begin(), peaks.end());
  const double enough = std::ceil(*highest * 1000) / 1000;  // no more digits than a person would write
  require(*highest <= memory.limit + 1e-9, "{} = {} is less than the {} microbatches in flight on rank {} (use {})",
          key, memory.limit, *highest, highest - peaks.begin(), enough);
}

}  // namespace echelon
