// Which kernels multiply: kinds of processors, the shipped table, and what has precedence over it.
#include "ops/cpu/gemm_choice.h"

#include "base/error.h"
#include "environment.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/instruction_set.h"
#include "ops/cpu/product_table.h"
#include "ops/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using enum ProcessorId::Vendor;

// Families and models as the vendors' manuals and Linux's intel-family.h list them.
TEST(ProcessorKind, IsOfTheModelAndOfWhatItShows) {
  const std::pair<ProcessorId, ProcessorKind> cases[] = {
      {{amd, 0x17, 0x01, true}, ProcessorKind::generic_avx2},  // Naples: datapaths of 128 bits
      {{amd, 0x17, 0x31, true}, ProcessorKind::zen2},          // Rome
      {{amd, 0x19, 0x01, true}, ProcessorKind::zen3},          // Milan
      {{amd, 0x19, 0x11, true, true, true}, ProcessorKind::zen4},
      {{amd, 0x19, 0x11, true}, ProcessorKind::zen3},  // Genoa without its AVX-512
      {{amd, 0x1a, 0x02, true, true, true}, ProcessorKind::zen5},
      {{amd, 0x15, 0x02}, ProcessorKind::generic},
      {{intel, 6, 0x3f, true}, ProcessorKind::haswell},
      {{intel, 6, 0x55, true, true}, ProcessorKind::skylake_x},
      {{intel, 6, 0x55, true, true, true}, ProcessorKind::cooper_lake},
      {{intel, 6, 0x6a, true, true}, ProcessorKind::ice_lake_server},
      {{intel, 6, 0x8f, true, true, true, true}, ProcessorKind::sapphire_rapids},
      {{intel, 6, 0xad, true, true, true}, ProcessorKind::sapphire_rapids},        // Granite Rapids without its AMX
      {{intel, 6, 0xa7, true, true, true, true}, ProcessorKind::sapphire_rapids},  // by another model's name
      {{intel, 6, 0xa7, true, true}, ProcessorKind::generic_avx512},
      {{arm, 0, 0xd0c}, ProcessorKind::neoverse_n1},
      {{arm, 0, 0xd40}, ProcessorKind::neoverse_v1},
      {{arm, 0, 0xd49}, ProcessorKind::neoverse_n2},
      {{arm, 0, 0xd4f}, ProcessorKind::neoverse_v2},
      {{arm, 0, 0xd07}, ProcessorKind::generic},
  };
  for (const auto& [id, kind] : cases)
    EXPECT_EQ(kind_of(id), kind) << name_of(kind_of(id)) << " is not " << name_of(kind);
}

TEST(ProcessorKind, HasAName) {
  for (int i = 0; i < num_processor_kinds; ++i) {
    const auto kind = static_cast<ProcessorKind>(i);
    EXPECT_EQ(processor_kind_of(name_of(kind)), kind);
  }
  EXPECT_EQ(processor_kind_of("zen"), std::nullopt);
}

TEST(ProcessorKind, OfACapIsTheGenericOne) {
  const auto cap = instruction_set_cap();
  if (!cap || *cap == largest_of_processor()) return;
  EXPECT_EQ(processor_kind(), *cap == InstructionSet::avx2 ? ProcessorKind::generic_avx2 : ProcessorKind::generic);
}

// What was not measured on a kind is as on the one where it was, except for what its processors lack.
TEST(ProductTable, ARowThatWasNotMeasuredFollowsOneThatWas) {
  int num_measured = 0;
  for (int i = 0; i < num_processor_kinds; ++i) {
    const ProductRow& row = product_row(static_cast<ProcessorKind>(i));
    SCOPED_TRACE(name_of(row.kind));
    num_measured += row.measured == row.kind ? 1 : 0;
    EXPECT_EQ(row.measured.has_value(), row.bfloat16_measured.has_value());
    if (!row.measured || !row.bfloat16_measured) continue;
    const ProductRow &like = product_row(*row.measured), &like_in_bfloat16 = product_row(*row.bfloat16_measured);
    EXPECT_EQ(like.measured, like.kind) << "follows a kind that was not measured";
    EXPECT_EQ(like_in_bfloat16.bfloat16_measured, like_in_bfloat16.kind);
    EXPECT_EQ(row.float32, like.float32);
    EXPECT_EQ(row.core_type, like.core_type);
    EXPECT_EQ(row.bfloat16, like_in_bfloat16.bfloat16);
  }
  EXPECT_GE(num_measured, 3);
  EXPECT_EQ(shipped_products(ProcessorKind::zen4).bfloat16, ProductKernels::native);
  EXPECT_EQ(shipped_source(ProcessorKind::zen4), "shipped for zen4");
  EXPECT_EQ(shipped_source(ProcessorKind::zen2), "shipped for zen2, measured on zen3");
  EXPECT_EQ(shipped_source(ProcessorKind::zen5), "shipped for zen5, measured on sapphire_rapids and zen4");
  EXPECT_EQ(shipped_source(ProcessorKind::neoverse_n1), "shipped for neoverse_n1, not measured");
}

TEST(ProductChoice, IsParsedAsItIsNamed) {
  const ProductChoice choice = {
      .float32 = ProductKernels::openblas, .bfloat16 = ProductKernels::native, .core_type = "Haswell"};
  const ProductNames names = {
      {"bfloat16", "native"}, {"float16", "widened"}, {"float32", "openblas/Haswell"}, {"float64", "openblas/Haswell"}};
  EXPECT_EQ(names_of(choice), names);
  EXPECT_EQ(parse_products(names, ""), choice);
  EXPECT_EQ(to_text(choice), "float32 openblas/Haswell, float64 openblas/Haswell, bfloat16 native, float16 widened");
}

TEST(ProductChoice, MistakesAreNamed) {
  const auto with = [](const std::string& key, const std::string& value) {
    ProductNames names = names_of({.float32 = ProductKernels::openblas, .core_type = "Haswell"});
    names[key] = value;
    return [names] { (void)parse_products(names, "m.toml: products."); };
  };
  EXPECT_THAT(with("float32", "amx"), ThrowsMessage<Error>("m.toml: products.float32 = 'amx' is unknown; it may be "
                                                           "'own' or 'openblas/Haswell'"));
  EXPECT_THAT(with("bfloat16", "own"), ThrowsMessage<Error>(HasSubstr("it may be 'widened' or 'native'")));
  EXPECT_THAT(with("float32", "own/Haswell"), ThrowsMessage<Error>(HasSubstr("is unknown")));
  EXPECT_THAT(with("float64", "openblas/Zen"), ThrowsMessage<Error>(HasSubstr("use 'openblas/Haswell'")));
  EXPECT_THAT([] { (void)parse_products({}, ""); },
              ThrowsMessage<Error>("float32 is missing; it is 'own' or 'openblas/Haswell'"));
}

/// The other kernels of float32 than those of the table.
std::string other_float32() { return default_products().float32 == ProductKernels::own ? "openblas" : "own"; }

TEST(ChosenProducts, TheEnvironmentIsAboveTheCheckpointAndThatAboveTheMachine) {
  const Environment clean(std::map<std::string, std::string>{
      {"ECHELON_FLOAT32_PRODUCTS", ""}, {"ECHELON_BFLOAT16_PRODUCTS", ""}, {"OPENBLAS_CORETYPE", ""}});
  const ProductChoice shipped = choose_products({}).choice;
  ProductNames own = names_of(shipped), blas = own, machine;
  own["float32"] = "own";
  blas["float32"] = "openblas/" + shipped.core_type;
  const bool ships_own = shipped.float32 == ProductKernels::own;
  const ProductNames &same = ships_own ? own : blas, &other = ships_own ? blas : own;
  const auto with_kind = [](ProductNames names, std::string_view kind) {
    names["kind"] = kind;
    return names;
  };
  const ProductNames of_machine = with_kind(other, name_of(processor_kind()));
  const auto float32_of = [](const ProductRequest& request) { return choose_products(request).choice.float32; };
  EXPECT_NE(float32_of({.of_machine = of_machine}), shipped.float32);
  EXPECT_NE(float32_of({.saved = other}), shipped.float32);
  EXPECT_EQ(float32_of({.saved = same, .of_machine = of_machine}), shipped.float32);
  EXPECT_EQ(choose_products({.saved = same}).source, "as in the checkpoint");
  const ChosenProducts foreign = choose_products({.of_machine = with_kind(other, "zen1000"), .machine_file = "m.toml"});
  EXPECT_EQ(foreign.choice, shipped);
  EXPECT_THAT(foreign.notes, ElementsAre(HasSubstr("m.toml are not used: they are of 'zen1000'")));

  const Environment asks("ECHELON_FLOAT32_PRODUCTS", other_float32());
  const ChosenProducts asked = choose_products({.saved = same});
  EXPECT_NE(asked.choice.float32, shipped.float32);
  EXPECT_THAT(asked.source, HasSubstr("ECHELON_FLOAT32_PRODUCTS"));
  EXPECT_THAT(asked.notes, ElementsAre(HasSubstr("equal to rounding: the environment asks for that")));
  EXPECT_THAT(choose_products({.saved = other}).notes, IsEmpty());
}

TEST(ChosenProducts, OfACheckpointThatThisProcessorCannotFollowAreSaid) {
  const ProductChoice shipped = choose_products({}).choice;
  ProductNames saved = names_of(shipped);
  saved["float32"] = "amx";
  const ChosenProducts products = choose_products({.saved = saved});
  EXPECT_EQ(products.choice, shipped);
  EXPECT_THAT(
      products.notes,
      ElementsAre("the checkpoint's float32 matmuls were by 'amx', and the run continues with '" +
                  name_of(shipped, DType::float32) + "', equal to rounding: this program does not know such kernels"));
  EXPECT_THAT(choose_products({.dtype = DType::float64, .saved = saved}).notes, IsEmpty())
      << "of a dtype that is not used";
  saved["float32"] = "openblas/Atom";
  EXPECT_THAT(choose_products({.saved = saved}).notes, ElementsAre(HasSubstr("OpenBLAS's kernels")));
}

TEST(ChosenProducts, MistakesInTheEnvironmentAreNamed) {
  const Environment asks("ECHELON_FLOAT32_PRODUCTS", "mine");
  EXPECT_THAT([] { (void)choose_products({}); },
              ThrowsMessage<Error>("ECHELON_FLOAT32_PRODUCTS = 'mine' is unknown; it may be 'own' or 'openblas'"));
  const Environment also(
      std::map<std::string, std::string>{{"ECHELON_FLOAT32_PRODUCTS", ""}, {"ECHELON_BFLOAT16_PRODUCTS", "native"}});
  if (bfloat16_kernels() != nullptr) return;
  EXPECT_THAT([] { (void)choose_products({}); }, ThrowsMessage<Error>(HasSubstr("use 'widened'")));
}

/// a b in float32 by the operations that a choice makes.
Numbers product_by(const ProductChoice& choice, const Numbers& a, const Numbers& b) {
  const Numbers c(DType::float32, {64, 64});
  const auto ops = make_cpu_ops({.products = choice});
  ops->matmul({.a = a.tensor(), .b = b.tensor(), .c = c.tensor()});
  return c;
}

TEST(ChosenProducts, AreWhatMultiplies) {
  constexpr std::int64_t k = 3000;  // more than either sums at a time
  const Numbers a = Numbers::random(DType::float32, {64, k}, 1), b = Numbers::random(DType::float32, {k, 64}, 2);
  ProductChoice own = choose_products({}).choice, blas = own;
  own.float32 = ProductKernels::own;
  blas.float32 = ProductKernels::openblas;
  const Numbers expected(DType::float32, {64, 64});
  Blas::loaded(blas.core_type)
      .gemm(GemmArgs<float>{.a = a.tensor().as<float>(),
                            .b = b.tensor().as<float>(),
                            .c = expected.tensor().as<float>(),
                            .m = 64,
                            .n = 64,
                            .k = k,
                            .lda = k,
                            .ldb = 64,
                            .ldc = 64});
  EXPECT_TRUE(product_by(blas, a, b) == expected);
  EXPECT_FALSE(product_by(own, a, b) == expected);
}

// Their rows are few, and OpenBLAS would pack each weight for them. Sums of 3,000 products have other bits there.
TEST(ChosenProducts, OfExpertsAreOurKernelsAlways) {
  constexpr std::int64_t k = 3000;
  const Numbers a = Numbers::random(DType::float32, {32, k}, 1), w = Numbers::random(DType::float32, {2, k, 64}, 2),
                offsets = Numbers::tokens({0, 16, 32});
  const auto product_by_kernels = [&](ProductKernels kernels) {
    ProductChoice choice = choose_products({}).choice;
    choice.float32 = kernels;
    const Numbers c(DType::float32, {32, 64});
    make_cpu_ops({.products = choice})
        ->grouped_matmul({.a = a.tensor(), .w = w.tensor(), .offsets = offsets.tensor(), .c = c.tensor()});
    return c;
  };
  EXPECT_TRUE(product_by_kernels(ProductKernels::openblas) == product_by_kernels(ProductKernels::own));
}

}  // namespace
}  // namespace echelon
