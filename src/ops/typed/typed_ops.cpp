#include "ops/typed/typed_ops.h"

#include "ops/description.h"
#include "types/inference.h"

#include <cstring>

namespace echelon {

void TypedOps::perform(const Operation& operation) {
  check(operation);
  const Operands operands = operands_of(operation);
  std::vector<Tensor> touched = operands.reads;
  touched.insert(touched.end(), operands.overwrites.begin(), operands.overwrites.end());
  Inference call(memory_, axes_, name_of(operation.kind()), touched);
  operation.visit([&](const auto& args) { infer(call, args); });
}

// What the host writes has the type of the names at its places; without a name it is a constant.
void TypedOps::upload(Tensor out, const void* /*host*/) {
  Inference call(memory_, axes_, name_of(OpKind::upload), std::span(&out, 1));
  const auto named_parts = memory_.named_in(out.flat());
  for (const auto& [part, named] : named_parts) call.write(part, named->type);
  if (!named_parts.empty()) return;
  const NamedMemory* named = memory_.named_at(out);
  call.write(out, named != nullptr ? named->type : LayoutType());
}

void TypedOps::upload_like(Tensor out, const void* /*host*/, Tensor like) {
  Inference call(memory_, axes_, name_of(OpKind::upload), std::span(&out, 1));
  LayoutType type = call.read("what its values belong to", like).piece.type;
  for (const TypeAxis axis : axes_.all()) {
    if (type[axis] == addends_at_node_layout) type[axis] = at_node_layout;
    if (type[axis] == dispatched_addends_layout) type[axis] = dispatched_layout;
  }
  call.write(out, type);
}

// Values that the host reads decide what it does next.
void TypedOps::download(void* host, Tensor x) {
  const Inference call(memory_, axes_, name_of(OpKind::download), std::span(&x, 1));
  call.require_the_same(call.read("x", x));
  std::memset(host, 0, static_cast<std::size_t>(x.num_bytes()));
}

}  // namespace echelon
