#include "ops/delayed/delayed_ops.h"

#include "ops/description.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace echelon {
namespace {

// All bits set is a NaN in every float format, and -1 in int32.
void poison(const Tensor& x) {
  if (x.num_bytes() > 0) std::memset(x.data, 0xff, static_cast<std::size_t>(x.num_bytes()));
}

}  // namespace

DelayedOps::DelayedOps(std::unique_ptr<Ops> inner, unsigned seed)
    : inner_(std::move(inner)), random_(seed), worker_([this] { work(); }) {}

DelayedOps::~DelayedOps() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

bool DelayedOps::may_start() const { return !queue_.empty() && (is_publishing_ || queue_.size() > num_held_); }

bool DelayedOps::is_touched(const Tensor& tensor) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Enqueued& each) {
    return std::any_of(each.touches.begin(), each.touches.end(),
                       [&](const Tensor& other) { return overlap(tensor, other); });
  });
}

void DelayedOps::perform(const Operation& operation) {
  check(operation);
  Operands operands = operands_of(operation);
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  std::vector<Tensor> poison_first;
  for (const Tensor& output : operands.overwrites) {
    const bool is_read = std::any_of(operands.reads.begin(), operands.reads.end(),
                                     [&](const Tensor& input) { return overlap(output, input); });
    if (is_read) continue;
    if (is_touched(output)) {
      poison_first.push_back(output);
    } else {
      poison(output);
    }
  }
  std::vector<Tensor> touches = std::move(operands.reads);
  touches.insert(touches.end(), operands.overwrites.begin(), operands.overwrites.end());
  queue_.push_back(
      {.operation = stored(operation), .touches = std::move(touches), .poison_first = std::move(poison_first)});
  num_held_ = 1 + random_() % 8;
  changed_.notify_all();
}

void DelayedOps::upload(Tensor out, const void* host) {
  publish();
  inner_->upload(out, host);
}

void DelayedOps::download(void* host, Tensor x) {
  publish();
  inner_->download(host, x);
}

void DelayedOps::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || may_start(); });
    if (is_ending_) return;
    const Enqueued& next = queue_.front();  // stays in place while newer ones are pushed after it
    lock.unlock();
    std::exception_ptr failure;
    try {
      for (const Tensor& output : next.poison_first) poison(output);
      echelon::perform(*inner_, next.operation);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    queue_.pop_front();
    changed_.notify_all();
  }
}

void DelayedOps::publish() {
  std::unique_lock lock(mutex_);
  is_publishing_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return queue_.empty(); });
  is_publishing_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  inner_->publish();
}

}  // namespace echelon
