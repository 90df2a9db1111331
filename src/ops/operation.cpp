#include "ops/operation.h"

#include "base/error.h"
#include "ops/description.h"

namespace echelon {

std::string_view name_of(OpKind kind) {
  switch (kind) {
#define ECHELON_NAME(name, Args) \
  case OpKind::name: return #name;
    ECHELON_OPERATIONS(ECHELON_NAME)
#undef ECHELON_NAME
    case OpKind::upload: return "upload";
    case OpKind::download: return "download";
  }
  return "?";
}

bool multiplies_matrices(OpKind kind) {
  if (is_transfer(kind)) return false;
  return visit_kind(kind, []<class Args>(std::type_identity<Args>) {
    return requires { Args::multiplies_matrices; };
  });
}

bool leaves_amax(OpKind kind) {
  return visit_kind(kind, []<class Args>(std::type_identity<Args>) {
    return requires { Args::leaves_amax; };
  });
}

void check_amax(const Operation& operation) {
  if (leaves_amax(operation.kind())) return;
  const Operands operands = operation.visit([](const auto& args) { return operands_of(args); });
  for (const Tensor& tensor : operands.overwrites)
    if (tensor.has_amax)
      throw Failure(fmt::format("{} overwrites {} {}, but leaves no largest magnitude", name_of(operation.kind()),
                                name_of(tensor.dtype), to_string(tensor.sizes)));
}

}  // namespace echelon
