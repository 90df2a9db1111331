// The sum of this rank's part of a buffer over all ranks of a group, formed in rank order, chunk by chunk as the peers' numbers come.
#pragma once

#include "comm/mpi/flow.h"

#include <vector>

namespace echelon {

class Reduction {
 public:
  /// `ranks` of the mesh in the order of the group; this one is ranks[place]. `in` and `out` may be the same.
  Reduction(const Signature& signature, const std::vector<int>& ranks, int place, const std::byte* in, std::byte* out, std::int64_t num_bytes);

  /// The flow that a peer pushes whole.
  void take_push(int peer, const std::byte* payload);
  void advance(const Correspondence& correspondence);
  [[nodiscard]] std::int64_t num_summed_bytes() const { return num_summed_; }
  [[nodiscard]] bool is_done() const { return num_summed_ == num_bytes_; }
  /// Whose numbers are lacking for the next chunk.
  [[nodiscard]] std::vector<int> missing() const;

  [[nodiscard]] static std::int64_t chunk_bytes(int num_ranks);

 private:
  /// The numbers of all peers for one chunk.
  struct Slot {
    std::vector<int> num_left;  // by place in the group: 1 until the peer's numbers are there
    std::byte* data = nullptr;
  };
  [[nodiscard]] std::byte* data_of(const Slot& slot, std::size_t place) const;
  void invite(const Correspondence& correspondence);
  void sum(const Slot& slot);
  [[nodiscard]] Slot& slot_of(std::int64_t offset) { return slots_[static_cast<std::size_t>(offset / chunk_bytes_) % slots_.size()]; }
  [[nodiscard]] const Slot& slot_of(std::int64_t offset) const { return slots_[static_cast<std::size_t>(offset / chunk_bytes_) % slots_.size()]; }

  Signature signature_;
  const std::vector<int>& ranks_;
  std::size_t place_;
  const std::byte* in_;
  std::byte* out_;
  std::int64_t num_bytes_;
  std::int64_t chunk_bytes_;
  bool is_pushed_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Slot> slots_;  // taken in turn
  std::int64_t num_invited_ = 0;
  std::int64_t num_summed_ = 0;
};

}  // namespace echelon
