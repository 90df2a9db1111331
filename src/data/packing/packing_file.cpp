#include "data/packing/packing_file.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "files/file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string_view>

namespace echelon {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as memory");

constexpr std::string_view packing_magic = "ECHPACK1";

/// All that precedes the arrays.
struct PackingHeader {
  std::array<char, 8> magic = {};
  std::uint64_t source = 0, content = 0;
  std::int64_t seq_len = 0, num_tokens = 0, num_split = 0, num_sequences = 0, num_pieces = 0;
};
static_assert(sizeof(PackingHeader) == 64);

/// A hash over several arrays.
class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state_.get()); }
  template <class T>
  void add(std::span<const T> values) {
    XXH3_64bits_update(state_.get(), values.data(), values.size_bytes());
  }
  [[nodiscard]] std::uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::uint64_t digest_of_source(const PackingRequest& request) {
  Hash hash;
  const std::array<std::int64_t, 3> numbers = {request.seq_len, request.seed, packing_window};
  hash.add(std::span<const std::int64_t>(numbers));
  hash.add(request.document_starts);
  return hash.digest();
}

PackingHeader header_of(const PackingRequest& request, const PackedSequences& packed) {
  PackingHeader header = {.source = digest_of_source(request),
                          .content = packing_digest(packed),
                          .seq_len = packed.seq_len,
                          .num_tokens = packed.num_tokens,
                          .num_split = packed.num_split,
                          .num_sequences = packed.num_sequences(),
                          .num_pieces = std::ssize(packed.piece_starts)};
  std::ranges::copy(packing_magic, header.magic.begin());
  return header;
}

/// Reads the next values.size() values.
template <class T>
void take_values(const File& file, std::int64_t& offset, std::vector<T>& values) {
  const auto num_bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  file.read_at(offset, values.data(), num_bytes);
  offset += num_bytes;
}

template <class T>
void append_values(DurableFile& file, const std::vector<T>& values) {
  file.append(values.data(), values.size() * sizeof(T));
}

/// Whether the file has the arrays that its header tells of, for this request.
bool is_complete(const PackingHeader& header, const File& file, const PackingRequest& request) {
  const std::int64_t most = file.num_bytes() / 4;
  const bool is_of_source = std::string_view(header.magic.data(), packing_magic.size()) == packing_magic &&
                            header.source == digest_of_source(request);
  const auto is_count = [&](std::int64_t count) { return count >= 0 && count <= most; };
  return is_of_source && is_count(header.num_sequences) && is_count(header.num_pieces) &&
         std::int64_t{sizeof header} + (header.num_sequences + 1) * 8 + header.num_pieces * 12 == file.num_bytes();
}

}  // namespace

std::string packing_path(const std::string& prefix, std::int64_t seq_len, std::int64_t seed) {
  return fmt::format("{}.best_fit-{}-{}", prefix, seq_len, seed);
}

std::optional<PackedSequences> read_packing(const std::string& path, const PackingRequest& request) {
  if (!has_target(path)) return std::nullopt;
  const File file = File::open_to_read(path);
  PackingHeader header;
  std::int64_t offset = sizeof header;
  if (file.num_bytes() < offset) return std::nullopt;
  file.read_at(0, &header, offset);
  if (!is_complete(header, file, request)) return std::nullopt;
  PackedSequences packed = {.seq_len = header.seq_len,
                            .piece_starts = std::vector<std::int64_t>(static_cast<std::size_t>(header.num_pieces)),
                            .piece_lengths = std::vector<std::int32_t>(static_cast<std::size_t>(header.num_pieces)),
                            .bounds = std::vector<std::int64_t>(static_cast<std::size_t>(header.num_sequences) + 1),
                            .num_tokens = header.num_tokens,
                            .num_split = header.num_split};
  take_values(file, offset, packed.bounds);
  take_values(file, offset, packed.piece_starts);
  take_values(file, offset, packed.piece_lengths);
  if (packing_digest(packed) != header.content) return std::nullopt;
  return packed;
}

void write_packing(const std::string& path, const PackingRequest& request, const PackedSequences& packed) {
  const PackingHeader header = header_of(request, packed);
  DurableFile file(path);
  file.append(&header, sizeof header);
  append_values(file, packed.bounds);
  append_values(file, packed.piece_starts);
  append_values(file, packed.piece_lengths);
  file.publish();
}

std::vector<std::int64_t> document_starts_of(const IndexedDataset& dataset) {
  std::vector<std::int64_t> starts;
  starts.reserve(static_cast<std::size_t>(dataset.num_documents()) + 1);
  for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) starts.push_back(dataset.document_start(d));
  return starts;
}

OpenedPacking open_packing(const IndexedDataset& dataset, std::int64_t seq_len, std::int64_t seed) {
  const std::vector<std::int64_t> starts = document_starts_of(dataset);
  const PackingRequest request = {.document_starts = starts, .seq_len = seq_len, .seed = seed};
  OpenedPacking opened;
  try {
    if (auto stored = read_packing(packing_path(dataset.prefix(), seq_len, seed), request)) {
      opened.packed = std::move(*stored);
      opened.was_stored = true;
      return opened;
    }
  } catch (const Error& error) {
    opened.fault = error.what();
  }
  opened.packed = pack_best_fit(request);
  return opened;
}

void store_packing(const IndexedDataset& dataset, const PackedSequences& packed, std::int64_t seed) {
  const std::vector<std::int64_t> starts = document_starts_of(dataset);
  write_packing(packing_path(dataset.prefix(), packed.seq_len, seed),
                {.document_starts = starts, .seq_len = packed.seq_len, .seed = seed}, packed);
}

std::uint64_t packing_digest(const PackedSequences& packed) {
  Hash hash;
  const std::array<std::int64_t, 3> numbers = {packed.seq_len, packed.num_tokens, packed.num_split};
  hash.add(std::span<const std::int64_t>(numbers));
  hash.add(std::span<const std::int64_t>(packed.bounds));
  hash.add(std::span<const std::int64_t>(packed.piece_starts));
  hash.add(std::span<const std::int32_t>(packed.piece_lengths));
  return hash.digest();
}

}  // namespace echelon
