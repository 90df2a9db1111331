#include "cuda/emulated/warp_matrices.h"

#include <array>
#include <bit>
#include <stdexcept>

namespace emulated {
namespace {

float number(std::uint32_t pair, int which) {
  return std::bit_cast<float>(which == 0 ? pair << 16U : pair & 0xffff0000U);
}

struct Operands {
  std::array<std::uint32_t, 4> a;
  std::array<std::uint32_t, 2> b;
};

constexpr unsigned all_lanes = 0xffffffffU;

std::byte* shared_memory_at(std::uint32_t place, int num_bytes) {
  const Block& block = *this_thread().block;
  if (place % static_cast<unsigned>(num_bytes) != 0)
    throw std::runtime_error("a place in shared memory is not aligned");
  if (place + static_cast<unsigned>(num_bytes) > block.grid->shared_bytes)
    throw std::runtime_error("a place lies outside of the block's shared memory");
  return block.shared + place;
}

}  // namespace

void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const std::byte* const places = deposit(all_lanes, &mine, sizeof mine);
  const int lane = this_thread().lane();
  std::array<float, 4> sums = {c[0], c[1], c[2], c[3]};
  for (int k = 0; k < 16; ++k) {
    // Who holds a[row][k] and b[k][column]: lanes in groups of four per row or column, two neighbouring k each,
    // registers for k and k + 8.
    const int right = k / 8, holder = k % 8 / 2, which = k % 2;
    const auto of_row = value_of<Operands>(places, lane / 4 * 4 + holder);
    for (int column = 0; column < 2; ++column) {
      const auto of_column = value_of<Operands>(places, (lane % 4 * 2 + column) * 4 + holder);
      const float b = number(of_column.b[static_cast<std::size_t>(right)], which);
      for (int below = 0; below < 2; ++below)
        sums[static_cast<std::size_t>(2 * below + column)] +=
            number(of_row.a[static_cast<std::size_t>(2 * right + below)], which) * b;
    }
  }
  for (std::size_t i = 0; i < 4; ++i) c[i] = sums[i];
}

void load_matrices(std::uint32_t (&out)[4], std::uint32_t row, bool is_transposed) {
  const std::byte* const numbers_of_row = shared_memory_at(row, 16);
  const std::byte* const places = deposit(all_lanes, &numbers_of_row, sizeof numbers_of_row);
  const int lane = this_thread().lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](int r, int column) {
      const auto* const numbers = value_of<const std::uint16_t*>(places, 8 * matrix + r);
      return static_cast<std::uint32_t>(numbers[column]);
    };
    const int along = lane % 4 * 2, across = lane / 4;
    const std::uint32_t first = is_transposed ? element(along, across) : element(across, along);
    const std::uint32_t second = is_transposed ? element(along + 1, across) : element(across, along + 1);
    out[matrix] = first | second << 16U;
  }
  sync_warp(all_lanes);  // nobody writes there before all have read
}

void begin_copy(std::uint32_t shared, const void* global, int num_bytes) {
  std::byte* const out = shared_memory_at(shared, num_bytes);
  if (reinterpret_cast<std::uintptr_t>(global) % static_cast<std::uintptr_t>(num_bytes) != 0)
    throw std::runtime_error("an address is not aligned");
  std::memset(out, 0xff, static_cast<std::size_t>(num_bytes));
  this_thread().copies.push_back({out, global, num_bytes, this_thread().num_groups});
}

void close_group_of_copies() { ++this_thread().num_groups; }

void wait_for_copies_but_last(int count) {
  Thread& thread = this_thread();
  const auto is_over = [&](const Thread::Copy& copy) { return copy.group < thread.num_groups - count; };
  for (const Thread::Copy& copy : thread.copies) {
    if (!is_over(copy)) continue;
    if (copy.global != nullptr)
      std::memcpy(copy.shared, copy.global, static_cast<std::size_t>(copy.num_bytes));
    else
      std::memset(copy.shared, 0, static_cast<std::size_t>(copy.num_bytes));
  }
  std::erase_if(thread.copies, is_over);
}

}  // namespace emulated
