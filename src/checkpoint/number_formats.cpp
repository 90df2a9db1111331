#include "checkpoint/number_formats.h"

#include "base/error.h"

#include <cstring>

namespace echelon {
namespace {

template <class From, class To>
void convert_to(const From* in, To* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = to<To>(in[i]);
}

template <class From>
void convert_from(const From* in, DType to, void* out, std::int64_t count) {
  switch (to) {
    case DType::float32: return convert_to(in, static_cast<float*>(out), count);
    case DType::float64: return convert_to(in, static_cast<double*>(out), count);
    case DType::bfloat16: return convert_to(in, static_cast<bfloat16*>(out), count);
    case DType::float16: return convert_to(in, static_cast<float16*>(out), count);
    case DType::int32:
    case DType::int16: break;
  }
  throw Error("weights cannot be converted to integers");
}

}  // namespace

void convert_numbers(DType from, const void* in, DType to, void* out, std::int64_t count) {
  if (from == to) {
    std::memcpy(out, in, static_cast<std::size_t>(count * size_of(from)));
    return;
  }
  switch (from) {
    case DType::float32: return convert_from(static_cast<const float*>(in), to, out, count);
    case DType::float64: return convert_from(static_cast<const double*>(in), to, out, count);
    case DType::bfloat16: return convert_from(static_cast<const bfloat16*>(in), to, out, count);
    case DType::float16: return convert_from(static_cast<const float16*>(in), to, out, count);
    case DType::int32:
    case DType::int16: break;
  }
  throw Error("weights cannot be converted from integers");
}

}  // namespace echelon
