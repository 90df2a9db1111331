#include "ops/cpu/instruction_set.h"

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/gemm_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hwy/targets.h"

namespace echelon {
namespace {

using testing::HasSubstr;

TEST(InstructionSet, HasANameAndAnUnknownOneNamesTheNearest) {
  for (const InstructionSet set : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    EXPECT_EQ(parse_instruction_set(name_of(set)), set);
  try {
    static_cast<void>(parse_instruction_set("avx-2"));
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "ECHELON_INSTRUCTION_SET = 'avx-2' is unknown; did you mean 'avx2'?");
  }
}

// Says something where the suite runs with a cap (CMakeLists.txt).
TEST(InstructionSet, ACapHoldsForHighwayOwnProductsAndOpenBlas) {
  const CpuOps ops({});
  const std::string description = describe_products(choose_products({}));
  const auto has = [](std::int64_t targets) { return (highway_targets() & targets) != 0; };
  const auto cap = instruction_set_cap();
  if (!cap.has_value()) {
    EXPECT_THAT(description, testing::Not(HasSubstr("ECHELON_INSTRUCTION_SET")));
    return;
  }
  EXPECT_THAT(description, HasSubstr(std::string(name_of(*cap))));
  if (*cap == InstructionSet::avx512) return;
  EXPECT_FALSE(has(HWY_AVX3));
  EXPECT_EQ(bfloat16_kernels(), nullptr);
  EXPECT_EQ(amx_kernels(), nullptr);
  EXPECT_THAT(description, HasSubstr(*cap == InstructionSet::avx2 ? "Haswell" : "Prescott"));
  EXPECT_EQ(has(HWY_AVX2), *cap == InstructionSet::avx2);
  constexpr int columns_of_avx2 = 16, columns_of_scalar = 4;
  EXPECT_EQ(float32_kernels().tile_columns, *cap == InstructionSet::avx2 ? columns_of_avx2 : columns_of_scalar)
      << "kernels are chosen again, without the cap";
}

}  // namespace
}  // namespace echelon
