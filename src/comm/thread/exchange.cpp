#include "comm/thread/exchange.h"

#include "comm/sum.h"
#include "comm/thread/world.h"

#include <sched.h>
#include <algorithm>
#include <climits>
#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t chunk_bytes = 64 << 10;
constexpr std::int64_t small_bytes = 256 << 10;  // over all parties: cheaper to do at once than to wake anybody for

std::int64_t num_parts(CommKind kind, std::int64_t num_parties) {
  switch (kind) {
    case CommKind::all_reduce:
    case CommKind::broadcast:
    case CommKind::send:
    case CommKind::receive:
    case CommKind::barrier: return 1;
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return num_parties;
  }
  return 1;
}

void copy(std::byte* out, const std::byte* in, std::int64_t num_bytes) {
  if (out != in) std::memcpy(out, in, static_cast<std::size_t>(num_bytes));
}

}  // namespace

void Exchange::reset(const Signature& signature) {
  signature_ = signature;
  for (Contribution& party : parties_) party = {};
  const std::int64_t parts = num_parts(signature.kind, num_parties());
  part_elements_ = signature.num_elements / parts;
  chunk_elements_ = chunk_bytes / size_of(signature.dtype);
  if (signature.kind == CommKind::all_to_all) chunk_elements_ = std::max<std::int64_t>(256, chunk_elements_ / parts);  // a chunk copies from every source
  chunks_per_part_ = (part_elements_ + chunk_elements_ - 1) / chunk_elements_;
  num_chunks_ = parts * chunks_per_part_;
  num_arrived = 0;
  num_left = 0;
  next_chunk_ = 0;
  num_done_chunks_ = 0;
  word_ = 0;
}

void Exchange::open() {
  if (num_chunks_ == 0) return set(done_bit, INT_MAX);
  const bool is_small = signature_.num_elements * size_of(signature_.dtype) * num_parties() <= small_bytes;
  if (is_small)
    work();
  else
    set(ready_bit, std::max(1, world_.num_permits() - 1));
}

bool Exchange::work() {
  if (next_chunk_.load(std::memory_order_relaxed) >= num_chunks_) return false;
  bool worked = false;
  // Busy is raised before the look at the world, and a leaving rank aborts before it looks at busy: one of the two sees the other.
  num_busy_.fetch_add(1);
  while (!world_.is_aborted()) {
    const std::int64_t chunk = next_chunk_.fetch_add(1);
    if (chunk >= num_chunks_) break;
    do_chunk(chunk);
    worked = true;
    if (num_done_chunks_.fetch_add(1) + 1 == num_chunks_) set(done_bit, INT_MAX);
  }
  num_busy_.fetch_sub(1);
  return worked;
}

void Exchange::quiesce() const {
  while (num_busy_.load() != 0) sched_yield();
}

void Exchange::do_chunk(std::int64_t chunk) {
  const std::int64_t part = chunk / chunks_per_part_, first = chunk % chunks_per_part_ * chunk_elements_;
  const std::int64_t count = std::min(chunk_elements_, part_elements_ - first);
  const std::int64_t n = num_parties(), size = size_of(signature_.dtype);
  switch (signature_.kind) {
    case CommKind::all_reduce:
      sum_chunk(first, count, nullptr);
      for (int i = 0; i < n; ++i) {
        const Part own = part_of(signature_.num_elements, i, num_parties());
        const std::int64_t owned = std::max<std::int64_t>(0, std::min(first + count, own.first + own.count) - std::max(first, own.first));
        count_sent(i, (count - owned) + (n - 1) * owned);
      }
      break;
    case CommKind::reduce_scatter:
      sum_chunk(part * part_elements_ + first, count, parties_[static_cast<std::size_t>(part)].out + first * size);
      for (std::int64_t i = 0; i < n; ++i)
        if (i != part) count_sent(i, count);
      break;
    case CommKind::all_gather: gather_chunk(part, first, count); break;
    case CommKind::all_to_all: exchange_chunk(part, first, count); break;
    case CommKind::broadcast: copy_chunk(signature_.root, first, count); break;
    case CommKind::send:
    case CommKind::receive: copy_chunk(0, first, count); break;
    case CommKind::barrier: break;
  }
}

// The elements' sum goes to every party's buffer, or to `only_out`. Block by block: an output may be an input at the same place.
void Exchange::sum_chunk(std::int64_t first, std::int64_t count, std::byte* only_out) {
  RankOrderSum sum(signature_.dtype, signature_.op);
  const std::int64_t size = size_of(signature_.dtype);
  for (std::int64_t done = 0; done < count; done += RankOrderSum::block_elements) {
    const std::int64_t length = std::min(RankOrderSum::block_elements, count - done), offset = (first + done) * size;
    sum.begin(parties_[0].in + offset, length);
    for (std::size_t i = 1; i < parties_.size(); ++i) sum.add(parties_[i].in + offset, length);
    if (only_out != nullptr) {
      sum.store(only_out + done * size, length);
    } else {
      for (const Contribution& party : parties_) sum.store(party.out + offset, length);
    }
  }
}

void Exchange::gather_chunk(std::int64_t source, std::int64_t first, std::int64_t count) {
  const std::int64_t size = size_of(signature_.dtype);
  const std::byte* const in = parties_[static_cast<std::size_t>(source)].in + first * size;
  for (std::size_t i = 0; i < parties_.size(); ++i) {
    copy(parties_[i].out + (source * part_elements_ + first) * size, in, count * size);
    if (static_cast<std::int64_t>(i) != source) count_sent(source, count);
  }
}

void Exchange::copy_chunk(std::int64_t source, std::int64_t first, std::int64_t count) {
  const std::int64_t offset = first * size_of(signature_.dtype), num_bytes = count * size_of(signature_.dtype);
  for (std::size_t i = 0; i < parties_.size(); ++i) {
    if (static_cast<std::int64_t>(i) == source) continue;
    copy(parties_[i].out + offset, parties_[static_cast<std::size_t>(source)].in + offset, num_bytes);
    count_sent(source, count);
  }
}

void Exchange::exchange_chunk(std::int64_t destination, std::int64_t first, std::int64_t count) {
  const std::int64_t size = size_of(signature_.dtype);
  std::byte* const out = parties_[static_cast<std::size_t>(destination)].out;
  for (std::int64_t i = 0; i < num_parties(); ++i) {
    copy(out + (i * part_elements_ + first) * size, parties_[static_cast<std::size_t>(i)].in + (destination * part_elements_ + first) * size, count * size);
    if (i != destination) count_sent(i, count);
  }
}

void Exchange::count_sent(std::int64_t party, std::int64_t num_elements) {
  parties_[static_cast<std::size_t>(party)].sent->fetch_add(num_elements * size_of(signature_.dtype), std::memory_order_relaxed);
}

// A sleeper counts itself before it sleeps, and the kernel looks at the word once more: nobody sleeps through a bit.
void Exchange::set(std::uint32_t bit, int num_wakes) {
  word_.fetch_or(bit);
  if (num_sleepers_.load() > 0) futex_wake(word_, num_wakes);
}

}  // namespace echelon
