#include "ops/sample.h"

#include "ops/description.h"

#include <algorithm>

namespace echelon {
namespace {

Sample sample_of_transfer(const OperationSize& size, SampleOperands operands) {
  const Tensor host = operands.x({size.m}), x = operands.x({size.m});
  if (size.kind == OpKind::upload)
    return {.cost = cost_of_transfer(x), .run = [=](Ops& ops) { ops.upload(x, host.data); }};
  return {.cost = cost_of_transfer(x), .run = [=](Ops& ops) { ops.download(host.data, x); }};
}

}  // namespace

Sample sample_operation(const OperationSize& size, Stack& memory) {
  SampleOperands operands(size, memory);
  if (is_transfer(size.kind)) return sample_of_transfer(size, operands);
  return visit_kind(size.kind, [&]<class Args>(std::type_identity<Args> /*type*/) -> Sample {
    Args args;
    sample(operands, args);
    return {.cost = cost(args), .run = [args](Ops& ops) { ops.perform(args); }};
  });
}

SampleSizes usual_sizes(OpKind kind) {
  if (is_transfer(kind)) return usual_sizes_of_elements();
  return visit_kind(kind, []<class Args>(std::type_identity<Args> /*type*/) { return usual_sizes(Args()); });
}

SampleSizes usual_sizes_of_rows() { return {.m = {32, 256, 2048}, .n = {64, 256, 1024}}; }

SampleSizes usual_sizes_of_elements() { return {.m = {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21}}; }

Tensor SampleOperands::filled(DType dtype, Sizes sizes) {
  const Tensor t = memory_.take(dtype, sizes);
  if (t.data == nullptr) return t;
  const auto set = [&](auto value) { std::fill_n(t.as<decltype(value)>(), t.num_elements(), value); };
  switch (dtype) {
    case DType::float32: set(0.125F); break;
    case DType::float64: set(0.125); break;
    case DType::bfloat16: set(bfloat16(0.125F)); break;
    case DType::int32: set(std::int32_t{0}); break;
    case DType::int16: set(std::int16_t{0}); break;
    case DType::float16: set(float16(0.125F)); break;
  }
  return t;
}

Tensor SampleOperands::integers(Sizes sizes, const std::function<std::int64_t(std::int64_t)>& f) {
  const Tensor t = filled(DType::int32, sizes);
  for (std::int64_t i = 0; t.data != nullptr && i < t.num_elements(); ++i)
    t.as<std::int32_t>()[i] = static_cast<std::int32_t>(f(i));
  return t;
}

}  // namespace echelon
