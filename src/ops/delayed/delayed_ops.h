// A backend for tests that is as asynchronous as a GPU: operations run late, on a separate thread, and what they will
// overwrite is poisoned until then. Code that reads a result, or passes it to a Comm, without publish() gets NaN.
#pragma once

#include "ops/stored_operation.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace echelon {

/// Runs the operations of `inner` in order. The newest ones, up to eight depending on the seed, never start before
/// publish(), download() or upload(), which wait for all. Errors of an operation are thrown by the next call. What was
/// not published when it is destroyed is never computed.
class DelayedOps : public Ops {
 public:
  DelayedOps(std::unique_ptr<Ops> inner, unsigned seed);
  ~DelayedOps() override;

  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  void publish() override;

 private:
  struct Enqueued {
    StoredOperation operation;
    std::vector<Tensor> touches;       // all its tensors
    std::vector<Tensor> poison_first;  // outputs that an older operation still needed when this one was enqueued
  };
  void work();
  [[nodiscard]] bool may_start() const;
  [[nodiscard]] bool is_touched(const Tensor& tensor) const;

  std::unique_ptr<Ops> inner_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Enqueued> queue_;  // the front one may be running
  std::size_t num_held_ = 1;    // of the newest, that wait for publish()
  bool is_publishing_ = false;
  bool is_ending_ = false;
  std::exception_ptr failure_;
  std::thread worker_;  // last: it uses the others
};

}  // namespace echelon
