#include "ops/timed/timed_ops.h"

#include "base/clock.h"

namespace echelon {

void TimedOps::perform(const Operation& operation) {
  TimedOperation timed{.kind = kind_of(operation), .start = now_seconds()};
  run(inner_, operation);
  inner_.finish();
  timed.end = now_seconds();
  timed.dtype = operands_of(operation).dtype;
  timed.cost = cost(operation);
  listener_(timed);
}

}  // namespace echelon
