// Finds the rank that delays a long wait: the waiting rank asks the ranks that it waits for what they wait for, and so
// on, until one does not answer.
#pragma once

#include "comm/mpi/wire.h"

#include <map>
#include <optional>
#include <string>

namespace echelon {

/// What a rank waits for; it is sent after a note.
struct WaitState {
  std::string text;            // "waits in all_reduce(sum) of 10 float32"
  std::vector<int> waits_for;  // ranks of the mesh

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  [[nodiscard]] static WaitState from_bytes(const std::byte* bytes, std::int64_t num_bytes);
};

class StallDiagnosis {
 public:
  explicit StallDiagnosis(int rank) : rank_(rank) {}

  /// Asks the ranks that were not asked yet.
  void ask(Wire& wire, const std::vector<int>& ranks);
  void take(Wire& wire, int rank, WaitState state);
  /// "rank 2 waits in ... for rank 3; rank 3 does not answer"; empty if no rank was asked.
  [[nodiscard]] std::string findings() const;

 private:
  int rank_;
  std::map<int, std::optional<WaitState>> asked_;
};

}  // namespace echelon
