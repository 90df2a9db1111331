#include "comm/thread/thread_world.h"

#include "base/error.h"
#include "comm/thread/returns.h"
#include "comm/thread/thread_mesh.h"

#include <pthread.h>
#include <algorithm>
#include <optional>

namespace echelon {
namespace {

struct RankFailure {
  int rank = 0;
  std::string sentence;
  ExitStatus status = ExitStatus::failure;
};

// The first failure with a cause of its own. Until there is one, a failure that reports an abort is kept.
class FirstFailure {
 public:
  void record(const RankFailure& failure, bool is_echo) {
    const std::lock_guard lock(mutex_);
    auto& first = is_echo ? echo_ : cause_;
    if (!first) first = failure;
  }
  [[nodiscard]] std::optional<Error> error() const {
    const std::lock_guard lock(mutex_);
    const auto& first = cause_ ? cause_ : echo_;
    if (!first) return std::nullopt;
    return Error(fmt::format("rank {}: {}", first->rank, first->sentence), first->status);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<RankFailure> cause_, echo_;
};

struct Launch {
  ThreadWorld& world;
  const std::function<void(Mesh&)>& body;
  FirstFailure& failure;
  Returns& returns;
};

struct RankThread {
  Launch* launch = nullptr;
  int rank = 0;
  pthread_t thread{};
};

void fail(const Launch& launch, const RankFailure& failure, bool is_echo) {
  launch.failure.record(failure, is_echo);
  launch.world.abort(fmt::format("rank {} failed: {}", failure.rank, failure.sentence));
}

void run_rank(const Launch& launch, int rank) {
  launch.world.permits().acquire(rank);
  const Lending::Membership membership(launch.world.lending(), rank);
  try {
    ThreadMesh mesh(launch.world, rank);
    launch.body(mesh);
  } catch (const PeerAborted& echo) {
    fail(launch, {rank, echo.what(), ExitStatus::failure}, true);
  } catch (const Error& error) {
    fail(launch, {rank, error.what(), error.status()}, false);
  } catch (const std::exception& error) {
    fail(launch, {rank, error.what(), ExitStatus::failure}, false);
  } catch (...) {
    fail(launch, {rank, "an exception of unknown type", ExitStatus::failure}, false);
  }
  launch.world.permits().release(rank);
}

void* thread_main(void* argument) {
  const auto& self = *static_cast<RankThread*>(argument);
  run_rank(*self.launch, self.rank);
  self.launch->returns.add(self.rank);
  return nullptr;
}

// GPU libraries compile kernels on the calling thread and need the default stack size; thousands of ranks use a smaller
// one.
constexpr std::size_t most_large_stacks = 128, small_stack_bytes = 1U << 20U;

// How many threads could be started.
std::size_t start(std::vector<RankThread>& threads) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (threads.size() > most_large_stacks) pthread_attr_setstacksize(&attributes, small_stack_bytes);
  std::size_t num_started = 0;
  while (num_started < threads.size() &&
         pthread_create(&threads[num_started].thread, &attributes, thread_main, &threads[num_started]) == 0)
    ++num_started;
  pthread_attr_destroy(&attributes);
  return num_started;
}

}  // namespace

void require_threads_possible(int num_ranks) {
  require(num_ranks <= max_thread_ranks,
          "the mesh has {} ranks (the degrees of [parallelism] multiplied), but threads of one process are at most {} "
          "(use {}, or processes of an MPI job)",
          num_ranks, max_thread_ranks, max_thread_ranks);
}

void run_thread_ranks(const MeshShape& shape, const ThreadOptions& options, const std::function<void(Mesh&)>& body) {
  require_threads_possible(shape.num_ranks());
  ThreadWorld world(shape, options);
  FirstFailure failure;
  Returns returns(world, shape.num_ranks());
  Launch launch = {.world = world, .body = body, .failure = failure, .returns = returns};
  std::vector<RankThread> threads(static_cast<std::size_t>(shape.num_ranks()));
  for (std::size_t rank = 0; rank < threads.size(); ++rank)
    threads[rank] = {.launch = &launch, .rank = static_cast<int>(rank)};

  const std::size_t num_started = start(threads);
  if (num_started < threads.size()) {
    const std::string reason =
        fmt::format("the system started only {} threads of {}; run fewer ranks or raise the limit (ulimit -u)",
                    num_started, threads.size());
    fail(launch, {static_cast<int>(num_started), reason, ExitStatus::failure}, false);
  }
  const std::vector<int> missing = returns.await(static_cast<int>(num_started));
  for (std::size_t rank = 0; rank < num_started; ++rank)
    if (!std::ranges::binary_search(missing, static_cast<int>(rank))) pthread_join(threads[rank].thread, nullptr);
  if (!missing.empty()) end_without(missing, failure.error().value_or(Failure(world.abort_reason())));
  if (const std::optional<Error> error = failure.error()) throw Error(*error);
  if (world.is_aborted()) throw Failure(world.abort_reason());  // though every rank returned: something was dropped
}

}  // namespace echelon
