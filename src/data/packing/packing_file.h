// PREFIX.best_fit-T-SEED: the sequences of data.packing = best_fit, stored next to the data so that a second start
// reads them.
//
//   little-endian:  "ECHPACK1"   u64 digest of what they are made of   u64 digest of all that follows
//                   i64 seq_len   i64 num_tokens   i64 num_split   i64 sequences S   i64 pieces P
//                   i64 bounds[S + 1]   i64 piece_starts[P]   i32 piece_lengths[P]
//   Digests: XXH3, 64 bits.
#pragma once

#include "data/indexed_dataset.h"
#include "data/packing/best_fit.h"

#include <cstdint>
#include <optional>
#include <string>

namespace echelon {

/// Where the sequences of the dataset are stored.
[[nodiscard]] std::string packing_path(const std::string& prefix, std::int64_t seq_len, std::int64_t seed);

/// None if there is no such file, or if it is of other data, incomplete or damaged.
[[nodiscard]] std::optional<PackedSequences> read_packing(const std::string& path, const PackingRequest& request);
/// Atomically. Throws Failure on a full disk or a folder that cannot be written.
void write_packing(const std::string& path, const PackingRequest& request, const PackedSequences& packed);

/// Start of each document in the stream of tokens, and the end.
[[nodiscard]] std::vector<std::int64_t> document_starts_of(const IndexedDataset& dataset);

/// The sequences of a dataset, and where they come from.
struct OpenedPacking {
  PackedSequences packed;
  bool was_stored = false;  // the file was read
  std::string fault;        // why it cannot be read, so that it should stay as it is
};

/// Reads the file, or packs.
[[nodiscard]] OpenedPacking open_packing(const IndexedDataset& dataset, std::int64_t seq_len, std::int64_t seed);
/// Writes the file: one process of a run does. Throws Failure as write_packing.
void store_packing(const IndexedDataset& dataset, const PackedSequences& packed, std::int64_t seed);

/// XXH3 of the sequences, by which a run knows them again.
[[nodiscard]] std::uint64_t packing_digest(const PackedSequences& packed);

}  // namespace echelon
