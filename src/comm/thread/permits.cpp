#include "comm/thread/permits.h"

#include <unistd.h>

#include <algorithm>

namespace echelon {

Permits::Permits(int num_permits, int num_ranks, std::vector<CpuSet> cores)
    : is_scarce_(num_ranks > num_permits),
      cores_(std::move(cores)),
      num_free_(num_permits),
      beds_(static_cast<std::size_t>(num_ranks)) {
  for (int permit = num_permits - 1; permit >= 0; --permit) free_.push_back(permit);
}

void Permits::bind(int rank) {
  is_bound_ = !cores_.empty();
  put_on_core(rank);
}

void Permits::acquire(int rank) {
  bed(rank).thread = gettid();
  bool has_permit = false;
  {
    const std::lock_guard lock(mutex_);
    has_permit = take_or_queue(rank);
  }
  if (has_permit) return put_on_core(rank);
  await_call(rank, std::nullopt);
}

void Permits::release(int rank) {
  Called next;
  {
    const std::lock_guard lock(mutex_);
    next = give_back(rank);
  }
  call(next);
}

void Permits::yield(int rank) {
  if (ready_.size() == 0) return;
  Called next;
  {
    const std::lock_guard lock(mutex_);
    if (ready_.size() == 0) return;
    next = give_back(rank);
    push(ready_, rank);
  }
  call(next);
  await_call(rank, std::nullopt);
}

bool Permits::sleep(int rank, RankQueue& queue, const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                    Deadline deadline) {
  Called next;
  {
    const std::lock_guard lock(mutex_);
    // Before the look at the word: whoever changes it looks at the queue afterwards, and one of the two sees the other.
    push(queue, rank);
    if (nobody_sleeps_ || word.load() != expected) {
      remove(rank);
      return true;
    }
    next = give_back(rank);
  }
  call(next);
  if (await_call(rank, deadline)) return true;
  bool was_woken = false, has_permit = false;
  {
    const std::lock_guard lock(mutex_);
    was_woken = bed(rank).queue != &queue;
    if (!was_woken) {
      remove(rank);
      has_permit = take_or_queue(rank);
    }
  }
  if (has_permit)
    put_on_core(rank);
  else
    await_call(rank, std::nullopt);
  return was_woken;
}

void Permits::wake(RankQueue& queue, int count) {
  while (count > 0 && queue.size() > 0) {
    Called called;
    {
      const std::lock_guard lock(mutex_);
      for (; count > 0 && queue.first_ >= 0 && !called; --count) {
        const int rank = queue.first_;
        remove(rank);
        if (take_or_queue(rank)) called = rank;
      }
    }
    call(called);
  }
}

void Permits::wake_idle(int count) {
  const std::lock_guard lock(mutex_);
  for (std::size_t looked = 0; looked < beds_.size() && count > 0 && num_idle() > 0; ++looked) {
    const auto rank = static_cast<int>(next_idle_++ % beds_.size());
    if (bed(rank).queue == nullptr || bed(rank).queue == &ready_) continue;
    remove(rank);
    if (take_or_queue(rank)) call(rank);
    --count;
  }
}

void Permits::wake_all() {
  const std::lock_guard lock(mutex_);
  nobody_sleeps_ = true;
  for (int rank = 0; rank < static_cast<int>(beds_.size()); ++rank) {
    if (bed(rank).queue == nullptr || bed(rank).queue == &ready_) continue;
    remove(rank);
    if (take_or_queue(rank)) call(rank);
  }
}

// --- under the mutex ---

void Permits::push(RankQueue& queue, int rank) {
  Bed& own = bed(rank);
  own.queue = &queue;
  own.next = -1;
  own.previous = queue.last_;
  (queue.last_ < 0 ? queue.first_ : bed(queue.last_).next) = rank;
  queue.last_ = rank;
  queue.size_.fetch_add(1);
  if (&queue != &ready_) num_asleep_.fetch_add(1, std::memory_order_relaxed);
}

void Permits::remove(int rank) {
  Bed& own = bed(rank);
  RankQueue& queue = *own.queue;
  (own.previous < 0 ? queue.first_ : bed(own.previous).next) = own.next;
  (own.next < 0 ? queue.last_ : bed(own.next).previous) = own.previous;
  own.queue = nullptr;
  queue.size_.fetch_sub(1);
  if (&queue != &ready_) num_asleep_.fetch_sub(1, std::memory_order_relaxed);
}

// Whom the permit goes to: it is to be called.
Permits::Called Permits::give_back(int rank) {
  const int permit = bed(rank).permit;
  if (ready_.first_ < 0) {
    ++num_free_;
    free_.push_back(permit);
    return std::nullopt;
  }
  const int next = ready_.first_;
  remove(next);
  bed(next).permit = permit;
  return next;
}

bool Permits::take_or_queue(int rank) {
  if (num_free_ > 0) {
    --num_free_;
    bed(rank).permit = free_.back();
    free_.pop_back();
    return true;
  }
  push(ready_, rank);
  return false;
}

// --- outside of it ---

void Permits::call(const Called& rank) {
  if (!rank) return;
  put_on_core(*rank);
  bed(*rank).is_called.store(1);
  futex_wake(bed(*rank).is_called, 1);
}

// Before it wakes, so that the system puts it there at once: it would choose the core where it ran before, on which
// another one may compute by now.
void Permits::put_on_core(int rank) {
  Bed& own = bed(rank);
  if (!is_bound_.load(std::memory_order_relaxed) || own.core == own.permit) return;
  own.core = own.permit;
  bind_thread(own.thread, cores_[static_cast<std::size_t>(own.permit)]);
}

// False if the deadline passed first.
bool Permits::await_call(int rank, const std::optional<Deadline>& deadline) {
  FutexWord& is_called = bed(rank).is_called;
  while (is_called.load() == 0) {
    if (!deadline)
      futex_wait(is_called, 0);
    else if (!futex_wait(is_called, 0, *deadline))
      break;
  }
  return is_called.exchange(0) != 0;
}

}  // namespace echelon
