// An operation with a copy of its arguments, for whatever runs it later or changes it: the delayed backend, tests.
#pragma once

#include "ops/ops.h"

#include <variant>

namespace echelon {

template <class None, class... Args>
struct VariantOf {
  using Type = std::variant<Args...>;
};
#define ECHELON_ARGS(name, Args) , Args
/// In the order of OpKind. Its tensors are still views of memory that it does not own.
using StoredOperation = VariantOf<void ECHELON_OPERATIONS(ECHELON_ARGS)>::Type;
#undef ECHELON_ARGS

[[nodiscard]] inline StoredOperation stored(const Operation& operation) {
  return operation.visit([](const auto& args) { return StoredOperation(args); });
}
[[nodiscard]] inline OpKind kind_of(const StoredOperation& operation) { return static_cast<OpKind>(operation.index()); }
inline void perform(Ops& ops, const StoredOperation& operation) {
  std::visit([&](const auto& args) { ops.perform(args); }, operation);
}

}  // namespace echelon
