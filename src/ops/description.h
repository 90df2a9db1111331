// The functions in the file of an operation in ops/operations/, next to its arguments. Each operation has all of them
// for its Args; without one the program does not link.
//
//     check         throws Failure unless the sizes belong together and the dtypes are those that the contract allows;
//                   names the operation, the tensor and its sizes; looks at no data
//     cost          flops and bytes; there are no other formulas for them
//     operands_of   which tensors it reads and overwrites
//     infer         from the layout types of what it reads to those of what it writes (types/inference.h); throws
//     Failure
//                   where ranks would compute something else than one rank does
//     sample        arguments of the size that is asked for
//     usual_sizes   which sizes `echelon bench` times, whatever the arguments
#pragma once

#include "ops/cost.h"
#include "ops/operands.h"
#include "ops/operation.h"

namespace echelon {

class Inference;       // types/inference.h
class SampleOperands;  // ops/sample.h
struct SampleSizes;

#define ECHELON_DESCRIBE(name, Args)                    \
  void check(const Args& args);                         \
  [[nodiscard]] OpCost cost(const Args& args);          \
  [[nodiscard]] Operands operands_of(const Args& args); \
  void infer(Inference& call, const Args& args);        \
  void sample(SampleOperands& s, Args& args);           \
  [[nodiscard]] SampleSizes usual_sizes(const Args& args);
ECHELON_OPERATIONS(ECHELON_DESCRIBE)
#undef ECHELON_DESCRIBE

/// Whether it leaves the largest magnitudes of what it overwrites (tensor/tensor.h): its Args say so.
[[nodiscard]] bool leaves_amax(OpKind kind);
/// Throws Failure if it overwrites a tensor whose largest magnitude it does not leave.
void check_amax(const Operation& operation);

inline void check(const Operation& operation) {
  operation.visit([](const auto& args) { check(args); });
  check_amax(operation);
}
[[nodiscard]] inline OpCost cost(const Operation& operation) {
  return operation.visit([](const auto& args) { return cost(args); });
}
[[nodiscard]] inline Operands operands_of(const Operation& operation) {
  Operands operands = operation.visit([](const auto& args) { return operands_of(args); });
  for (std::size_t i = operands.overwrites.size(); i-- > 0;)
    if (operands.overwrites[i].has_amax) operands.overwrites.push_back(operands.overwrites[i].place_of_amax());
  return operands;
}

}  // namespace echelon
