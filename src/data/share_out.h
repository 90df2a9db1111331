// Items that several threads work on, each with what it alone may use.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace echelon {

/// Calls work(worker, i) for each i below count, on one thread for each worker; the caller's is the first. Items are
/// claimed in their order. If some throw, the exception of the lowest one is rethrown.
template <class Worker, class Work>
void share_out(std::vector<Worker>& workers, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  std::size_t failed = count;
  const auto take_part = [&](Worker& worker) {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(worker, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) failure = std::current_exception();
        failed = std::min(failed, i);
        next = count;  // those below i are claimed already
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < std::min(workers.size(), count); ++i)
    threads.emplace_back(take_part, std::ref(workers[i]));
  take_part(workers.front());
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace echelon
