#include "ops/reference/reference_ops.h"

#include "ops/description.h"

#include <cstring>

namespace echelon {

void ReferenceOps::perform(const Operation& operation) {
  operation.visit([this](const auto& args) {
    check(args);
    compute(args);
  });
}

void ReferenceOps::upload(Tensor out, const void* host) {
  if (out.num_bytes() > 0) std::memcpy(out.data, host, static_cast<std::size_t>(out.num_bytes()));
}

void ReferenceOps::download(void* host, Tensor x) {
  if (x.num_bytes() > 0) std::memcpy(host, x.data, static_cast<std::size_t>(x.num_bytes()));
}

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace echelon
