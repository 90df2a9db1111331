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
  std::int32_t open = 0;  // stages of which there are stashes: one at most, or of a kind several
};

struct PassState {
  PassKind kind{};
  std::uint16_t stage = 0;
  std::vector<HeldMicrobatches> held = {};  // by the rank's stages, or by kinds of them
};

struct RankStates {
  std::vector<std::uint16_t> stages = {};  // of the rank, ascending; or the first one of each kind
  std::vector<PassState> states = {};      // in the order of passes
};

/// By rank: the states of passes that no other pass of the same kind and stage has at least as much of everything of.
[[nodiscard]] std::vector<RankStates> states_of(const CompactSchedule& schedule);

/// The same where stages of the same kind hold as much, as most stages of a model do: far fewer states are left.
/// `kinds`: by stage.
[[nodiscard]] std::vector<RankStates> states_of_kinds(const std::vector<RankStates>& ranks,
                                                      const std::vector<std::size_t>& kinds);

}  // namespace echelon
