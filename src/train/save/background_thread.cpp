#include "train/save/background_thread.h"

#include <sys/resource.h>
#include <chrono>
#include <csignal>

namespace echelon {

BackgroundThread::BackgroundThread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the others
  thread_ = std::thread([shared = shared_] { run(shared); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BackgroundThread::~BackgroundThread() {
  std::unique_lock lock(shared_->mutex);
  shared_->is_ending = true;
  shared_->changed.notify_all();
  const bool has_ended =
      shared_->changed.wait_for(lock, std::chrono::minutes(1), [this] { return shared_->has_ended; });
  lock.unlock();
  has_ended ? thread_.join() : thread_.detach();
}

void BackgroundThread::add(std::function<void()> task) {
  const std::lock_guard lock(shared_->mutex);
  shared_->tasks.push_back(std::move(task));
  shared_->changed.notify_all();
}

void BackgroundThread::run(const std::shared_ptr<Shared>& shared) {
  constexpr int niceness = 10;
  setpriority(PRIO_PROCESS, 0, niceness);  // on Linux of the calling thread alone
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->is_ending || !shared->tasks.empty(); });
    if (shared->tasks.empty()) break;
    std::function<void()> task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
  shared->has_ended = true;
  shared->changed.notify_all();
}

}  // namespace echelon
