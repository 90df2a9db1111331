#include "comm/mpi/stall_diagnosis.h"

#include <algorithm>
#include <cstring>

namespace echelon {

std::vector<std::byte> WaitState::to_bytes() const {
  constexpr std::size_t most_text = 1000, most_ranks = 100;
  const std::int32_t num_ranks = static_cast<std::int32_t>(std::min(waits_for.size(), most_ranks));
  const std::string_view words = std::string_view(text).substr(0, most_text);
  std::vector<std::byte> bytes(sizeof(num_ranks) + static_cast<std::size_t>(num_ranks) * sizeof(std::int32_t) +
                               words.size());
  std::memcpy(bytes.data(), &num_ranks, sizeof(num_ranks));
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_ranks); ++i) {
    const std::int32_t rank = waits_for[i];
    std::memcpy(bytes.data() + (i + 1) * sizeof(rank), &rank, sizeof(rank));
  }
  std::memcpy(bytes.data() + bytes.size() - words.size(), words.data(), words.size());
  return bytes;
}

WaitState WaitState::from_bytes(const std::byte* bytes, std::int64_t num_bytes) {
  std::int32_t num_ranks = 0;
  std::memcpy(&num_ranks, bytes, sizeof(num_ranks));
  WaitState state;
  for (std::int32_t i = 0; i < num_ranks; ++i) {
    std::int32_t rank = 0;
    std::memcpy(&rank, bytes + (i + 1) * static_cast<std::int32_t>(sizeof(rank)), sizeof(rank));
    state.waits_for.push_back(rank);
  }
  const std::int64_t text_begin = (num_ranks + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  state.text.assign(reinterpret_cast<const char*>(bytes) + text_begin,
                    static_cast<std::size_t>(num_bytes - text_begin));
  return state;
}

void StallDiagnosis::ask(Wire& wire, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    if (rank == rank_ || !asked_.try_emplace(rank).second) continue;
    Note question;
    question.kind = NoteKind::question;
    question.source = rank_;
    wire.send_note(rank, question, nullptr);
  }
}

void StallDiagnosis::take(Wire& wire, int rank, WaitState state) {
  ask(wire, state.waits_for);
  asked_[rank] = std::move(state);
}

std::string StallDiagnosis::findings() const {
  std::string witnesses;
  std::vector<int> silent;
  for (const auto& [rank, state] : asked_) {
    if (!state) {
      silent.push_back(rank);
      continue;
    }
    witnesses += fmt::format("; rank {} {}", rank, state->text);
    if (!state->waits_for.empty()) witnesses += " for " + listed(state->waits_for);
  }
  if (!silent.empty())
    witnesses += fmt::format("; {} not answer", listed(silent) + (silent.size() == 1 ? " does" : " do"));
  return witnesses;
}

}  // namespace echelon
