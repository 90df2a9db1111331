// What a pipeline rank holds during its passes, counted: how many microbatches of each of its stages have saved
// something. Of passes of one kind and stage those that hold the most are enough for a bound of memory, and in most
// schedules these are a few.
#pragma once

#include "plan/bounds/compact_schedule.h"

namespace echelon {

/// Of a stage: microbatches with what forward saved, with its part that backward_input reads last, and with what
/// backward_input saved.
struct HeldMicrobatches {
  std::int32_t stashes = 0, input_stashes = 0, gradient_stashes = 0;
};

struct PassState {
  PassKind kind{};
  std::uint16_t stage = 0;
  std::vector<HeldMicrobatches> held = {};  // by the rank's stages
};

struct RankStates {
  std::vector<std::uint16_t> stages = {};  // of the rank, ascending
  std::vector<PassState> states = {};      // in the order of passes
};

/// By rank: the states of passes that no other pass of the same kind and stage has at least as much of everything of.
[[nodiscard]] std::vector<RankStates> states_of(const CompactSchedule& schedule);

}  // namespace echelon
