// The sum of this rank's part of a buffer over all ranks of a group, in rank order, chunk by chunk as the peers' values
// arrive.
#pragma once

#include "comm/mpi/flow.h"

#include <algorithm>
#include <vector>

namespace echelon {

class Reduction {
 public:
  /// `ranks` of the mesh in the order of the group; this one is ranks[place]. `in` and `out` may be the same.
  Reduction(const FlowContext& context, const std::vector<int>& ranks, int place, const std::byte* in, std::byte* out,
            std::int64_t num_bytes);

  /// An offer of a peer, or its whole flow.
  void take(const Note& note, const std::byte* payload);
  /// Sums the values that have arrived, or one chunk read from the peers' memory. True if there is more.
  bool advance(const FlowContext& context);
  [[nodiscard]] std::int64_t num_summed_bytes() const { return num_summed_; }
  [[nodiscard]] bool is_done() const { return num_summed_ == num_bytes_; }
  /// The ranks whose values are missing for the next chunk.
  [[nodiscard]] std::vector<int> missing() const;

  [[nodiscard]] static std::int64_t chunk_bytes(int num_ranks);

 private:
  /// The numbers of all peers for one chunk.
  struct Slot {
    // By place in the group: 1 until the peer's values have arrived, for peers that send them.
    std::vector<int> num_left;
    std::byte* data = nullptr;
  };
  [[nodiscard]] std::byte* data_of(const Slot& slot, std::size_t place) const;
  [[nodiscard]] std::size_t place_of(int peer) const;
  [[nodiscard]] std::int64_t next_length() const { return std::min(chunk_bytes_, num_bytes_ - num_summed_); }
  /// Whether that peer's values for the next chunk are available.
  [[nodiscard]] bool has(std::size_t place) const;
  void invite(const FlowContext& context);
  void read(const FlowContext& context, const Slot& slot) const;
  void sum(const Slot& slot);
  void acknowledge(const FlowContext& context) const;
  [[nodiscard]] Slot& slot_of(std::int64_t offset) {
    return slots_[static_cast<std::size_t>(offset / chunk_bytes_) % slots_.size()];
  }
  [[nodiscard]] const Slot& slot_of(std::int64_t offset) const {
    return slots_[static_cast<std::size_t>(offset / chunk_bytes_) % slots_.size()];
  }

  Signature signature_;
  const std::vector<int>& ranks_;
  std::size_t place_;
  const std::byte* in_;
  std::byte* out_;
  std::int64_t num_bytes_;
  std::int64_t chunk_bytes_;
  std::vector<Way> ways_;         // by place
  std::vector<Offered> offered_;  // by place
  bool invites_ = false;
  bool reads_ = false;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Slot> slots_;  // taken in turn
  std::int64_t num_invited_ = 0;
  std::int64_t num_summed_ = 0;
};

}  // namespace echelon
