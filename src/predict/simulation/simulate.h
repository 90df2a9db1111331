// Times one step of a blueprint on a machine without running it: discrete events over the lowered programs, each
// replica of a class once.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/software/software_profile.h"
#include "predict/step/action_time.h"
#include "predict/step/step_parts.h"
#include "schedule/timeline.h"
#include "spec/machine/machine_spec.h"

#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace echelon {

struct SimulationOptions {
  SoftwareProfile profile = {};
  std::map<int, double> slow_ranks = {};      // factors of the time of what they compute
  std::vector<double> attention_shares = {};  // on a host: by rank, what documents leave of attention's time
  ProgramKind kind = ProgramKind::training;   // or with a snapshot, where the blueprint has such programs
};

/// A rank that was simulated, for all that do the same at the same time: the tensor- and context-parallel ranks of a
/// stage of all replicas of a class. Of context-parallel ranks it is the one with the most pairs (query, key).
struct SimulatedRank {
  int rank = 0;  // one of them
  int pipeline_rank = 0;
  int num_ranks = 1;
  StepParts parts = {};
  std::map<std::string, std::int64_t> sent_bytes = {};  // of one rank in one step, by the name of the group
  std::vector<int> lanes = {};                          // of each action of its program
  std::vector<std::string> lane_names = {};
  // Of each action, as it would be alone: what of a pass is sent inside its layers and not hidden.
  std::vector<double> layers_send_seconds = {};
  // Likewise, and how long it would take: what is sent inside its layers; empty of others than passes.
  std::vector<double> alone_seconds = {};
  std::vector<std::vector<MessageTime>> layer_messages = {};
};

/// What a pipeline rank holds.
struct PredictedMemory {
  std::map<MemoryCategory, std::int64_t> category_bytes = {};  // each at the moment when it needs most
  // At the moment when they need most together, as far as they need anything then.
  std::map<MemoryCategory, std::int64_t> bytes_at_peak = {};
  std::int64_t arena_bytes = 0;  // of all at that moment, and what is lost between them
  // What the arena may have on the smallest device of the stage, and what the driver, libraries and NCCL take there.
  std::int64_t device_bytes = 0, reserved_bytes = 0;

  [[nodiscard]] std::int64_t room() const { return device_bytes - arena_bytes; }
  [[nodiscard]] double share() const { return static_cast<double>(arena_bytes) / static_cast<double>(device_bytes); }
};

[[nodiscard]] PredictedMemory predicted_memory(const RankBlueprint& rank,
                                               std::int64_t device_bytes = std::numeric_limits<std::int64_t>::max());

/// Of one training step after the first.
struct Simulation {
  double step_seconds = 0;
  StepParts parts = {};                                 // the mean over all ranks; adds up to the step
  double model_flops = 0;                               // of the step over all ranks, as spec/model_spec.h counts them
  double hardware_flops = 0;                            // what is computed, recomputation included
  double peak_flops = 0;                                // of all devices together, in the format of the matmuls
  std::vector<PredictedMemory> memory = {};             // by pipeline rank
  std::map<std::string, std::int64_t> sent_bytes = {};  // in one step by all ranks, by the name of the group
  std::vector<SimulatedRank> ranks = {};                // class after class, each by pipeline rank
  Timeline timeline = {};                               // of `ranks`; seconds
  std::int64_t num_events = 0;

  [[nodiscard]] double mfu() const { return peak_flops > 0 ? model_flops / (peak_flops * step_seconds) : 0; }
  [[nodiscard]] double hfu() const { return peak_flops > 0 ? hardware_flops / (peak_flops * step_seconds) : 0; }
  [[nodiscard]] bool fits() const;
  [[nodiscard]] std::int64_t peak_memory_bytes() const;     // of the rank with the highest memory use
  [[nodiscard]] const PredictedMemory& least_room() const;  // of the stage that leaves least; throws if there is none
};

/// Throws Error if the machine has too few devices or no rates for the format, or if a slow rank is none of the mesh or
/// its factor no number above 0.
[[nodiscard]] Simulation simulate(const Blueprint& blueprint, const MachineSpec& machine,
                                  const SimulationOptions& options = {});
/// The seconds of a step alone, on one machine after the other; none is a host, and they differ in their rates alone.
[[nodiscard]] std::vector<double> step_seconds_on(std::span<const MachineSpec> machines, const Blueprint& blueprint,
                                                  const SoftwareProfile& profile = {});

}  // namespace echelon
