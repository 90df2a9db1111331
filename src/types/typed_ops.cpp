#include "types/typed_ops.h"

#include "types/rules.h"

#include <cstring>

namespace echelon {

void TypedOps::perform(const Operation& operation) {
  check(operation);
  const Operands operands = operands_of(operation);
  std::vector<Tensor> touched = operands.reads;
  touched.insert(touched.end(), operands.overwrites.begin(), operands.overwrites.end());
  Inference call(memory_, axes_, name_of(kind_of(operation)), touched);
  std::visit([&](const auto& args) { infer(call, args); }, operation);
  if (const auto* download = std::get_if<DownloadArgs>(&operation))
    std::memset(download->host, 0, static_cast<std::size_t>(download->x.num_bytes()));
}

}  // namespace echelon
