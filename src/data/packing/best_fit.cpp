#include "data/packing/best_fit.h"

#include "base/error.h"
#include "data/packing/room_index.h"
#include "data/permutation.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace echelon {
namespace {

class Packer {
 public:
  explicit Packer(const PackingRequest& request) : request_(request), rooms_(request.seq_len) {
    packed_.seq_len = request.seq_len;
    packed_.num_tokens = request.document_starts.back();
  }

  [[nodiscard]] PackedSequences pack() {
    const std::int64_t num_documents = std::ssize(request_.document_starts) - 1;
    packed_.piece_starts.reserve(static_cast<std::size_t>(num_documents));
    packed_.piece_lengths.reserve(static_cast<std::size_t>(num_documents));
    for (std::int64_t first = 0; first < num_documents; first += packing_window)
      pack_window(first, std::min(num_documents, first + packing_window));
    return std::move(packed_);
  }

 private:
  struct Placed {
    DocumentPiece piece;
    std::int32_t sequence = 0;  // of this window
  };

  /// Documents [first, end) of the shuffled order.
  void pack_window(std::int64_t first, std::int64_t end) {
    placed_.clear();
    for (std::int64_t i = first; i < end; ++i) add_document(shuffled(i));
    std::ranges::stable_sort(placed_, std::ranges::greater(), [](const Placed& p) { return p.piece.length; });
    std::int32_t num_sequences = 0;
    for (Placed& placed : placed_) {
      std::int64_t room = 0;
      placed.sequence = rooms_.pop(placed.piece.length, room);
      if (placed.sequence < 0) {
        placed.sequence = num_sequences++;
        room = request_.seq_len;
      }
      rooms_.push(room - placed.piece.length, placed.sequence);
    }
    rooms_.clear();
    append_sequences(num_sequences);
  }

  [[nodiscard]] std::int64_t shuffled(std::int64_t i) const {
    const auto num_documents = static_cast<std::uint64_t>(request_.document_starts.size() - 1);
    return static_cast<std::int64_t>(
        permuted(static_cast<std::uint64_t>(i), num_documents, mix(static_cast<std::uint64_t>(request_.seed), 1)));
  }

  /// Its full pieces are sequences by themselves.
  void add_document(std::int64_t document) {
    std::int64_t start = request_.document_starts[static_cast<std::size_t>(document)];
    const std::int64_t end = request_.document_starts[static_cast<std::size_t>(document) + 1];
    if (end - start > request_.seq_len) ++packed_.num_split;
    for (; end - start > request_.seq_len; start += request_.seq_len) {
      append({start, static_cast<std::int32_t>(request_.seq_len)});
      packed_.bounds.push_back(std::ssize(packed_.piece_starts));
    }
    if (end > start) placed_.push_back({{start, static_cast<std::int32_t>(end - start)}, 0});
  }

  /// By counting: in order of sequences, and within one in order of placement.
  void append_sequences(std::int32_t num_sequences) {
    const auto first = packed_.piece_starts.size();
    next_.assign(static_cast<std::size_t>(num_sequences) + 1, 0);
    for (const Placed& placed : placed_) ++next_[static_cast<std::size_t>(placed.sequence) + 1];
    for (std::size_t s = 1; s < next_.size(); ++s) {
      next_[s] += next_[s - 1];
      packed_.bounds.push_back(static_cast<std::int64_t>(first) + next_[s]);
    }
    packed_.piece_starts.resize(first + placed_.size());
    packed_.piece_lengths.resize(first + placed_.size());
    for (const Placed& placed : placed_) {
      const std::size_t at = first + static_cast<std::size_t>(next_[static_cast<std::size_t>(placed.sequence)]++);
      packed_.piece_starts[at] = placed.piece.start;
      packed_.piece_lengths[at] = placed.piece.length;
    }
  }

  void append(const DocumentPiece& piece) {
    packed_.piece_starts.push_back(piece.start);
    packed_.piece_lengths.push_back(piece.length);
  }

  const PackingRequest& request_;
  PackedSequences packed_;
  RoomIndex rooms_;
  std::vector<Placed> placed_;      // of one window
  std::vector<std::int64_t> next_;  // of each sequence of a window: where its next piece goes
};

}  // namespace

PackedSequences pack_best_fit(const PackingRequest& request) {
  require(request.seq_len >= 1 && request.seq_len <= std::numeric_limits<std::int32_t>::max(),
          "training.seq_len = {} must be in [1, 2^31) with data.packing = best_fit", request.seq_len);
  return Packer(request).pack();
}

}  // namespace echelon
