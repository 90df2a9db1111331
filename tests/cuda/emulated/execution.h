// How an emulated kernel runs: the threads of a block are fibers of one thread of the host, which take turns at
// barriers and where a warp exchanges values.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emulated {

struct Grid {
  dim3 grid_size, block_size;
  std::size_t shared_bytes = 0;  // asked for at the launch
};
struct Block {
  const Grid* grid = nullptr;
  uint3 index;
  std::byte* shared = nullptr;
};
struct Thread {
  Block* block = nullptr;
  uint3 index;
  int number = 0;  // within the block
  /// Copies to shared memory that are under way, and how many groups of them have been closed.
  struct Copy {
    void* shared;
    const void* global;
    int num_bytes, group;
  };
  std::vector<Copy> copies = {};
  int num_groups = 0;
  [[nodiscard]] int lane() const { return number % 32; }
};

[[nodiscard]] Thread& this_thread();

/// Runs body() for every thread of the grid. Throws std::runtime_error if threads of a block wait for others that never
/// come.
void run(const Grid& grid, const std::function<void()>& body);

void sync_block();
void sync_warp(unsigned mask);

inline constexpr std::size_t max_exchanged_bytes = 64;
/// Puts this lane's bytes where the others of `mask` see them, and returns when all of them have. The 32 places lie one
/// after the other, and stay until the lane's next exchange has ended.
[[nodiscard]] const std::byte* deposit(unsigned mask, const void* bytes, std::size_t num_bytes);

template <class T>
[[nodiscard]] T value_of(const std::byte* places, int lane) {
  T value;
  std::memcpy(&value, places + static_cast<std::size_t>(lane) * max_exchanged_bytes, sizeof value);
  return value;
}
template <class T, class F>
T exchange(unsigned mask, const T& value, F&& source_of) {
  static_assert(sizeof(T) <= max_exchanged_bytes);
  const std::byte* places = deposit(mask, &value, sizeof value);
  const int source = source_of(this_thread().lane());
  assert(((mask >> source) & 1U) != 0);
  return value_of<T>(places, source);
}
[[nodiscard]] inline unsigned ballot(unsigned mask, bool predicate) {
  const std::byte* places = deposit(mask, &predicate, sizeof predicate);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane)
    if (((mask >> lane) & 1U) != 0 && value_of<bool>(places, lane)) bits |= 1U << lane;
  return bits;
}

/// Of the orders in which threads, blocks and streams take turns. Kept per thread of the host.
void seed(unsigned value);
[[nodiscard]] std::size_t draw(std::size_t count);  // below count

}  // namespace emulated
