// A machine with weak memory that is small enough to try everything it may do. Threads are coroutines. Each atomic
// operation is a step, and every interleaving of steps is tried, and every value that a load may return.
//
// The memory model is that of C++ by views (Kang et al. 2017, A promising semantics for relaxed-memory concurrency,
// without promises): an atomic keeps all values that were stored, as messages. A thread may read any message that is
// not older than one that it knows of. A release puts what its thread knows into the message, an acquire takes it out.
// Stores take their place at the end. Of sequentially consistent operations, a load reads no message older than the
// last one that such an operation wrote or read there. Plain memory is checked: two accesses of which neither happened
// before the other, and one of which writes, are a fault.
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace echelon::weak {

using Order = std::memory_order;

struct Atomic {
  int index = 0;
};
struct Plain {
  int index = 0;
};

/// A function of a thread, or one that it calls: `co_await f(...)` returns its number.
class Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;
  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    [[nodiscard]] std::coroutine_handle<> await_suspend(Handle ended) const noexcept;
    void await_resume() const noexcept {}
  };
  struct promise_type {
    int result = 0;
    std::coroutine_handle<> caller = std::noop_coroutine();
    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
    [[nodiscard]] Final final_suspend() const noexcept { return {}; }
    void return_value(int value) { result = value; }
    void unhandled_exception() { std::terminate(); }
  };

  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] bool await_ready() const { return false; }
  [[nodiscard]] std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().caller = caller;
    return handle_;
  }
  int await_resume() const { return handle_.promise().result; }
  void start() { handle_.resume(); }
  [[nodiscard]] bool has_ended() const { return handle_.done(); }

 private:
  Handle handle_;
};

inline std::coroutine_handle<> Task::Final::await_suspend(Handle ended) const noexcept {
  return ended.promise().caller;
}

constexpr std::size_t most_atomics = 24, most_threads = 3;

/// What a thread knows of, or a message carries.
struct View {
  std::array<std::uint8_t, most_atomics> oldest = {};  // by atomic: the oldest message that may still be read
  std::array<std::uint8_t, most_threads> clock = {};   // by thread: its plain accesses that happened before
  void join(const View& other);
};

enum class Kind : std::uint8_t { load, await_bits, store, add, set_bits, swap, compare_swap, take_lowest_bit };

class Machine;

/// One atomic operation; `co_await` returns the value that it read.
struct Operation {
  Machine& machine;
  int thread = 0;
  Kind kind = Kind::load;
  Atomic where;
  int operand = 0, expected = 0;
  Order order = Order::seq_cst, failure_order = Order::seq_cst;
  int result = 0;

  [[nodiscard]] bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle);
  int await_resume() const { return result; }
};

/// What a thread may do. Plain accesses, and stores before an object is shared, are part of the step before them.
class Thread {
 public:
  Thread(Machine& machine, int index) : machine_(machine), index_(index) {}
  [[nodiscard]] Operation load(Atomic a, Order order) { return make(Kind::load, a, 0, order); }
  /// A loop that loads until one of the bits is set.
  [[nodiscard]] Operation await_bits(Atomic a, int bits, Order order) { return make(Kind::await_bits, a, bits, order); }
  [[nodiscard]] Operation store(Atomic a, int value, Order order) { return make(Kind::store, a, value, order); }
  [[nodiscard]] Operation add(Atomic a, int value, Order order) { return make(Kind::add, a, value, order); }
  [[nodiscard]] Operation set_bits(Atomic a, int bits, Order order) { return make(Kind::set_bits, a, bits, order); }
  [[nodiscard]] Operation swap(Atomic a, int value, Order order) { return make(Kind::swap, a, value, order); }
  [[nodiscard]] Operation take_lowest_bit(Atomic a, Order order) { return make(Kind::take_lowest_bit, a, 0, order); }
  /// It succeeded if it returns `expected`.
  [[nodiscard]] Operation compare_swap(Atomic a, int expected, int value, std::pair<Order, Order> orders) {
    return {machine_, index_, Kind::compare_swap, a, value, expected, orders.first, orders.second};
  }
  void store_relaxed(Atomic a, int value);
  void write(Plain p, int value);
  [[nodiscard]] int read(Plain p);
  void expect(bool claim, const std::string& fault);
  [[nodiscard]] int index() const { return index_; }

 private:
  [[nodiscard]] Operation make(Kind kind, Atomic a, int operand, Order order) {
    return {machine_, index_, kind, a, operand, 0, order, order};
  }
  Machine& machine_;
  int index_;
};

class Machine {
 public:
  [[nodiscard]] Atomic atomic(int value);
  [[nodiscard]] Plain plain();
  using Function = std::function<Task(Thread&)>;
  void add_thread(const Function& f);
  void fail(const std::string& fault);

  /// A thread's next step, and the message that it reads.
  struct Choice {
    int thread = 0, message = 0;
  };
  void start();
  [[nodiscard]] std::vector<Choice> choices() const;
  void perform(const Choice& choice);
  [[nodiscard]] bool has_ended() const;
  [[nodiscard]] const std::string& fault() const { return fault_; }
  [[nodiscard]] std::uint64_t key() const;  // equal if the future is the same

 private:
  friend class Thread;
  friend struct Operation;
  struct Message {
    int value = 0;
    View view;
  };
  struct Location {
    std::vector<Message> messages;
    std::size_t oldest_consistent = 0;  // that a sequentially consistent load may read
  };
  struct Cell {
    int value = 0;
    std::array<std::uint8_t, most_threads> last_write = {}, last_read = {};  // by thread, on its clock
  };
  struct Running {
    std::unique_ptr<const Function> function;  // what it captures is used until the task ends
    std::unique_ptr<Thread> self;
    Task task;
    Operation* next = nullptr;
    std::coroutine_handle<> handle;
    View view;
    std::uint64_t history = 0;  // of what its operations returned, which is all that its future depends on
  };
  void append(const Operation& operation, int value, const View& sequence);
  [[nodiscard]] bool can_read(const Operation& operation, std::size_t message) const;
  void access(int thread, Plain p, bool writes);

  std::vector<Location> locations_;
  std::vector<Cell> cells_;
  std::vector<Running> threads_;
  std::string fault_;
};

struct Outcome {
  std::string fault;  // the first that was found, or empty
  std::int64_t num_states = 0;
};

/// Tries all that the threads that `set_up` adds may do. Threads that wait for ever are a fault, too.
[[nodiscard]] Outcome explore(const std::function<void(Machine&)>& set_up);

}  // namespace echelon::weak
