#include "comm/thread/permits.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace echelon {

Permits::Permits(int num_permits, int num_ranks, std::vector<CpuSet> cores)
    : is_scarce_(num_ranks > num_permits),
      cores_(std::move(cores)),
      num_free_(num_permits),
      slots_(static_cast<std::size_t>(num_ranks)) {
  for (int permit = num_permits - 1; permit >= 0; --permit) free_.push_back(permit);
}

void Permits::bind(int rank) {
  is_bound_.store(!cores_.empty(), std::memory_order_relaxed);  // the cores are constant
  put_on_core(rank);
}

void Permits::acquire(int rank) {
  slot(rank).thread = gettid();
  bool has_permit = false;
  {
    const std::lock_guard lock(mutex_);
    has_permit = take_or_queue(rank);
  }
  if (has_permit) return put_on_core(rank);
  await_wake(rank, std::nullopt);
}

void Permits::release(int rank) {
  NextRank next;
  {
    const std::lock_guard lock(mutex_);
    next = give_back(rank);
  }
  wake_thread(next);
}

void Permits::yield(int rank) {
  if (ready_.size() == 0) return;
  NextRank next;
  {
    const std::lock_guard lock(mutex_);
    if (ready_.size() == 0) return;
    next = give_back(rank);
    push(ready_, rank);
  }
  wake_thread(next);
  await_wake(rank, std::nullopt);
}

bool Permits::sleep(int rank, RankQueue& queue, const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                    Deadline deadline) {
  NextRank next;
  {
    const std::lock_guard lock(mutex_);
    // Before the word is read: a thread that changes the word reads the queue afterwards, so one of the two sees the
    // other.
    push(queue, rank);
    if (sleep_is_over_ || word.load(order::see_word_before_sleep) != expected) {
      remove(rank);
      return true;
    }
    next = give_back(rank);
  }
  wake_thread(next);
  if (await_wake(rank, deadline)) return true;
  bool was_woken = false, has_permit = false;
  {
    const std::lock_guard lock(mutex_);
    was_woken = slot(rank).queue != &queue;
    if (!was_woken) {
      remove(rank);
      has_permit = take_or_queue(rank);
    }
  }
  if (has_permit)
    put_on_core(rank);
  else
    await_wake(rank, std::nullopt);
  return was_woken;
}

void Permits::wake(RankQueue& queue, int count) {
  while (count > 0 && queue.size() > 0) {
    NextRank called;
    {
      const std::lock_guard lock(mutex_);
      for (; count > 0 && queue.first_ >= 0 && !called; --count) {
        const int rank = queue.first_;
        remove(rank);
        if (take_or_queue(rank)) called = rank;
      }
    }
    wake_thread(called);
  }
}

void Permits::wake_idle(int count) {
  const std::lock_guard lock(mutex_);
  for (std::size_t looked = 0; looked < slots_.size() && count > 0 && num_idle() > 0; ++looked) {
    const auto rank = static_cast<int>(next_idle_++ % slots_.size());
    if (slot(rank).queue == nullptr || slot(rank).queue == &ready_) continue;
    remove(rank);
    if (take_or_queue(rank)) wake_thread(rank);
    --count;
  }
}

void Permits::wake_all() {
  const std::lock_guard lock(mutex_);
  sleep_is_over_ = true;
  for (int rank = 0; rank < static_cast<int>(slots_.size()); ++rank) {
    if (slot(rank).queue == nullptr) continue;
    remove(rank);
    (void)take_or_queue(rank);
    wake_thread(rank);
  }
}

std::vector<int> Permits::holders() {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(slots_.size()); ++rank)
    if (slot(rank).permit >= 0) ranks.push_back(rank);
  return ranks;
}

// --- under the mutex ---

void Permits::push(RankQueue& queue, int rank) {
  RankSlot& own = slot(rank);
  own.queue = &queue;
  own.next = -1;
  own.previous = queue.last_;
  (queue.last_ < 0 ? queue.first_ : slot(queue.last_).next) = rank;
  queue.last_ = rank;
  queue.size_.fetch_add(1, order::count_sleeper);
  if (&queue != &ready_) num_asleep_.fetch_add(1, std::memory_order_relaxed);
}

void Permits::remove(int rank) {
  RankSlot& own = slot(rank);
  RankQueue& queue = *own.queue;
  (own.previous < 0 ? queue.first_ : slot(own.previous).next) = own.next;
  (own.next < 0 ? queue.last_ : slot(own.next).previous) = own.previous;
  own.queue = nullptr;
  queue.size_.fetch_sub(1, std::memory_order_relaxed);  // who sees too many looks under the mutex
  if (&queue != &ready_) num_asleep_.fetch_sub(1, std::memory_order_relaxed);
}

// Returns the rank that gets the permit and must be woken.
Permits::NextRank Permits::give_back(int rank) {
  const int permit = std::exchange(slot(rank).permit, -1);
  if (permit < 0) return std::nullopt;
  num_handovers_.fetch_add(1, std::memory_order_relaxed);
  if (ready_.first_ < 0) {
    num_free_.fetch_add(1, std::memory_order_relaxed);
    free_.push_back(permit);
    return std::nullopt;
  }
  const int next = ready_.first_;
  remove(next);
  slot(next).permit = permit;
  return next;
}

// After an abort, a rank unwinds without a permit if none is free: who holds one may never give it back.
bool Permits::take_or_queue(int rank) {
  if (num_free_.load(std::memory_order_relaxed) > 0) {
    num_handovers_.fetch_add(1, std::memory_order_relaxed);
    num_free_.fetch_sub(1, std::memory_order_relaxed);
    slot(rank).permit = free_.back();
    free_.pop_back();
    return true;
  }
  if (sleep_is_over_) return true;
  push(ready_, rank);
  return false;
}

// --- outside of it ---

void Permits::wake_thread(const NextRank& rank) {
  if (!rank) return;
  put_on_core(*rank);
  slot(*rank).is_woken.store(1, order::wake);
  futex_wake(slot(*rank).is_woken, 1);
}

// Before it wakes, so that the system schedules it there at once. Otherwise it would choose the previous core, on which
// another rank may compute by now.
void Permits::put_on_core(int rank) {
  RankSlot& own = slot(rank);
  if (!is_bound_.load(std::memory_order_relaxed) || own.permit < 0 || own.core == own.permit) return;
  own.core = own.permit;
  bind_thread(own.thread, cores_[static_cast<std::size_t>(own.permit)]);
}

// False if the deadline passed first.
bool Permits::await_wake(int rank, const std::optional<Deadline>& deadline) {
  FutexWord& is_woken = slot(rank).is_woken;
  while (is_woken.load(std::memory_order_relaxed) == 0) {  // the exchange below orders what follows
    if (!deadline)
      futex_wait(is_woken, 0);
    else if (!futex_wait(is_woken, 0, *deadline))
      break;
  }
  return is_woken.exchange(0, order::wake_up) != 0;
}

}  // namespace echelon
