// The copies and sums of one operation, split into chunks that any thread may do, in any order. A chunk adds the ranks
// 0 .. n-1 in this order, so the bits do not depend on the thread. Every byte is read once from its source and written
// once to its destination: nothing is staged.
#pragma once

#include "comm/device_transport.h"
#include "comm/signature.h"
#include "comm/sum.h"

#include <atomic>
#include <vector>

namespace echelon {

class Chunks {
 public:
  explicit Chunks(int num_parties);

  /// Ready for another operation; the parties set_buffers their buffers next, each its own.
  void reset(const Signature& signature);
  void set_buffers(int party, const PartyBuffers& buffers);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Faster with one thread than with several, which would have to be woken. Of all parties that have come.
  [[nodiscard]] bool is_small() const;
  void perform(std::int64_t chunk);

  /// Bytes of this party that went to another one, in the chunks performed.
  [[nodiscard]] std::int64_t sent_bytes(int party) const {
    return sent_[static_cast<std::size_t>(party)].load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] int num_parties() const { return static_cast<int>(in_.size()); }
  void divide_columns();
  void all_reduce(std::int64_t first, std::int64_t num_bytes);
  void reduce_scatter(int part, std::int64_t first, std::int64_t num_bytes);
  void all_to_all(int destination, std::int64_t first, std::int64_t num_bytes);
  void exchange_columns(int destination, std::int64_t first, std::int64_t num_bytes);
  void exchange_rows(int source, int destination);
  void copy(int source, const ByteRange& range);
  void transfer(const ByteRange& range);
  void count_sent(int party, std::int64_t num_bytes);

  Signature signature_;
  std::vector<const std::byte*> in_;  // by party
  std::vector<std::byte*> out_;
  std::vector<const RowPart*> in_parts_, out_parts_;  // of each, by party
  std::vector<const std::int32_t*> rows_;             // of an exchange of columns, by party
  std::atomic<std::int64_t> num_rows_ = 0;            // of all parts
  std::vector<std::atomic<std::int64_t>> sent_;
  std::int64_t part_bytes_ = 0;  // of each of the parts that no chunk crosses
  std::int64_t chunk_bytes_ = 1;
  std::int64_t chunks_per_part_ = 0;
  std::int64_t count_ = 0;
  bool is_small_ = true;
  Stores stores_ = Stores::cached;
};

}  // namespace echelon
