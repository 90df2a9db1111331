// A backend around another one that measures when each operation ran and what it cost. It waits for each operation
// before it starts the next.
#pragma once

#include "ops/cost.h"
#include "ops/ops.h"

#include <functional>
#include <utility>

namespace echelon {

struct TimedOperation {
  OpKind kind = OpKind::matmul;
  DType dtype = DType::float32;  // of the activations
  OpCost cost = {};
  double start = 0, end = 0;  // as of now_seconds()
};

class TimedOps final : public Ops {
 public:
  using Listener = std::function<void(const TimedOperation& operation)>;

  /// `inner` must outlive it. The listener is called after each operation, on the thread that called the operation.
  TimedOps(Ops& inner, Listener listener) : inner_(inner), listener_(std::move(listener)) {}

  void perform(const Operation& operation) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return inner_.host_address(x); }
  void publish() override { inner_.publish(); }
  void finish() override { inner_.finish(); }

 private:
  /// Calls f, which does what `operation` says, and tells the listener when.
  template <class F>
  void time(TimedOperation operation, F&& f);

  Ops& inner_;
  Listener listener_;
};

}  // namespace echelon
