#include "cuda/emulated/execution.h"

#include <boost/context/fiber.hpp>

#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace emulated {
namespace {

namespace context = boost::context;

thread_local std::mt19937 generator(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): runs are to be repeatable

enum class State : std::uint8_t { ready, at_block_barrier, in_warp_exchange, done };

struct Warp {
  std::array<std::array<std::byte, 32 * max_exchanged_bytes>, 2> places{};
  unsigned mask = 0;  // of the exchange at hand
  unsigned arrived = 0;
  int parity = 0;
};

/// The threads of one block, and whose turn it is.
class Turns {
 public:
  Turns(Block& block, const std::function<void()>& body) : block_(block), body_(body) {
    const dim3 size = block.grid->block_size;
    threads_.resize(static_cast<std::size_t>(size.x) * size.y * size.z);
    states_.assign(threads_.size(), State::ready);
    fibers_.resize(threads_.size());
    warps_.resize((threads_.size() + 31) / 32);
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      const auto number = static_cast<unsigned>(i);
      threads_[i] = {
          &block, {number % size.x, number / size.x % size.y, number / (size.x * size.y)}, static_cast<int>(i)};
    }
  }

  void run() {
    std::vector<std::size_t> order(threads_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    while (num_done_ < threads_.size()) {
      const std::size_t first = draw(order.size());
      bool moved = run_ahead(draw(warps_.size()));
      for (std::size_t i = 0; i < order.size(); ++i) {
        const std::size_t next = (first + i) % order.size();
        if (states_[next] != State::ready) continue;
        resume(next);
        moved = true;
      }
      if (num_at_barrier_ > 0 && num_at_barrier_ + num_done_ == threads_.size()) {
        for (State& state : states_)
          if (state == State::at_block_barrier) state = State::ready;
        num_at_barrier_ = 0;
        moved = true;
      }
      if (!moved)
        throw std::runtime_error("threads of a block wait at a barrier or in a warp for others that never come");
    }
  }

  Thread& current() { return threads_[current_]; }
  void wait_for_block() {
    ++num_at_barrier_;
    leave(State::at_block_barrier);
  }
  const std::byte* deposit(unsigned mask, const void* bytes, std::size_t num_bytes) {
    const std::size_t warp_index = current_ / 32, lane = current_ % 32;
    Warp& warp = warps_[warp_index];
    const std::size_t lanes = std::min<std::size_t>(32, threads_.size() - warp_index * 32);
    const unsigned present = lanes == 32 ? 0xffffffffU : (1U << lanes) - 1U;
    mask &= present;
    if (warp.arrived == 0) warp.mask = mask;
    if (warp.mask != mask || ((mask >> lane) & 1U) == 0)
      throw std::runtime_error("lanes of a warp exchange values under different masks");
    auto& places = warp.places[static_cast<std::size_t>(warp.parity)];
    std::memcpy(places.data() + lane * max_exchanged_bytes, bytes, num_bytes);
    warp.arrived |= 1U << lane;
    if (warp.arrived != mask) {
      leave(State::in_warp_exchange);
      return places.data();
    }
    for (std::size_t other = 0; other < lanes; ++other)
      if (((mask >> other) & 1U) != 0 && other != lane) states_[warp_index * 32 + other] = State::ready;
    warp.arrived = 0;
    warp.parity ^= 1;
    return places.data();
  }

 private:
  /// Lets one warp run as far as it can get without the others: who relies on their pace finds out.
  bool run_ahead(std::size_t warp) {
    const std::size_t end = std::min(threads_.size(), (warp + 1) * 32);
    bool has_moved = false;
    for (bool moves = true; moves; has_moved |= moves) {
      moves = false;
      for (std::size_t i = warp * 32; i < end; ++i) {
        if (states_[i] != State::ready) continue;
        resume(i);
        moves = true;
      }
    }
    return has_moved;
  }
  void resume(std::size_t index) {
    current_ = index;
    if (!fibers_[index] && !has_begun(index)) fibers_[index] = start(index);
    fibers_[index] = std::move(fibers_[index]).resume();
    if (failure_) std::rethrow_exception(failure_);
  }
  bool has_begun(std::size_t index) const { return states_[index] == State::done; }
  context::fiber start(std::size_t index) {
    return context::fiber(std::allocator_arg, stacks(), [this, index](context::fiber&& caller) {
      caller_ = std::move(caller);
      try {
        body_();
      } catch (const context::detail::forced_unwind&) {  // the block is given up
        throw;
      } catch (...) {
        failure_ = std::current_exception();
      }
      states_[index] = State::done;
      ++num_done_;
      return std::move(caller_);
    });
  }
  void leave(State state) {
    states_[current_] = state;
    const std::size_t me = current_;
    caller_ = std::move(caller_).resume();
    current_ = me;
  }

  /// A block's stacks are the next block's.
  struct Stacks {
    using traits_type = context::stack_traits;
    static constexpr std::size_t num_bytes = std::size_t{64} << 10;
    struct Unused {
      std::vector<context::stack_context> stacks;
      Unused() = default;
      ~Unused() {
        for (const context::stack_context& stack : stacks) std::free(static_cast<char*>(stack.sp) - num_bytes);
      }
      Unused(const Unused&) = delete;
      Unused& operator=(const Unused&) = delete;
    };
    static std::vector<context::stack_context>& unused() {
      static thread_local Unused list;
      return list.stacks;
    }
    static context::stack_context allocate() {
      if (!unused().empty()) {
        const context::stack_context stack = unused().back();
        unused().pop_back();
        return stack;
      }
      context::stack_context stack;
      stack.size = num_bytes;
      stack.sp = static_cast<char*>(std::aligned_alloc(64, num_bytes)) + num_bytes;
      return stack;
    }
    static void deallocate(context::stack_context& stack) { unused().push_back(stack); }
  };
  static Stacks stacks() { return {}; }

  Block& block_;
  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<State> states_;
  std::vector<context::fiber> fibers_;
  std::vector<Warp> warps_;
  context::fiber caller_;
  std::exception_ptr failure_;
  std::size_t current_ = 0, num_done_ = 0, num_at_barrier_ = 0;
};

thread_local Turns* turns = nullptr;

/// Of the size that was asked for, so that the host's sanitizers see what lies past it; full of NaN.
std::unique_ptr<std::byte, decltype(&std::free)> shared_memory(std::size_t num_bytes) {
  const std::size_t size = (num_bytes + 127) / 128 * 128;
  std::unique_ptr<std::byte, decltype(&std::free)> memory(
      size == 0 ? nullptr : static_cast<std::byte*>(std::aligned_alloc(128, size)), &std::free);
  if (size > 0) std::memset(memory.get(), 0xff, size);
  return memory;
}

}  // namespace

Thread& this_thread() { return turns->current(); }
void sync_block() { turns->wait_for_block(); }
void sync_warp(unsigned mask) { (void)turns->deposit(mask, "", 0); }
const std::byte* deposit(unsigned mask, const void* bytes, std::size_t num_bytes) {
  return turns->deposit(mask, bytes, num_bytes);
}

void run(const Grid& grid, const std::function<void()>& body) {
  const std::size_t num_blocks = static_cast<std::size_t>(grid.grid_size.x) * grid.grid_size.y * grid.grid_size.z;
  if (num_blocks == 0) return;
  const std::size_t first = draw(num_blocks);
  for (std::size_t i = 0; i < num_blocks; ++i) {
    const auto number = static_cast<unsigned>((first + i) % num_blocks);
    const std::unique_ptr<std::byte, decltype(&std::free)> shared = shared_memory(grid.shared_bytes);
    Block block = {&grid,
                   {number % grid.grid_size.x, number / grid.grid_size.x % grid.grid_size.y,
                    number / (grid.grid_size.x * grid.grid_size.y)},
                   shared.get()};
    Turns these(block, body);
    Turns* const before = turns;
    turns = &these;
    try {
      these.run();
    } catch (...) {
      turns = before;
      throw;
    }
    turns = before;
  }
}

void seed(unsigned value) { generator.seed(value); }
std::size_t draw(std::size_t count) { return generator() % count; }

}  // namespace emulated
