// The arithmetic that layers are made of: some forty operations on tensors, the same for every backend. Their contracts
// are in ops/operations/, next to their arguments; ops/operation.h lists them.
//
// Asynchronous in form: an operation is enqueued on the backend's compute lane and runs after those enqueued before it.
// A caller that hands a tensor to a Comm or reads it on the host calls publish() first. Backends: ops/reference (the
// oracle), ops/cpu, src/cuda, ops/trace, ops/delayed.
//
// Legend: N tokens of this rank (batch x sequence, flattened), B sequences, T positions, D model width, H heads, K kv
// heads, C head width, V vocabulary columns of this rank. Activations x, y and weights w share one dtype (float32,
// float64, or bfloat16 or float16, which are storage formats). Statistics (mean, rstd, lse, ...) have its
// accumulate_dtype. Gradients of weights have a separate dtype (accumulate_dtype unless stated otherwise). Sums are
// computed in accumulate_dtype. A gradient of an activation is overwritten, a gradient of a weight is added to.
#pragma once

#include "ops/operation.h"

namespace echelon {

class Ops {
 public:
  virtual ~Ops() = default;

  /// Enqueues an operation, whose arguments need not outlive the call.
  virtual void perform(const Operation& operation) = 0;

  // The same by name: ops.matmul({.a = x, .b = w, .c = y}).
#define ECHELON_CALL(name, Args) \
  void name(const Args& args) { perform(args); }
  ECHELON_OPERATIONS(ECHELON_CALL)
#undef ECHELON_CALL

  // Short computes of those with few arguments.
  void add_bias(Tensor y_ND, Tensor bias_D) { add_bias({y_ND, bias_D}); }
  void bias_backward(Tensor dy_ND, Tensor dbias_D) { bias_backward({dy_ND, dbias_D}); }
  void add(Tensor out, Tensor a, Tensor b) { add({out, a, b}); }
  void copy(Tensor out, Tensor x) { copy({out, x}); }
  void fill(Tensor out, double value) { fill({out, value}); }
  void scale(Tensor x, double factor) { scale({x, factor}); }
  void sum_of_squares(Tensor x, Tensor sum) { sum_of_squares({x, sum}); }

  // Host memory of the same dtype and size; done when it returns.
  virtual void upload(Tensor out, const void* host) = 0;
  /// The same for values that belong to the rows of `like`, of whose layout they are.
  virtual void upload_like(Tensor out, const void* host, Tensor /*like*/) { upload(out, host); }
  virtual void download(void* host, Tensor x) = 0;  // likewise, after everything enqueued before

  /// False for backends that compute no values: uploads need no valid data.
  [[nodiscard]] virtual bool computes_values() const { return true; }

  /// Where the host may read and write x in place, after publish(); null where the backend's memory is not the host's.
  [[nodiscard]] virtual std::byte* host_address(const Tensor& /*x*/) const { return nullptr; }

  /// Makes enqueued results visible to communication that starts next, and to the host.
  virtual void publish() = 0;

  /// Blocks the host until what was enqueued has run: for timing operations. Backends that run them in the call
  /// have nothing to do.
  virtual void finish() {}
};

}  // namespace echelon
