// The ids of short pieces that an Encoder has seen.
#pragma once

#include "data/tokenizer/huge_vector.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace echelon {

static_assert(std::endian::native == std::endian::little, "the length of a PieceKey is its last byte");

/// The bytes of a piece, zeros, and its length.
struct PieceKey {
  static constexpr std::size_t longest = 31;
  std::array<std::uint64_t, 4> eights{};

  /// A piece of at most `longest` bytes. Those after it in `readable` may be read, which saves time.
  void assign(std::string_view piece, std::string_view readable) {
    const auto place = reinterpret_cast<std::uintptr_t>(piece.data());
    const auto first = reinterpret_cast<std::uintptr_t>(readable.data());
    if (place >= first && place + sizeof(eights) <= first + readable.size()) {
      const std::uint8_t* mask = masks.data() + sizeof(eights) - piece.size();
      for (std::size_t i = 0; i < eights.size(); ++i)
        eights[i] = eight_at(piece.data() + 8 * i) & eight_at(mask + 8 * i);
    } else {
      eights = {};
      std::memcpy(eights.data(), piece.data(), piece.size());
    }
    eights[3] |= std::uint64_t{piece.size()} << 56;
  }

  [[nodiscard]] std::string_view piece() const { return {reinterpret_cast<const char*>(eights.data()), length()}; }
  [[nodiscard]] std::size_t length() const { return eights[3] >> 56; }
  [[nodiscard]] std::uint64_t hash() const {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u, odd_2 = 0xd1b54a32d192ed03u;
    const std::uint64_t sum =
        eights[0] * odd ^ std::rotl(eights[1] * odd_2, 29) ^ std::rotl(eights[2] * odd, 41) ^ eights[3] * odd_2;
    const std::uint64_t mixed = (sum ^ sum >> 32) * odd;
    return mixed ^ mixed >> 29;
  }
  [[nodiscard]] bool operator==(const PieceKey& other) const {
    return ((eights[0] ^ other.eights[0]) | (eights[1] ^ other.eights[1]) | (eights[2] ^ other.eights[2]) |
            (eights[3] ^ other.eights[3])) == 0;
  }

 private:
  static std::uint64_t eight_at(const void* bytes) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes, sizeof(eight));
    return eight;
  }
  // 32 bytes of it, of which the first `length` are in the first half, keep so many bytes.
  static constexpr auto masks = [] {
    std::array<std::uint8_t, 64> bytes{};
    for (std::size_t i = 0; i < 32; ++i) bytes[i] = 0xff;
    return bytes;
  }();
};

/// A hash table of at most 16 MiB, of pieces that are not empty. A place has two slots.
class PieceCache {
 public:
  // A piece with its ids, in one cache line.
  struct alignas(64) Slot {
    PieceKey key;
    std::int32_t ids[7] = {};
    std::uint8_t num_ids = 0;
  };

  /// The memory of a piece's slots is on its way from now on.
  void prefetch(std::uint64_t hash) const {
    for (const std::uint64_t way : {0, 1}) __builtin_prefetch(&slots_[(hash ^ way) & (slots_.size() - 1)]);
  }
  /// Null if the piece is not known.
  [[nodiscard]] const Slot* find(const PieceKey& key, std::uint64_t hash) const {
    const std::size_t place = hash & (slots_.size() - 1);
    const Slot &first = slots_[place], &second = slots_[place ^ 1];
    const bool is_first = first.key == key;
    return is_first || second.key == key ? (is_first ? &first : &second) : nullptr;
  }
  /// Of two pieces at the same place one is forgotten, never all.
  void remember(const Slot& slot, std::uint64_t hash);

 private:
  void put(const Slot& slot, std::uint64_t hash);
  void grow();

  HugeVector<Slot> slots_ = HugeVector<Slot>(64);
  std::size_t num_known_ = 0;
};

}  // namespace echelon
