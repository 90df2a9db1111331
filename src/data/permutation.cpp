#include "data/permutation.h"

#include <bit>

namespace echelon {
namespace {

std::uint64_t feistel(std::uint64_t x, int half_bits, std::uint64_t key) {
  constexpr int rounds = 8;  // more than the four that security needs: tiny domains mix slowly
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = x >> half_bits;
  std::uint64_t right = x & mask;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t next = left ^ (mix(key + static_cast<std::uint64_t>(round), right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9e3779b97f4a7c15u + b + 0x9e3779b97f4a7c15u;
  for (int pass = 0; pass < 2; ++pass) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
  }
  return z;
}

std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t key) {
  if (size < 2) return 0;
  const int half_bits = (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
  std::uint64_t x = index;
  do x = feistel(x, half_bits, key);
  while (x >= size);
  return x;
}

}  // namespace echelon
