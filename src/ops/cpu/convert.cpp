#include "ops/cpu/targets.h"
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/convert.cpp"
#include "hwy/foreach_target.h"
// clang-format on
#include "ops/cpu/convert.h"
#include "ops/cpu/lanes-inl.h"
#include "ops/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace echelon {
namespace HWY_NAMESPACE {

void widen_rows(const WidenArgs& args) {
  divide({args.rows, args.columns, 1, args.num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const bfloat16* from = args.narrow + row * args.stride;
      float* into = args.wide + row * args.columns;
      for_lanes<float>(0, args.columns, [=](auto lanes, std::int64_t i) HWY_ATTR { lanes.store(lanes.load(from + i), into + i); });
    }
  });
}

void narrow_rows(const NarrowArgs& args) {
  divide({args.rows, args.columns, 1, args.num_threads}, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t row = first; row < last; ++row) {
      const float* from = args.wide + row * args.columns;
      bfloat16* into = args.narrow + row * args.stride;
      for_lanes<float>(0, args.columns, [&](auto lanes, std::int64_t i) HWY_ATTR {
        auto value = lanes.load(from + i);
        if (args.accumulates) value = hn::Add(value, lanes.load(into + i));
        lanes.store(value, into + i);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace echelon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace echelon {

HWY_EXPORT(widen_rows);
HWY_EXPORT(narrow_rows);

void widen(const WidenArgs& args) { HWY_DYNAMIC_DISPATCH(widen_rows)(args); }
void narrow(const NarrowArgs& args) { HWY_DYNAMIC_DISPATCH(narrow_rows)(args); }

}  // namespace echelon
#endif
