#include "ops/timed/timed_ops.h"

#include "base/clock.h"
#include "ops/description.h"

namespace echelon {

void TimedOps::perform(const Operation& operation) {
  time({.kind = operation.kind(), .dtype = operands_of(operation).dtype, .cost = cost(operation)},
       [&] { inner_.perform(operation); });
}

void TimedOps::upload(Tensor out, const void* host) {
  time({.kind = OpKind::upload, .dtype = out.dtype, .cost = cost_of_transfer(out)}, [&] { inner_.upload(out, host); });
}

void TimedOps::download(void* host, Tensor x) {
  time({.kind = OpKind::download, .dtype = x.dtype, .cost = cost_of_transfer(x)}, [&] { inner_.download(host, x); });
}

template <class F>
void TimedOps::time(TimedOperation operation, F&& f) {
  operation.start = now_seconds();
  f();
  inner_.finish();
  operation.end = now_seconds();
  listener_(operation);
}

}  // namespace echelon
