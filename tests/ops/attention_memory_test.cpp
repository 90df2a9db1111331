// What attention on a CPU takes beyond its operands does not grow with the sequence.
#include "numbers.h"
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

namespace {

std::atomic<std::int64_t> bytes_allocated = 0;

void* counted(std::size_t size) {
  bytes_allocated += static_cast<std::int64_t>(size);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace echelon {
namespace {

/// Bytes that a thread allocates for both passes over T tokens, each of which sees the 64 before it. Scratch stays with
/// a thread, so each call has one of its own.
std::int64_t bytes_taken(DType dtype, std::int64_t T, std::int64_t heads) {
  const Sizes sizes = {1, T, heads, 8}, rows = {1, heads, T};
  std::vector<std::int32_t> begin, end;
  for (std::int32_t position = 0; position < T; ++position) {
    begin.push_back(std::max(0, position - 63));
    end.push_back(position + 1);
  }
  const Numbers q = Numbers::random(dtype, sizes, 1), k = Numbers::random(dtype, sizes, 2),
                v = Numbers::random(dtype, sizes, 3), dout = Numbers::random(dtype, sizes, 4), out(dtype, sizes),
                dq(dtype, sizes), dk(dtype, sizes), dv(dtype, sizes), dq_sums(accumulate_dtype(dtype), sizes);
  const Numbers lse(accumulate_dtype(dtype), rows), delta = lse, begins = Numbers::tokens(begin),
                                                    ends = Numbers::tokens(end);
  const AttentionMask mask = {.begin = begins, .end = ends, .num_pairs = 64 * T};
  const Tensor sums = accumulate_dtype(dtype) == dtype ? Tensor() : dq_sums;
  std::int64_t taken = 0;
  std::thread([&] {
    CpuOps ops({.num_threads = 1});
    const std::int64_t before = bytes_allocated;
    ops.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse, .scale = 0.3, .mask = mask});
    ops.attention_backward({.q = q,
                            .k = k,
                            .v = v,
                            .out = out,
                            .lse = lse,
                            .dout = dout,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .delta = delta,
                            .scale = 0.3,
                            .mask = mask,
                            .dq_sums = sums});
    taken = bytes_allocated - before;
  }).join();
  return taken;
}

TEST(AttentionMemory, DoesNotGrowWithTheSequence) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
    for (const std::int64_t heads : {1, 4}) {
      const std::int64_t bytes = bytes_taken(dtype, 4096, heads);
      EXPECT_GT(bytes, 0);
      EXPECT_EQ(bytes_taken(dtype, 32768, heads), bytes) << name_of(dtype) << ", heads " << heads;
    }
}

}  // namespace
}  // namespace echelon
