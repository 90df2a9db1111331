// One thread of a process that works while its ranks compute.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace echelon {

/// At low priority (nice 10), on the CPUs of the thread that makes it.
class BackgroundThread {
 public:
  BackgroundThread();
  /// Waits for all tasks, but no longer than a minute: a task that a disk holds is left to itself.
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  /// Tasks run one after the other. They own all that they need, and do not throw.
  void add(std::function<void()> task);

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool is_ending = false, has_ended = false;
  };
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();  // the thread's too
  std::thread thread_;
};

}  // namespace echelon
