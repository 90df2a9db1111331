// The ranks of a group, and which operations they have started.
#pragma once

#include "comm/mpi/note.h"

#include <map>
#include <optional>

namespace echelon {

class MpiGroup {
 public:
  /// `ranks` are those of the mesh; this one is ranks[place].
  MpiGroup(std::int64_t run, std::string name, std::vector<int> ranks, int place);

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] int place() const { return place_; }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

  /// The next operation of the channel (collectives, or transfers between two places).
  [[nodiscard]] OperationId start(std::uint64_t channel, const Signature& signature);
  [[nodiscard]] static std::uint64_t channel_of(int source_place, int destination_place) {
    return (static_cast<std::uint64_t>(source_place) << 32U | static_cast<std::uint64_t>(destination_place)) + 1;
  }
  /// Whether this rank has started it.
  [[nodiscard]] bool has_started(const OperationId& id) const;
  /// One of the last operations that were started; nothing if it is too long ago.
  [[nodiscard]] std::optional<Signature> started(const OperationId& id) const;

  /// "group tp (ranks 0, 1)"
  [[nodiscard]] std::string name() const { return "group " + name_ + " (" + listed(ranks_) + ")"; }
  /// "send of 5 float32 to rank 1" or "receive of ...", depending on which of the channel's two `rank` is; the same
  /// name on all ranks for collectives.
  [[nodiscard]] std::string describe(const OperationId& id, const Signature& signature, int rank) const;

 private:
  struct Channel {
    std::int64_t num_started = 0;
    std::vector<Signature> last;  // a ring
  };
  std::int64_t run_;
  std::string name_;
  std::vector<int> ranks_;
  int place_;
  std::uint64_t hash_;
  std::map<std::uint64_t, Channel> channels_;
};

}  // namespace echelon
