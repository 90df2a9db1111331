// One operation of a group: who has arrived, and the chunks of its work, which are claimed and never assigned.
//
// Whoever waits or polls claims chunks with a fetch_add until none is left. (If every rank did a share of its own in its own wait, ranks that wait in different
// orders would deadlock.)
#pragma once

#include "comm/signature.h"
#include "comm/thread/chunks.h"
#include "comm/thread/permits.h"

#include <atomic>
#include <vector>

namespace echelon {

class ThreadWorld;

// The bits of an exchange's word; it is 0 until all parties have arrived.
inline constexpr std::uint32_t ready_bit = 1;  // chunks may be claimed
inline constexpr std::uint32_t done_bit = 2;   // the last chunk has ended

class Exchange {
 public:
  Exchange(ThreadWorld& world, int num_parties);

  /// Ready for another operation; nobody else may know it.
  void reset(const Signature& signature, int first_party);
  [[nodiscard]] const Signature& signature() const { return signature_; }
  /// The party that started it first.
  [[nodiscard]] int first_party() const { return first_party_; }

  /// The last party to arrive does a small exchange at once, and opens a large one to whoever waits.
  void arrive(int party, const Contribution& contribution);
  [[nodiscard]] bool has_arrived(int party) const { return has_arrived_[static_cast<std::size_t>(party)].load(); }

  /// Claims chunks while there are any; true if it did one.
  bool work();
  [[nodiscard]] std::int64_t sent_bytes(int party) const { return chunks_.sent_bytes(party); }

  [[nodiscard]] const std::atomic<std::uint32_t>& word() const { return word_; }
  [[nodiscard]] RankQueue& sleepers() { return sleepers_; }

  /// Returns when nobody touches the parties' buffers any more. Only after the world was aborted.
  void quiesce() const;

  // The rendezvous' own.
  std::atomic<Exchange*> next = nullptr;  // the operation after this one
  std::atomic<int> num_released = 0;

 private:
  void do_all();
  void set(std::uint32_t bit, int num_wakes);

  ThreadWorld& world_;
  Signature signature_;
  int first_party_ = 0;
  Chunks chunks_;
  std::vector<std::atomic<bool>> has_arrived_;

  alignas(64) std::atomic<int> num_arrived_ = 0;
  std::atomic<std::uint32_t> word_ = 0;
  RankQueue sleepers_;
  alignas(64) std::atomic<std::int64_t> next_chunk_ = 0;
  std::atomic<std::int64_t> num_done_chunks_ = 0;
  std::atomic<int> num_busy_ = 0;
};

}  // namespace echelon
