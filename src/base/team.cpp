#include "base/team.h"

#include "base/lending.h"
#include "base/team_cores.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

namespace echelon {
namespace {

constexpr int share_bits = 16;
constexpr std::uint64_t share_mask = (1U << share_bits) - 1;
static_assert(Team::most_shares == share_mask);

struct Ticket {
  std::uint64_t job = 0;  // counts up; its upper bits are lost
  int num_shares = 0, next = 0;

  [[nodiscard]] std::uint64_t packed() const {
    return job << (2 * share_bits) | static_cast<std::uint64_t>(num_shares) << share_bits |
           static_cast<std::uint64_t>(next);
  }
  static Ticket of(std::uint64_t word) {
    return {word >> (2 * share_bits), static_cast<int>(word >> share_bits & share_mask),
            static_cast<int>(word & share_mask)};
  }
};

// Threads of all teams of this process, callers included.
std::atomic<int> num_team_threads = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

thread_local Team* team_of_this_thread = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
thread_local bool is_within_share = false;         // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

/// Cores that this process may run on, as bound by a launcher. Read from the main thread, since a rank's thread may be
/// bound to its share of them.
int num_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(getpid(), sizeof(cores), &cores) != 0)
    return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&cores);
}

/// The team of this thread.
struct Spread {
  std::vector<std::vector<int>> cores;
  std::size_t num_placed = 0;  // workers
};
thread_local Spread spread_of_this_thread;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void bind(std::thread& thread, const std::vector<int>& processors) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int processor : processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &mask);
  pthread_setaffinity_np(thread.native_handle(), sizeof(mask), &mask);  // where it is refused, the system decides
}

/// Once only. If a caller later arrives at a worker's core, the system moves the caller. Workers that made room for it
/// would be moved at every call.
void place(std::vector<std::thread>& workers) {
  Spread& spread = spread_of_this_thread;
  if (workers.size() == spread.num_placed || spread.cores.size() <= workers.size()) return;
  const int processor = sched_getcpu();
  const auto own = std::find_if(spread.cores.begin(), spread.cores.end(),
                                [&](const auto& core) { return std::count(core.begin(), core.end(), processor) > 0; });
  const auto callers = static_cast<std::size_t>(own - spread.cores.begin());
  std::size_t next = 0;
  for (std::thread& worker : workers) {
    if (next == callers) ++next;
    bind(worker, spread.cores[next++]);
  }
  spread.num_placed = workers.size();
}

}  // namespace

void spread_team_of_this_thread(std::vector<std::vector<int>> cores) { spread_of_this_thread = {std::move(cores)}; }

Team::Team(int num_threads, const Place& place) : place_(place) {
  ++num_team_threads;
  grow(num_threads);
}

void Team::grow(int num_threads) {
  while (this->num_threads() < num_threads) {
    ++num_team_threads;
    workers_.emplace_back([this] { work(); });
  }
}

Team::~Team() {
  is_over_ = true;
  ++num_calls_;
  num_calls_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  num_team_threads -= num_threads();
}

Team& Team::of_this_thread(int num_threads) {
  if (team_of_this_thread == nullptr) {
    static thread_local std::unique_ptr<Team> team;
    team = std::make_unique<Team>(num_threads);
    team_of_this_thread = team.get();
  }
  team_of_this_thread->grow(num_threads);
  return *team_of_this_thread;
}

Team* Team::adopt(Team* team) { return std::exchange(team_of_this_thread, team); }

int Team::num_threads_now(int num_threads) {
  const Lending* const lending = team_of_this_thread == nullptr ? nullptr : team_of_this_thread->place_.lending;
  return lending == nullptr ? num_threads : num_threads * (1 + lending->num_available());
}

int Team::most_threads(int num_threads) {
  static const int cores = num_cores();
  const Lending* const lending = team_of_this_thread == nullptr ? nullptr : team_of_this_thread->place_.lending;
  return lending == nullptr ? num_threads
                            : std::max(num_threads, std::min(cores, num_threads * lending->num_members()));
}

void Team::run(int num_shares, ShareFunction f) {
  if (num_shares <= 1 || is_within_share) {
    for (int share = 0; share < num_shares; ++share) f(share);
    return;
  }
  offer(num_shares, f);
  if (place_.lending != nullptr) place_.lending->open(*this, num_shares);
  take_part();
  if (place_.lending != nullptr) place_.lending->close(*this);
  rethrow_failure();
}

void Team::run_alone(int num_shares, ShareFunction f) {
  if (num_shares <= 1) return f(0);
  offer(num_shares, f);
  take_part();
  rethrow_failure();
}

void Team::offer(int num_shares, const ShareFunction& f) {
  assert(num_shares <= most_shares);
  place(workers_);
  function_ = &f;
  num_unfinished_.store(static_cast<std::uint32_t>(num_shares), std::memory_order_relaxed);
  const Ticket before = Ticket::of(ticket_.load(std::memory_order_relaxed));
  ticket_.store(Ticket{before.job + 1, num_shares, 0}.packed());
  ++num_calls_;
  // A worker counts itself as asleep before it looks at num_calls_ for the last time: one of the two always sees the
  // other.
  if (num_asleep_.load() > 0) num_calls_.notify_all();
}

void Team::take_part() {
  while (help()) {
  }
  wait_for_shares();
}

void Team::rethrow_failure() {
  if (failure_.exception) std::rethrow_exception(std::exchange(failure_, {}).exception);
}

bool Team::help() {
  std::uint64_t seen = ticket_.load();
  for (;;) {
    Ticket ticket = Ticket::of(seen);
    if (ticket.next >= ticket.num_shares) return false;
    const int share = ticket.next++;
    if (!ticket_.compare_exchange_weak(seen, ticket.packed())) continue;
    compute(share);
    return true;
  }
}

void Team::compute(int share) {
  const bool was_within = std::exchange(is_within_share, true);
  try {
    (*function_)(share);
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.exception || share < failure_.share) failure_ = {share, std::current_exception()};
  }
  is_within_share = was_within;
  // The team may be destroyed after the last one. Waking an address without a sleeper is harmless.
  std::atomic<std::uint32_t>& unfinished = num_unfinished_;
  if (unfinished.fetch_sub(1) == 1) unfinished.notify_one();
}

void Team::await(const std::atomic<std::uint32_t>& count, std::int64_t least) {
  for (;;) {
    const std::uint32_t now = count.load(std::memory_order_acquire);
    if (now >= least) return;
    if (!stay_awake(count, now)) count.wait(now);
  }
}

void Team::wait_for_shares() {
  for (;;) {
    const std::uint32_t left = num_unfinished_.load();
    if (left == 0) return;
    if (!stay_awake(num_unfinished_, left)) num_unfinished_.wait(left);
  }
}

bool Team::has_shares() const {
  const Ticket ticket = Ticket::of(ticket_.load());
  return ticket.next < ticket.num_shares;
}

void Team::work() {
  for (;;) {
    const std::uint32_t seen = num_calls_.load();
    while (help()) {
    }
    if (is_over_) return;
    if (stay_awake(num_calls_, seen)) continue;
    ++num_asleep_;
    if (num_calls_.load() == seen) num_calls_.wait(seen);
    --num_asleep_;
  }
}

/// Returns true as soon as the word differs from `seen`; false after a timeout, or if there is no core to wait on.
bool Team::stay_awake(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  static const int cores = num_cores();
  if (num_team_threads.load(std::memory_order_relaxed) > cores) return word.load() != seen;
  constexpr auto patience = std::chrono::microseconds(50);
  const auto end = std::chrono::steady_clock::now() + patience;
  do {  // reading the clock is a pause of some 20 ns
    if (word.load(std::memory_order_acquire) != seen) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace echelon
