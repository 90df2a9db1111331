#include "comm/weak_memory.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_set>

namespace echelon::weak {
namespace {

bool acquires(Order order) { return order != Order::relaxed && order != Order::release; }
bool releases(Order order) { return order != Order::relaxed && order != Order::acquire; }

/// What an operation that read `value` stores; nothing if it only loads.
std::optional<int> stored(const Operation& operation, int value) {
  switch (operation.kind) {
    case Kind::load:
    case Kind::await_bits: return std::nullopt;
    case Kind::store:
    case Kind::swap: return operation.operand;
    case Kind::add: return value + operation.operand;
    case Kind::set_bits: return value | operation.operand;
    case Kind::take_lowest_bit: return value & (value - 1);
    case Kind::compare_swap: return value == operation.expected ? std::optional(operation.operand) : std::nullopt;
  }
  return std::nullopt;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {  // the finalizer of MurmurHash3
  hash = (hash ^ value) * 0xff51afd7ed558ccdU;
  hash = (hash ^ hash >> 33U) * 0xc4ceb9fe1a85ec53U;
  return hash ^ hash >> 33U;
}

/// `base`: by atomic, the oldest message that any thread may still read.
std::uint64_t mixed(std::uint64_t hash, const View& view, const std::array<std::uint8_t, most_atomics>& base) {
  std::array<std::uint8_t, 32> bytes = {};
  static_assert(most_atomics + most_threads <= bytes.size());
  for (std::size_t i = 0; i < most_atomics; ++i)
    bytes[i] = static_cast<std::uint8_t>(std::max(view.oldest[i], base[i]) - base[i]);
  std::copy(view.clock.begin(), view.clock.end(), bytes.begin() + most_atomics);
  for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, 4>>(bytes)) hash = mixed(hash, word);
  return hash;
}

}  // namespace

void View::join(const View& other) {
  for (std::size_t i = 0; i < oldest.size(); ++i) oldest[i] = std::max(oldest[i], other.oldest[i]);
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other.clock[i]);
}

void Operation::await_suspend(std::coroutine_handle<> handle) {
  auto& running = machine.threads_[static_cast<std::size_t>(thread)];
  running.next = this;
  running.handle = handle;
}

void Thread::store_relaxed(Atomic a, int value) { machine_.append(store(a, value, Order::relaxed), value, {}); }
void Thread::write(Plain p, int value) {
  machine_.access(index_, p, true);
  machine_.cells_[static_cast<std::size_t>(p.index)].value = value;
}
void Thread::expect(bool claim, const std::string& fault) {
  if (!claim) machine_.fail(fault);
}
int Thread::read(Plain p) {
  machine_.access(index_, p, false);
  return machine_.cells_[static_cast<std::size_t>(p.index)].value;
}

Atomic Machine::atomic(int value) {
  if (locations_.size() == most_atomics) fail("more atomics than most_atomics");
  locations_.push_back({.messages = {{.value = value, .view = {}}}});
  return {static_cast<int>(locations_.size()) - 1};
}

Plain Machine::plain() {
  cells_.emplace_back();
  return {static_cast<int>(cells_.size()) - 1};
}

void Machine::add_thread(const Function& f) {
  auto function = std::make_unique<const Function>(f);
  auto self = std::make_unique<Thread>(*this, static_cast<int>(threads_.size()));
  Task task = (*function)(*self);
  threads_.push_back(
      {.function = std::move(function), .self = std::move(self), .task = std::move(task), .handle = {}, .view = {}});
}

void Machine::fail(const std::string& fault) {
  if (fault_.empty()) fault_ = fault;
}

void Machine::start() {
  for (Running& running : threads_) running.task.start();
}

bool Machine::has_ended() const {
  return std::ranges::all_of(threads_, [](const Running& running) { return running.task.has_ended(); });
}

bool Machine::can_read(const Operation& operation, std::size_t message) const {
  const Location& location = locations_[static_cast<std::size_t>(operation.where.index)];
  const int value = location.messages[message].value;
  const bool is_last = message + 1 == location.messages.size();
  if (operation.kind == Kind::await_bits) return (value & operation.operand) != 0;
  return is_last || !stored(operation, value).has_value();
}

std::vector<Machine::Choice> Machine::choices() const {
  std::vector<Choice> all;
  for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
    const Operation* const next = threads_[thread].next;
    if (next == nullptr) continue;
    const auto where = static_cast<std::size_t>(next->where.index);
    const Location& location = locations_[where];
    std::size_t first = threads_[thread].view.oldest[where];
    if (next->order == Order::seq_cst) first = std::max(first, location.oldest_consistent);
    for (std::size_t message = first; message < location.messages.size(); ++message)
      if (can_read(*next, message)) all.push_back({static_cast<int>(thread), static_cast<int>(message)});
  }
  return all;
}

void Machine::append(const Operation& operation, int value, const View& sequence) {
  const auto where = static_cast<std::size_t>(operation.where.index);
  Location& location = locations_[where];
  View& view = threads_[static_cast<std::size_t>(operation.thread)].view;
  view.oldest[where] = static_cast<std::uint8_t>(location.messages.size());
  View carried = sequence;
  carried.oldest[where] = view.oldest[where];
  if (releases(operation.order)) carried.join(view);
  if (operation.order == Order::seq_cst) location.oldest_consistent = location.messages.size();
  location.messages.push_back({value, carried});
}

void Machine::perform(const Choice& choice) {
  Running& running = threads_[static_cast<std::size_t>(choice.thread)];
  Operation& operation = *std::exchange(running.next, nullptr);
  const auto where = static_cast<std::size_t>(operation.where.index);
  Location& location = locations_[where];
  const Message read = location.messages[static_cast<std::size_t>(choice.message)];
  const std::optional<int> value = stored(operation, read.value);
  const bool is_store = operation.kind == Kind::store;
  if (!is_store) {
    running.view.oldest[where] = static_cast<std::uint8_t>(choice.message);
    if (acquires(value ? operation.order : operation.failure_order)) running.view.join(read.view);
    if (operation.order == Order::seq_cst)
      location.oldest_consistent = std::max(location.oldest_consistent, static_cast<std::size_t>(choice.message));
    operation.result = read.value;
  }
  if (value) append(operation, *value, is_store ? View() : read.view);  // what is read stays in the release sequence
  running.history = mixed(running.history, static_cast<std::uint64_t>(operation.result) + 1);
  running.handle.resume();
}

void Machine::access(int thread, Plain p, bool writes) {
  View& view = threads_[static_cast<std::size_t>(thread)].view;
  Cell& cell = cells_[static_cast<std::size_t>(p.index)];
  for (std::size_t other = 0; other < most_threads; ++other)
    if (cell.last_write[other] > view.clock[other] || (writes && cell.last_read[other] > view.clock[other]))
      fail("threads " + std::to_string(other) + " and " + std::to_string(thread) + " race for plain memory");
  auto& last = writes ? cell.last_write : cell.last_read;
  last[static_cast<std::size_t>(thread)] = ++view.clock[static_cast<std::size_t>(thread)];
}

std::uint64_t Machine::key() const {
  std::array<std::uint8_t, most_atomics> base = threads_[0].view.oldest;
  for (const Running& running : threads_)
    for (std::size_t i = 0; i < most_atomics; ++i) base[i] = std::min(base[i], running.view.oldest[i]);
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < locations_.size(); ++i) {
    const Location& location = locations_[i];
    hash = mixed(hash, std::max<std::size_t>(location.oldest_consistent, base[i]) - base[i]);
    for (std::size_t message = base[i]; message < location.messages.size(); ++message) {
      hash = mixed(hash, static_cast<std::uint64_t>(location.messages[message].value));
      hash = mixed(hash, location.messages[message].view, base);
    }
  }
  for (const Cell& cell : cells_) {
    hash = mixed(hash, static_cast<std::uint64_t>(cell.value));
    for (std::size_t thread = 0; thread < most_threads; ++thread)
      hash = mixed(hash, static_cast<std::uint64_t>(cell.last_write[thread] << 8 | cell.last_read[thread]));
  }
  for (const Running& running : threads_) hash = mixed(mixed(hash, running.history), running.view, base);
  return hash;
}

Outcome explore(const std::function<void(Machine&)>& set_up) {
  std::unordered_set<std::uint64_t> seen;
  std::vector<std::vector<Machine::Choice>> open(1);
  while (!open.empty()) {
    std::vector<Machine::Choice> path = std::move(open.back());
    open.pop_back();
    Machine machine;
    set_up(machine);
    machine.start();
    for (const Machine::Choice& choice : path) machine.perform(choice);
    for (;;) {
      const auto num_states = static_cast<std::int64_t>(seen.size());
      if (!machine.fault().empty()) return {machine.fault(), num_states};
      if (!seen.insert(machine.key()).second || machine.has_ended()) break;
      const std::vector<Machine::Choice> choices = machine.choices();
      if (choices.empty()) return {"a thread waits for ever", num_states};
      for (std::size_t other = 1; other < choices.size(); ++other) {
        open.push_back(path);
        open.back().push_back(choices[other]);
      }
      path.push_back(choices[0]);
      machine.perform(choices[0]);
    }
  }
  return {"", static_cast<std::int64_t>(seen.size())};
}

}  // namespace echelon::weak
