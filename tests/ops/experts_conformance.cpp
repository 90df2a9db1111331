// Mixtures of experts on every backend: experts without tokens and with all of them, tokens without a slot, rows that
// are nobody's, odd and empty sizes.
#include "conformance.h"

#include "ops/reference/reference_ops.h"

#include <fmt/format.h>

namespace echelon {
namespace {

/// The choices of N tokens among experts -1 .. 4, of which those below 0 and, with four experts, the last one are
/// elsewhere.
Numbers some_choices(std::int64_t N, std::int64_t k) {
  std::vector<std::int32_t> experts;
  for (std::int64_t i = 0; i < N * k; ++i) experts.push_back(static_cast<std::int32_t>((i * i + i / 3) % 6 - 1));
  return Numbers::tokens(experts);
}

Numbers slots_of(std::int64_t N, std::int64_t k) {
  const Numbers experts = some_choices(N, k), slots(DType::int32, {N, k}), offsets(DType::int32, {5});
  ReferenceOps().expert_slots({.experts = experts.tensor().reshaped({N, k}), .slots = slots, .offsets = offsets});
  return slots;
}

Numbers offsets_of(const std::vector<std::int32_t>& num_rows) {
  std::vector<std::int32_t> offsets = {0};
  for (const std::int32_t rows : num_rows) offsets.push_back(offsets.back() + rows);
  return Numbers::tokens(offsets);
}

TEST_P(OpsConformance, ExpertSlots) {
  if (dtype != DType::float32) GTEST_SKIP() << "of int32 alone";
  struct Case {
    std::int64_t N, k, E, first_expert;
  };
  for (const auto& [N, k, E, first_expert] : {Case{0, 2, 3, 0},
                                              {1, 1, 1, 0},
                                              {7, 3, 1, 4},
                                              {7, 3, 5, -1},
                                              {5, 2, 70, 0},
                                              {40, 2, 4, 1},
                                              {700, 2, 4, 0},
                                              {700, 2, 2, 100}}) {
    const Tensors tensors = {some_choices(N, k), Numbers(DType::int32, {N, k}), Numbers(DType::int32, {E + 1})};
    compare(fmt::format("expert_slots {} {} {} {}", N, k, E, first_expert), tensors, [&](Ops& ops, Tensors& t) {
      ops.expert_slots(
          {.experts = t[0].tensor().reshaped({N, k}), .slots = t[1], .offsets = t[2], .first_expert = first_expert});
    });
  }
}

/// int32 [P, E + 1]: ranks without rows, experts without rows, and all rows at one expert.
Numbers offsets_of_ranks(std::int64_t P, std::int64_t E, std::int64_t most) {
  std::vector<std::int32_t> offsets;
  for (std::int64_t p = 0; p < P; ++p) {
    std::int64_t next = 0;
    offsets.push_back(0);
    for (std::int64_t e = 0; e < E; ++e) {
      next += p % 4 == 3 ? (e == 2 ? 3 * most : 0) : p % 4 == 1 ? 0 : (e * e + 3 * p + e * p) % (most + 1);
      offsets.push_back(static_cast<std::int32_t>(next));
    }
  }
  return Numbers::tokens(offsets);
}

TEST_P(OpsConformance, ArrivedSlots) {
  if (dtype != DType::float32) GTEST_SKIP() << "of int32 alone";
  struct Case {
    std::int64_t P, all, E, first_expert, most, Q, first_row;
  };
  for (const auto& [P, all, E, first_expert, most, Q, first_row] : {Case{1, 1, 1, 0, 5, 9, 0},
                                                                    {2, 4, 2, 2, 3, 7, 0},
                                                                    {2, 4, 2, 0, 3, 3, 2},
                                                                    {4, 8, 2, 2, 4, 8, 0},
                                                                    {4, 8, 2, 2, 4, 8, 8},
                                                                    {4, 8, 2, 2, 4, 8, 16},
                                                                    {4, 8, 2, 2, 4, 8, 800},
                                                                    {4, 8, 4, 0, 0, 5, 0},
                                                                    {5, 350, 70, 140, 9, 600, 300},
                                                                    {3, 9, 3, 3, 2, 0, 0}}) {
    const Tensors tensors = {offsets_of_ranks(P, all, most), Numbers(DType::int32, {Q, 1}),
                             Numbers(DType::int32, {E + 1})};
    compare(fmt::format("arrived_slots {} {} {} {} {}", P, E, most, Q, first_row), tensors, [&](Ops& ops, Tensors& t) {
      ops.arrived_slots({.of_ranks = t[0].tensor().reshaped({P, all + 1}),
                         .slots = t[1],
                         .offsets = t[2],
                         .first_expert = first_expert,
                         .first_row = first_row});
    });
  }
}

TEST_P(OpsConformance, RowsToExpertsAndBack) {
  struct Case {
    std::int64_t N, k, D;
  };
  for (const auto& [N, k, D] : {Case{0, 2, 16}, {1, 1, 3}, {9, 2, 33}, {4, 6, 600}, {30, 2, 0}, {430, 2, 40}}) {
    const std::string sizes = fmt::format(" {} {} {}", N, k, D);
    const Numbers of_tokens = random({N, D}, 1), of_experts = random({N * k, D}, 2), slots = slots_of(N, k),
                  weights = Numbers::random(sums, {N, k}, 3);
    compare("permute_to_experts" + sizes, {of_tokens, slots, of_experts},
            [](Ops& ops, Tensors& t) { ops.permute_to_experts({.x = t[0], .slots = t[1], .y = t[2]}); });
    compare("combine_experts" + sizes, {of_experts, slots, of_tokens, of_tokens, weights}, [](Ops& ops, Tensors& t) {
      ops.combine_experts({.y = t[0], .slots = t[1], .out = t[2]});
      ops.combine_experts({.y = t[0], .slots = t[1], .out = t[3], .weights = t[4]});
    });
    compare("combine_experts_backward" + sizes,
            {of_tokens, of_experts, slots, weights, random({N * k, D}, 4), Numbers::random(sums, {N, k}, 5)},
            [](Ops& ops, Tensors& t) {
              ops.combine_experts_backward(
                  {.dout = t[0], .y = t[1], .slots = t[2], .weights = t[3], .dy = t[4], .dweights = t[5]});
            });
    compare("combine_experts_backward in place" + sizes, {of_tokens, of_experts, slots, weights, weights},
            [](Ops& ops, Tensors& t) {
              ops.combine_experts_backward(
                  {.dout = t[0], .y = t[1], .slots = t[2], .weights = t[3], .dy = t[1], .dweights = t[4]});
            });
  }
}

struct GroupedCase {
  std::vector<std::int32_t> num_rows;  // of each expert
  std::int64_t nobodys, inner, outer;
};

/// Several tiles of rows and of columns, parts of tiles, many experts, sums that are empty and longer than what is
/// loaded at once, and widths of whole tiles.
std::vector<GroupedCase> grouped_cases() {
  return {{{3, 0, 2}, 0, 5, 7},        {{0, 0}, 0, 8, 16},         {{0, 4, 0}, 3, 24, 8},
          {{7}, 0, 280, 40},           {{5, 1}, 0, 0, 8},          {{6}, 2, 16, 0},
          {{70, 1}, 1, 33, 67},        {{130, 0, 20}, 5, 72, 136}, {std::vector<std::int32_t>(35, 1), 0, 8, 8},
          {{17, 0, 3, 66}, 2, 192, 64}};
}

TEST_P(OpsConformance, GroupedMatmul) {
  for (const auto& [num_rows, nobodys, K, N] : grouped_cases())
    for (const bool transpose_w : {false, true}) {
      const auto E = static_cast<std::int64_t>(num_rows.size());
      const Numbers offsets = offsets_of(num_rows);
      const std::int64_t R = static_cast<std::int64_t>(offsets.get(E)) + nobodys;
      const Numbers a = random({R, K}, 1), w = random(transpose_w ? Sizes{E, N, K} : Sizes{E, K, N}, 2),
                    c = random({R, N}, 3);
      compare(
          fmt::format("grouped_matmul of {} experts, {} {} {}, transposes {}", E, R, N, K, transpose_w),
          {a, w, offsets, c, c}, [&](Ops& ops, Tensors& t) {
            ops.grouped_matmul({.a = t[0], .w = t[1], .offsets = t[2], .c = t[3], .transpose_w = transpose_w});
            if (N != 136)
              ops.grouped_matmul(
                  {.a = t[0], .w = t[1], .offsets = t[2], .c = t[4], .transpose_w = transpose_w, .accumulates = true});
          });
    }
}

TEST_P(OpsConformance, GroupedMatmulBackwardWeight) {
  for (const auto& [num_rows, nobodys, D, F] : grouped_cases())
    for (const DType g : gradient_dtypes()) {
      const auto E = static_cast<std::int64_t>(num_rows.size());
      const Numbers offsets = offsets_of(num_rows);
      const std::int64_t R = static_cast<std::int64_t>(offsets.get(E)) + nobodys;
      compare(fmt::format("grouped_matmul_backward_weight of {} experts, {} {} {}", E, R, F, D),
              {random({R, F}, 1), random({R, D}, 2), offsets, Numbers::random(g, {E, F, D}, 3)},
              [](Ops& ops, Tensors& t) {
                ops.grouped_matmul_backward_weight({.dy = t[0], .x = t[1], .offsets = t[2], .dw = t[3]});
              });
    }
}

// What is not written must not be read either: NaN in a product's own place, and in rows that are nobody's.
TEST_P(OpsConformance, GroupedMatmulOverwritesAndReadsNothingOfNobodys) {
  for (const std::int64_t K : {5, 16}) {
    Tensors tensors = {random({6, K}, 1), random({2, K, 8}, 2), offsets_of({1, 3}), random({6, 8}, 3),
                       random({2, K, 8}, 4)};
    tensors[0].set(4 * K + 1, std::nan(""));
    tensors[3].set(9, std::nan(""));
    const auto products = [](Ops& ops, Tensors& t) {
      ops.grouped_matmul({.a = t[0], .w = t[1], .offsets = t[2], .c = t[3]});
      ops.grouped_matmul_backward_weight({.dy = t[0], .x = t[3], .offsets = t[2], .dw = t[4]});
    };
    compare(fmt::format("grouped products beside NaN, {}", K), tensors, products);
    for (const Numbers& numbers : {run(tensors, products)[4]})
      for (std::int64_t i = 0; i < numbers.count(); ++i) ASSERT_TRUE(std::isfinite(numbers.get(i)));
  }
}

}  // namespace
}  // namespace echelon
