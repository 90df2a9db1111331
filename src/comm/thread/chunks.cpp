#include "comm/thread/chunks.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t most_chunk_bytes = 64 << 10;  // of all_to_all, from each source
constexpr std::int64_t small_bytes = 256 << 10;      // over all parties
constexpr std::int64_t streamed_bytes = 16LL << 20;  // written: beyond what caches keep until it is read again

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

// An all-reduce writes where it has just read: a streaming store would evict the line from the cache and save no read.
Stores stores_of(const Signature& signature, std::int64_t num_parties) {
  const std::int64_t bytes = signature.num_elements * size_of(signature.dtype);
  switch (signature.kind) {
    case CommKind::all_reduce:
    case CommKind::barrier: return Stores::cached;
    case CommKind::reduce_scatter:
    case CommKind::send:
    case CommKind::receive: return bytes >= streamed_bytes ? Stores::streaming : Stores::cached;
    case CommKind::all_gather:
    case CommKind::broadcast:
    case CommKind::all_to_all: return bytes * num_parties >= streamed_bytes ? Stores::streaming : Stores::cached;
  }
  return Stores::cached;
}

}  // namespace

Chunks::Chunks(int num_parties)
    : in_(static_cast<std::size_t>(num_parties)),
      out_(static_cast<std::size_t>(num_parties)),
      in_parts_(static_cast<std::size_t>(num_parties)),
      out_parts_(static_cast<std::size_t>(num_parties)),
      rows_(static_cast<std::size_t>(num_parties)),
      sent_(static_cast<std::size_t>(num_parties)) {}

void Chunks::reset(const Signature& signature) {
  signature_ = signature;
  for (auto& sent : sent_) sent.store(0, std::memory_order_relaxed);
  const std::int64_t parts = num_parts(signature.kind, num_parties()),
                     bytes = signature.num_elements * size_of(signature.dtype);
  part_bytes_ = bytes / parts;
  chunk_bytes_ = most_chunk_bytes;
  if (signature.num_columns > 0) divide_columns();
  chunks_per_part_ = (part_bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
  count_ = parts * chunks_per_part_;
  is_small_ = bytes * num_parties() <= small_bytes;
  stores_ = stores_of(signature, num_parties());
  num_rows_.store(0, std::memory_order_relaxed);
  if (signature.has_parts) count_ = std::int64_t{num_parties()} * num_parties();  // of every pair, its rows
}

// The party that asks has arrived last, and its arrival is after what all others have stored.
bool Chunks::is_small() const {
  if (!signature_.has_parts) return is_small_;
  return num_rows_.load(std::memory_order_relaxed) * signature_.num_elements * size_of(signature_.dtype) <= small_bytes;
}

void Chunks::set_buffers(int party, const PartyBuffers& buffers) {
  in_[static_cast<std::size_t>(party)] = buffers.in;
  out_[static_cast<std::size_t>(party)] = buffers.out;
  in_parts_[static_cast<std::size_t>(party)] = buffers.in_parts;
  out_parts_[static_cast<std::size_t>(party)] = buffers.out_parts;
  rows_[static_cast<std::size_t>(party)] = buffers.rows;
  if (!signature_.has_parts) return;
  std::int64_t rows = 0;
  for (int i = 0; i < num_parties(); ++i) rows += buffers.in_parts[i].count;
  num_rows_.fetch_add(rows, std::memory_order_relaxed);
}

void Chunks::perform(std::int64_t chunk) {
  if (signature_.has_parts)
    return exchange_rows(static_cast<int>(chunk / num_parties()), static_cast<int>(chunk % num_parties()));
  const auto part = static_cast<int>(chunk / chunks_per_part_);
  const std::int64_t first = chunk % chunks_per_part_ * chunk_bytes_,
                     num_bytes = std::min(chunk_bytes_, part_bytes_ - first);
  switch (signature_.kind) {
    case CommKind::all_reduce: return all_reduce(first, num_bytes);
    case CommKind::reduce_scatter: return reduce_scatter(part, first, num_bytes);
    case CommKind::all_gather: return copy(part, {first, part * part_bytes_ + first, num_bytes});
    case CommKind::all_to_all:
      return signature_.num_columns > 0 ? exchange_columns(part, first, num_bytes) : all_to_all(part, first, num_bytes);
    case CommKind::broadcast: return copy(signature_.root, {first, first, num_bytes});
    case CommKind::send:
    case CommKind::receive: return transfer({first, first, num_bytes});
    case CommKind::barrier: return;
  }
}

void Chunks::all_reduce(std::int64_t first, std::int64_t num_bytes) {
  reduce_in_rank_order({signature_.dtype, signature_.op, stores_}, in_, out_, {first, first, num_bytes});
  const std::int64_t size = size_of(signature_.dtype);
  for (int i = 0; i < num_parties(); ++i) {
    const OwnedRange own = owned_range(signature_.num_elements, i, num_parties());
    const std::int64_t owned = std::max<std::int64_t>(
        0, std::min(first + num_bytes, (own.first + own.count) * size) - std::max(first, own.first * size));
    count_sent(i, (num_bytes - owned) + (num_parties() - 1) * owned);
  }
}

void Chunks::reduce_scatter(int part, std::int64_t first, std::int64_t num_bytes) {
  std::byte* const out = out_[static_cast<std::size_t>(part)];
  const std::byte* const own = in_[static_cast<std::size_t>(part)] + part * part_bytes_;
  const Stores stores = out == own ? Stores::cached : stores_;
  reduce_in_rank_order({signature_.dtype, signature_.op, stores}, in_, {&out, 1},
                       {part * part_bytes_ + first, first, num_bytes});
  for (int i = 0; i < num_parties(); ++i)
    if (i != part) count_sent(i, num_bytes);
}

void Chunks::all_to_all(int destination, std::int64_t first, std::int64_t num_bytes) {
  std::byte* const out = out_[static_cast<std::size_t>(destination)];
  for (int i = 0; i < num_parties(); ++i) {
    copy_to_all({&out, 1}, in_[static_cast<std::size_t>(i)],
                {destination * part_bytes_ + first, i * part_bytes_ + first, num_bytes}, stores_);
    if (i != destination) count_sent(i, num_bytes);
  }
}

// A part is what a party receives, and a chunk has whole rows of it. Padding counts as sent.
void Chunks::divide_columns() {
  const std::int64_t row_bytes = signature_.num_columns * size_of(signature_.dtype),
                     received_bytes = signature_.num_rows > 0 ? row_bytes : num_parties() * row_bytes;
  for (int i = 0; i < num_parties(); ++i) count_sent(i, (num_parties() - 1) * part_bytes_);
  if (signature_.num_rows > 0)
    part_bytes_ = signature_.num_rows * row_bytes;
  else
    part_bytes_ *= num_parties();
  chunk_bytes_ = std::max<std::int64_t>(1, most_chunk_bytes / received_bytes) * received_bytes;
}

void Chunks::exchange_columns(int destination, std::int64_t first, std::int64_t num_bytes) {
  const std::int64_t n = num_parties(), W = signature_.num_columns * size_of(signature_.dtype),
                     N = signature_.num_elements / (n * signature_.num_columns);
  const std::int32_t* const rows = rows_[static_cast<std::size_t>(destination)];
  std::byte* const out = out_[static_cast<std::size_t>(destination)];
  for (std::int64_t at = first / W; at < (first + num_bytes) / W; ++at) {
    const bool gathers = signature_.num_rows > 0;
    const std::int64_t row = rows[gathers ? at : destination * N + at / n];
    const std::int64_t source = gathers ? row / N : at % n, place = gathers ? row % N * n + destination : row;
    if (row < 0)
      std::memset(out + at * W, 0, static_cast<std::size_t>(W));
    else
      std::memcpy(out + at * W, in_[static_cast<std::size_t>(source)] + place * W, static_cast<std::size_t>(W));
  }
}

void Chunks::exchange_rows(int source, int destination) {
  const auto from = static_cast<std::size_t>(source), to = static_cast<std::size_t>(destination);
  const RowPart &sent = in_parts_[from][destination], &received = out_parts_[to][source];
  if (sent.count != received.count)
    throw Failure(fmt::format("all_to_all of rows: place {} sends {} rows to place {}, which expects {}", source,
                              sent.count, destination, received.count));
  const std::int64_t row_bytes = signature_.num_elements * size_of(signature_.dtype),
                     num_bytes = sent.count * row_bytes;
  if (num_bytes == 0) return;
  copy_to_all({&out_[to], 1}, in_[from], {sent.first * row_bytes, received.first * row_bytes, num_bytes}, stores_);
  if (source != destination) count_sent(source, num_bytes);
}

void Chunks::copy(int source, const ByteRange& range) {
  copy_to_all(out_, in_[static_cast<std::size_t>(source)], range, stores_);
  count_sent(source, (num_parties() - 1) * range.num_bytes);
}

void Chunks::transfer(const ByteRange& range) {  // from party 0 to party 1
  copy_to_all({&out_[1], 1}, in_[0], range, stores_);
  count_sent(0, range.num_bytes);
}

void Chunks::count_sent(int party, std::int64_t num_bytes) {
  sent_[static_cast<std::size_t>(party)].fetch_add(num_bytes, std::memory_order_relaxed);
}

}  // namespace echelon
