#include "ops/operation.h"

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

}  // namespace echelon
