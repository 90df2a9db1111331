// Who holds up a rank that waits for long: it asks those whom it waits for what they wait for, and so on, until
// somebody does not answer.
#pragma once

#include "comm/mpi/wire.h"

#include <map>
#include <optional>
#include <string>

namespace echelon {

/// What a rank says of itself; it travels behind a note.
struct Testimony {
  std::string text;            // "waits in all_reduce(sum) of 10 float32"
  std::vector<int> waits_for;  // ranks of the mesh

  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  [[nodiscard]] static Testimony from_bytes(const std::byte* bytes, std::int64_t num_bytes);
};

class Inquiry {
 public:
  explicit Inquiry(int rank) : rank_(rank) {}

  /// Asks those who were not asked yet.
  void ask(Wire& wire, const std::vector<int>& ranks);
  void take(Wire& wire, int rank, Testimony testimony);
  /// "rank 2 waits in ... for rank 3; rank 3 does not answer"; empty if nobody was asked.
  [[nodiscard]] std::string findings() const;

 private:
  int rank_;
  std::map<int, std::optional<Testimony>> asked_;
};

}  // namespace echelon
