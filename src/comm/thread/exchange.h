// One operation of a group: what every party brought, and the copying and summing, cut into chunks that are claimed and never assigned.
//
// Whoever waits or polls claims chunks with a fetch_add until none is left. (If every rank did a share of its own in its own wait, ranks that wait in different
// orders would deadlock.) A chunk adds the ranks 0 .. n-1 in this order, so the bits do not depend on who claimed it.
#pragma once

#include "comm/signature.h"
#include "comm/thread/futex.h"

#include <vector>

namespace echelon {

class ThreadWorld;
using ByteCounter = std::atomic<std::int64_t>;

// The bits of an exchange's word; it is 0 until all parties have arrived.
inline constexpr std::uint32_t ready_bit = 1;  // chunks may be claimed
inline constexpr std::uint32_t done_bit = 2;   // the last chunk has ended
inline constexpr std::uint32_t aborted_bit = 1U << 31U;

/// What one party brings. In place, both are the same address.
struct Contribution {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  ByteCounter* sent = nullptr;
  bool has_arrived = false;
};

class Exchange {
 public:
  Exchange(ThreadWorld& world, int num_parties) : world_(world), parties_(static_cast<std::size_t>(num_parties)) {}

  /// Ready for another operation; nobody may hold it.
  void reset(const Signature& signature);
  [[nodiscard]] const Signature& signature() const { return signature_; }
  [[nodiscard]] Contribution& party(int i) { return parties_[static_cast<std::size_t>(i)]; }

  /// All parties have arrived: a small exchange is done at once, a large one opened to whoever waits.
  void open();
  /// Claims chunks while there are any; true if it did one.
  bool work();
  [[nodiscard]] FutexWord& word() { return word_; }
  /// Those who sleep on the word, so that nobody is woken in vain.
  [[nodiscard]] std::atomic<int>& num_sleepers() { return num_sleepers_; }

  /// Returns when nobody touches the parties' buffers any more. Only after the world was aborted.
  void quiesce() const;

  int num_arrived = 0;  // guarded by the rendezvous
  std::atomic<int> num_left = 0;

 private:
  [[nodiscard]] int num_parties() const { return static_cast<int>(parties_.size()); }
  void do_chunk(std::int64_t chunk);
  void sum_chunk(std::int64_t first, std::int64_t count, std::byte* only_out);
  void gather_chunk(std::int64_t source, std::int64_t first, std::int64_t count);
  void copy_chunk(std::int64_t source, std::int64_t first, std::int64_t count);
  void exchange_chunk(std::int64_t destination, std::int64_t first, std::int64_t count);
  void count_sent(std::int64_t party, std::int64_t num_elements);
  void set(std::uint32_t bit, int num_wakes);

  ThreadWorld& world_;
  Signature signature_;
  std::vector<Contribution> parties_;
  std::int64_t part_elements_ = 0;  // of each of the parts that no chunk crosses
  std::int64_t chunk_elements_ = 1;
  std::int64_t chunks_per_part_ = 0;
  std::int64_t num_chunks_ = 0;

  alignas(64) FutexWord word_ = 0;
  std::atomic<int> num_sleepers_ = 0;
  alignas(64) std::atomic<std::int64_t> next_chunk_ = 0;
  std::atomic<std::int64_t> num_done_chunks_ = 0;
  std::atomic<int> num_busy_ = 0;
};

}  // namespace echelon
