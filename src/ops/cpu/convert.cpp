#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/convert.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/convert.h"
#include "ops/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

template <class T>
void narrow_into(const NarrowArgs& args) {
  const float* from = args.wide;
  T* into = reinterpret_cast<T*>(args.narrow);
  for_lanes<float>(0, args.count, [&](auto lanes, std::int64_t i) HWY_ATTR {
    auto value = lanes.load(from + i);
    if (args.accumulates) value = hn::Add(value, lanes.load(into + i));
    lanes.store(value, into + i);
  });
}

void Narrow(const NarrowArgs& args) {
  args.dtype == DType::float16 ? narrow_into<float16>(args) : narrow_into<bfloat16>(args);
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(Narrow);

void narrow(const NarrowArgs& args) { HWY_DYNAMIC_DISPATCH(Narrow)(args); }

}  // namespace echelon
#endif
