// Each rule by itself, on two tensor-parallel ranks: what comes out of what goes in, derived on paper, and what is
// refused.
#include "comm/typed/typed_mesh.h"
#include "ops/typed/typed_ops.h"
#include "spec/groups.h"
#include "tensor/arena.h"

#include <gmock/gmock.h>

#include <memory>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr AxisLayout whole = replicated_layout, rows = sharded_rows, partial = partial_layout;
constexpr AxisLayout local_max = {TensorPlacement::local_max}, local_sum = {TensorPlacement::local_sum};

/// The second of two tensor-parallel ranks, with memory that nobody can touch.
class LayoutTypeRules : public ::testing::Test {
 protected:
  Tensor tensor(Sizes sizes, DType dtype = DType::float32) { return memory_.take(dtype, sizes); }
  Tensor tensor(Sizes sizes, AxisLayout layout, DType dtype = DType::float32) {
    return typed(tensor(sizes, dtype), layout);
  }
  Tensor typed(const Tensor& x, AxisLayout layout) {
    LayoutType type;
    type[TypeAxis::tp] = layout;
    types_.write(x, {.type = type});
    return x;
  }
  /// A tensor whose columns are cut: its dim 1.
  Tensor columns(Sizes sizes) {
    const Tensor x = tensor(sizes);
    return typed(x, sharded_along(x, 1));
  }
  std::string type_of(const Tensor& x) {
    std::optional<TypedPiece> differing;
    const auto piece = types_.find(x, differing);
    return !piece ? "unknown" : differing ? "mixed" : describe(piece->type[TypeAxis::tp], x);
  }
  template <class F>
  static std::string fault(F&& f) {
    try {
      f();
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "none";
  }
  Comm& tp() { return mesh_.comm(tp_group); }

  MeshShape shape_{{{Axis::tp, 2}}};
  Arena arena_{1 << 20, bare_addresses()};
  Stack memory_ = arena_.region(0, 1 << 20);
  TypedMemory types_;
  RankAxes axes_{shape_, 1, 1};
  TypedOps ops_{types_, axes_};
  TypedMesh mesh_{shape_, types_, axes_, LayoutType()};
};

TEST_F(LayoutTypeRules, AProductCutsWhatItsFactorsCut) {
  const Tensor x = tensor({6, 4}, whole), w_out = tensor({8, 4}, rows), y = tensor({6, 8});
  ops_.matmul({.a = x, .b = w_out, .c = y, .transpose_b = true});  // column-parallel
  EXPECT_EQ(type_of(y), "sharded(1)");
  const Tensor w_in = columns({4, 8}), z = tensor({6, 4});
  ops_.matmul({.a = y, .b = w_in, .c = z, .transpose_b = true});  // row-parallel
  EXPECT_EQ(type_of(z), "partial");
  const Tensor tokens = tensor({6, 4}, rows), u = tensor({6, 4});
  ops_.matmul({.a = tokens, .b = tensor({4, 4}, whole), .c = u, .transpose_b = true});
  EXPECT_EQ(type_of(u), "sharded(0)");
  const Tensor of_partial = tensor({6, 4});
  ops_.matmul({.a = z, .b = tensor({4, 4}, whole), .c = of_partial, .transpose_b = true});
  EXPECT_EQ(type_of(of_partial), "partial");  // a product is linear
}

TEST_F(LayoutTypeRules, TheGradientOfAWeightIsCutLikeTheWeightOrAnAddendOverTokens) {
  const Tensor dy = columns({6, 8}), x = tensor({6, 4}, whole), dw = tensor({8, 4});
  ops_.matmul({.a = dy, .b = x, .c = dw, .transpose_a = true});
  EXPECT_EQ(type_of(dw), "sharded(0)");
  const Tensor dw_in = tensor({4, 8});
  ops_.matmul({.a = x, .b = dy, .c = dw_in, .transpose_a = true});
  EXPECT_EQ(type_of(dw_in), "sharded(1)");
  const Tensor of_tokens = tensor({4, 4}), local = tensor({6, 4}, rows);
  ops_.matmul({.a = local, .b = local, .c = of_tokens, .transpose_a = true});
  EXPECT_EQ(type_of(of_tokens), "partial");
}

TEST_F(LayoutTypeRules, FactorsThatDoNotBelongTogether) {
  const auto product = [&](const Tensor& a, const Tensor& b) {
    return fault([&] { ops_.matmul({.a = a, .b = b, .c = tensor({6, 4}), .transpose_b = true}); });
  };
  EXPECT_THAT(product(columns({6, 4}), tensor({4, 4}, whole)),
              HasSubstr("a is sharded(1) over tp, but is read as if it were whole"));
  EXPECT_THAT(product(tensor({6, 4}, whole), columns({4, 4})),
              HasSubstr("b is sharded(1) over tp, but is read as if it were whole"));
  EXPECT_THAT(product(tensor({6, 4}, rows), tensor({4, 4}, rows)), HasSubstr("do not belong together"));
  EXPECT_THAT(product(tensor({6, 4}, partial), tensor({4, 4}, partial)),
              HasSubstr("partial over tp, but is read as if it were complete"));
  EXPECT_THAT(product(tensor({6, 4}, partial), columns({4, 4})), HasSubstr("partial over tp"));
  EXPECT_THAT(product(tensor({6, 4}), tensor({4, 4}, whole)), HasSubstr("not all of it was ever written"));
}

TEST_F(LayoutTypeRules, ClipsAreOfCompleteValues) {
  const Tensor x = columns({6, 8}), gradient = columns({6, 8});
  ops_.clip({.x = x, .limit = 2});
  EXPECT_EQ(type_of(x), "sharded(1)");
  ops_.clip_backward({.dx = gradient, .x = x, .limit = 2});
  EXPECT_EQ(type_of(gradient), "sharded(1)");
  EXPECT_THAT(fault([&] { ops_.clip({.x = tensor({6, 8}, partial), .limit = 2}); }), HasSubstr("partial over tp"));
  EXPECT_THAT(fault([&] {
                ops_.clip_backward({.dx = tensor({6, 8}, whole), .x = tensor({6, 8}, partial), .limit = 2});
              }),
              HasSubstr("partial over tp"));
}

TEST_F(LayoutTypeRules, SoftCapsAreOfCompleteValues) {
  const Tensor logits = columns({6, 8}), gradient = columns({6, 8});
  ops_.soft_cap({.x = logits, .cap = 30});
  EXPECT_EQ(type_of(logits), "sharded(1)");
  ops_.soft_cap_backward({.dx = gradient, .y = logits, .cap = 30});
  EXPECT_EQ(type_of(gradient), "sharded(1)");
  EXPECT_THAT(fault([&] { ops_.soft_cap({.x = tensor({6, 8}, partial), .cap = 30}); }), HasSubstr("partial over tp"));
  EXPECT_THAT(fault([&] {
                ops_.soft_cap_backward({.dx = tensor({6, 8}, whole), .y = tensor({6, 8}, partial), .cap = 30});
              }),
              HasSubstr("partial over tp"));
}

TEST_F(LayoutTypeRules, SumsAddWhatIsHeldAlike) {
  const Tensor a = tensor({6, 4}, partial), b = tensor({6, 4}, partial), c = tensor({6, 4}, whole);
  ops_.add(a, a, b);
  EXPECT_EQ(type_of(a), "partial");
  EXPECT_THAT(fault([&] { ops_.add(a, a, c); }), HasSubstr("partial over tp"));
  EXPECT_THAT(fault([&] { ops_.add(c, c, tensor({6, 4}, rows)); }), HasSubstr("do not belong together"));
  const Tensor zero = tensor({6, 4});
  ops_.fill(zero, 0.0);
  ops_.add(zero, zero, b);
  EXPECT_EQ(type_of(zero), "partial");
  EXPECT_THAT(fault([&] {
                ops_.matmul({.a = c, .b = tensor({4, 4}, whole), .c = a, .transpose_b = true, .accumulates = true});
              }),
              AllOf(HasSubstr("partial over tp"), HasSubstr("added to it replicated")));
  // It would be added once per rank.
  EXPECT_THAT(fault([&] { ops_.add_bias(a, tensor({4}, whole)); }), HasSubstr("partial over tp"));
}

// Column- and row-parallel experts: their inner width is cut.
TEST_F(LayoutTypeRules, ExpertsWhoseInnerWidthIsCut) {
  const auto cut_along = [&](Sizes sizes, int dim) {
    const Tensor x = tensor(sizes);
    return typed(x, sharded_along(x, dim));
  };
  const Tensor experts = tensor({3, 2}, whole, DType::int32), slots = tensor({3, 2}, DType::int32),
               offsets = tensor({5}, DType::int32);
  ops_.expert_slots({.experts = experts, .slots = slots, .offsets = offsets});
  EXPECT_EQ(type_of(offsets), "replicated");
  const Tensor x = tensor({3, 4}, whole), a = tensor({6, 4}), h = tensor({6, 8}), y = tensor({6, 4}),
               out = tensor({3, 4});
  const Tensor w1 = cut_along({4, 8, 4}, 1), w2 = cut_along({4, 4, 8}, 2), weights = tensor({3, 2}, whole);
  ops_.permute_to_experts({.x = x, .slots = slots, .y = a});
  ops_.grouped_matmul({.a = a, .w = w1, .offsets = offsets, .c = h, .transpose_w = true});
  EXPECT_EQ(type_of(h), "sharded(1)");
  ops_.grouped_matmul({.a = h, .w = w2, .offsets = offsets, .c = y, .transpose_w = true});
  EXPECT_EQ(type_of(y), "partial");
  ops_.combine_experts({.y = y, .slots = slots, .out = out, .weights = weights});
  EXPECT_EQ(type_of(out), "partial");
  const Tensor dy = tensor({6, 4}), dweights = tensor({3, 2}), dw1 = tensor({4, 8, 4}), dw2 = tensor({4, 4, 8}),
               da = tensor({6, 4});
  for (const Tensor& dw : {dw1, dw2}) ops_.fill(dw, 0.0);
  ops_.combine_experts_backward(
      {.dout = x, .y = y, .slots = slots, .weights = weights, .dy = dy, .dweights = dweights});
  EXPECT_EQ(type_of(dy), "replicated");
  EXPECT_EQ(type_of(dweights), "partial");  // of addends of y
  ops_.grouped_matmul_backward_weight({.dy = dy, .x = h, .offsets = offsets, .dw = dw2});
  EXPECT_EQ(type_of(dw2), "sharded(2)");
  ops_.grouped_matmul_backward_weight({.dy = h, .x = a, .offsets = offsets, .dw = dw1});
  EXPECT_EQ(type_of(dw1), "sharded(1)");
  ops_.grouped_matmul({.a = h, .w = w1, .offsets = offsets, .c = da});
  EXPECT_EQ(type_of(da), "partial");
  EXPECT_THAT(
      fault([&] {
        ops_.grouped_matmul({.a = a, .w = tensor({4, 8, 4}, rows), .offsets = offsets, .c = h, .transpose_w = true});
      }),
      HasSubstr("w is sharded(0) over tp, but is read as if it were whole"));
}

// Where tokens are cut, each rank orders its own.
TEST_F(LayoutTypeRules, ExpertsOfTokensThatAreCut) {
  const Tensor experts = tensor({3, 2}, rows, DType::int32), slots = tensor({3, 2}, DType::int32),
               offsets = tensor({5}, DType::int32);
  ops_.expert_slots({.experts = experts, .slots = slots, .offsets = offsets});
  EXPECT_EQ(type_of(slots), "sharded(0)");
  EXPECT_EQ(type_of(offsets), "each rank's own");
  const Tensor x = tensor({3, 4}, rows), a = tensor({6, 4}), h = tensor({6, 8}), w = tensor({4, 8, 4}, whole),
               dw = tensor({4, 8, 4});
  ops_.fill(dw, 0.0);
  ops_.permute_to_experts({.x = x, .slots = slots, .y = a});
  EXPECT_EQ(type_of(a), "sharded(0)");
  ops_.grouped_matmul({.a = a, .w = w, .offsets = offsets, .c = h, .transpose_w = true});
  EXPECT_EQ(type_of(h), "sharded(0)");
  ops_.grouped_matmul_backward_weight({.dy = h, .x = a, .offsets = offsets, .dw = dw});
  EXPECT_EQ(type_of(dw), "partial");
  const Tensor weights = tensor({3, 2}, rows), dy = tensor({6, 4}), dweights = tensor({3, 2});
  ops_.combine_experts_backward(
      {.dout = x, .y = a, .slots = slots, .weights = weights, .dy = dy, .dweights = dweights});
  EXPECT_EQ(type_of(dweights), "sharded(0)");
  EXPECT_THAT(fault([&] {
                ops_.permute_to_experts({.x = tensor({3, 4}, whole), .slots = slots, .y = a});
              }),
              HasSubstr("do not belong together"));
  const Tensor of_all = tensor({5}, whole, DType::int32);
  EXPECT_THAT(fault([&] { ops_.grouped_matmul({.a = a, .w = w, .offsets = of_all, .c = h, .transpose_w = true}); }),
              HasSubstr("do not belong together"));
}

// Each rank routes what it has of the tokens, all experts at a time. Rows whose columns are cut give addends of the
// gradients of weights, and of logits.
TEST_F(LayoutTypeRules, TheRouterOfExperts) {
  for (const AxisLayout of_tokens : {whole, rows}) {
    const Tensor logits = tensor({3, 4}, of_tokens), experts = tensor({3, 2}, DType::int32), weights = tensor({3, 2});
    ops_.choose_experts({.logits = logits, .experts = experts, .weights = weights});
    const std::string expected = of_tokens == whole ? "replicated" : "sharded(0)";
    EXPECT_EQ(type_of(experts) + ", " + type_of(weights), expected + ", " + expected);
    const Tensor dlogits = tensor({3, 4}), dweights = tensor({3, 2}, of_tokens), addends = tensor({3, 2}, partial);
    ops_.choose_experts_backward({.logits = logits, .experts = experts, .dweights = dweights, .dlogits = dlogits});
    EXPECT_EQ(type_of(dlogits), expected);
    if (of_tokens == rows) continue;
    ops_.choose_experts_backward({.logits = logits, .experts = experts, .dweights = addends, .dlogits = dlogits});
    EXPECT_EQ(type_of(dlogits), "partial");
  }
  const Tensor chosen = tensor({3, 2}, DType::int32), weights = tensor({3, 2});
  const auto choose = [&](const Tensor& logits) {
    return fault([&] { ops_.choose_experts({.logits = logits, .experts = chosen, .weights = weights}); });
  };
  EXPECT_THAT(choose(tensor({3, 4}, partial)), HasSubstr("nothing has summed it over tp"));
  const Tensor of_some_experts = tensor({3, 4});
  EXPECT_THAT(choose(typed(of_some_experts, sharded_along(of_some_experts, 1))),
              HasSubstr("logits is sharded(1) over tp, but is read as if it were whole"));
}

TEST_F(LayoutTypeRules, WeightsOfRowsOfExperts) {
  const Tensor slots = tensor({3, 2}, whole, DType::int32), weights = tensor({3, 2}, whole), y = tensor({6, 4}),
               dx = tensor({6, 4}), dweights = tensor({3, 2});
  const auto columns = [&](Sizes sizes) {
    const Tensor x = tensor(sizes);
    return typed(x, sharded_along(x, 1));
  };
  const Tensor x = columns({6, 4}), dy = columns({6, 4});
  ops_.weight_rows({.x = x, .slots = slots, .weights = weights, .y = y});
  EXPECT_EQ(type_of(y), "sharded(1)");
  ops_.weight_rows_backward(
      {.dy = dy, .x = x, .slots = slots, .weights = weights, .dx = dx, .dweights = dweights, .y = y});
  EXPECT_EQ(type_of(dx) + ", " + type_of(dweights), "sharded(1), partial");
  EXPECT_THAT(fault([&] {
                ops_.weight_rows({.x = tensor({6, 4}, rows), .slots = slots, .weights = weights, .y = y});
              }),
              HasSubstr("do not belong together"));
}

TEST_F(LayoutTypeRules, ANormNeedsWholeRowsOfCompleteNumbers) {
  const Tensor w = tensor({4}, whole), rstd = tensor({6}), y = tensor({6, 4});
  const auto norm = [&](const Tensor& x) {
    return fault([&] { ops_.rms_norm({.x = x, .w = w, .y = y, .rstd = rstd}); });
  };
  EXPECT_EQ(norm(tensor({6, 4}, rows)), "none");
  EXPECT_EQ(type_of(y) + ", " + type_of(rstd), "sharded(0), sharded(0)");
  EXPECT_THAT(norm(tensor({6, 4}, partial)), HasSubstr("nothing has summed it over tp"));
  EXPECT_THAT(fault([&] {
                ops_.rms_norm({.x = columns({6, 8}), .w = tensor({8}, rows), .y = tensor({6, 8}), .rstd = rstd});
              }),
              HasSubstr("w is sharded(0)"));
}

// Documents are known of the sequences that a rank has, whole, whichever heads it has.
TEST_F(LayoutTypeRules, DocumentsBelongToTheirSequences) {
  const auto attention = [&](AxisLayout of_heads, AxisLayout of_starts) {
    const Tensor q = tensor({2, 3, 4, 8}, of_heads), lse = tensor({2, 4, 3});
    const Tensor starts = typed(tensor({2, 3}, DType::int32), of_starts);
    return fault([&] {
      ops_.attention({.q = q, .k = q, .v = q, .out = tensor({2, 3, 4, 8}), .lse = lse, .mask = {.begin = starts}});
    });
  };
  const AxisLayout heads = sharded_along(tensor({2, 3, 4, 8}), 2), positions = sharded_along(tensor({2, 3}), 1);
  EXPECT_EQ(attention(heads, whole), "none");
  EXPECT_EQ(attention(rows, rows), "none");
  EXPECT_THAT(attention(rows, whole), HasSubstr("do not belong together"));
  EXPECT_THAT(attention(heads, rows), HasSubstr("read as if it were whole"));
  EXPECT_THAT(attention(heads, positions), HasSubstr("read as if it were whole"));
}

TEST_F(LayoutTypeRules, MergedAttentionIsCutAsItsPartsAre) {
  const AxisLayout heads = sharded_along(tensor({2, 3, 4, 8}), 2), of_lse = sharded_along(tensor({2, 4, 3}), 1);
  const Tensor out = tensor({2, 3, 4, 8}, heads), lse = tensor({2, 4, 3}, of_lse);
  const auto merge = [&](AxisLayout part, AxisLayout part_lse) {
    return fault([&] {
      ops_.merge_attention(
          {.out = out, .lse = lse, .part = tensor({2, 3, 4, 8}, part), .part_lse = tensor({2, 4, 3}, part_lse)});
    });
  };
  EXPECT_EQ(merge(heads, of_lse), "none");
  EXPECT_EQ(type_of(out), "sharded(2)");
  EXPECT_THAT(merge(whole, whole), HasSubstr("do not belong together"));
  EXPECT_THAT(merge(heads, whole), HasSubstr("do not belong together"));
}

TEST_F(LayoutTypeRules, HeadsOfAColumnCutProductAreRows) {
  const Tensor q = columns({6, 8}), normed = tensor({6, 8}), rstd = tensor({12});
  const Tensor heads = q.reshaped({12, 4});
  ops_.rms_norm({.x = heads, .w = tensor({4}, whole), .y = normed.reshaped({12, 4}), .rstd = rstd});
  EXPECT_EQ(type_of(normed), "sharded(1)");
  const Tensor dw = tensor({4});
  ops_.fill(dw, 0.0);
  ops_.rms_norm_backward_weight({.dy = heads, .x = heads, .rstd = rstd, .dw = dw});
  EXPECT_EQ(type_of(dw), "partial");  // each rank sees its own heads
}

TEST_F(LayoutTypeRules, TheGradientOfANormIsLinear) {
  const Tensor x = tensor({6, 4}, whole), w = tensor({4}, whole), rstd = tensor({6}, whole),
               dy = tensor({6, 4}, partial), dx = tensor({6, 4});
  ops_.rms_norm_backward_input({.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = dx});
  EXPECT_EQ(type_of(dx), "partial");
  EXPECT_THAT(fault([&] {
                ops_.rms_norm_backward_input(
                    {.dy = dy, .x = x, .w = w, .rstd = rstd, .dx = dx, .dresidual = tensor({6, 4}, whole)});
              }),
              HasSubstr("the norm's gradient is partial over tp"));
}

TEST_F(LayoutTypeRules, RanksThatShareAKvHeadHaveAddendsOfItsGradient) {
  const auto heads = [&] {
    const Tensor x = tensor({1, 5, 2, 4});
    return typed(x, sharded_along(x, 2));
  };
  const Tensor q = heads(), out = tensor({1, 5, 2, 4}), lse = tensor({1, 2, 5}), k = tensor({1, 5, 1, 4}, whole),
               v = tensor({1, 5, 1, 4}, whole);
  ops_.attention({.q = q, .k = k, .v = v, .out = out, .lse = lse, .group = 2});
  EXPECT_EQ(type_of(out) + ", " + type_of(lse), "sharded(2), sharded(1)");
  const Tensor dq = tensor(q.sizes), dk = tensor(k.sizes), dv = tensor(v.sizes), delta = tensor({1, 2, 5});
  ops_.attention_backward({.q = q,
                           .k = k,
                           .v = v,
                           .out = out,
                           .lse = lse,
                           .dout = heads(),
                           .dq = dq,
                           .dk = dk,
                           .dv = dv,
                           .delta = delta,
                           .group = 2});
  EXPECT_EQ(type_of(dq) + ", " + type_of(dk) + ", " + type_of(dv), "sharded(2), partial, partial");
  const Tensor positions = tensor({1, 5, 2, 4});
  typed(positions, sharded_along(positions, 1));
  EXPECT_THAT(fault([&] { ops_.attention({.q = positions, .k = positions, .v = positions, .out = out, .lse = lse}); }),
              HasSubstr("sharded(1) over tp"));
}

// Four ranks exchange the tokens of two kv heads: two of them get each, and compute addends of its gradient.
class ExchangeRules : public LayoutTypeRules {
 protected:
  Tensor typed(const Tensor& x, AxisLayout layout) {
    LayoutType type;
    type[TypeAxis::cp_heads] = layout;
    types_.write(x, {.type = type});
    return x;
  }
  std::string type_of(const Tensor& x) {
    std::optional<TypedPiece> differing;
    const auto piece = types_.find(x, differing);
    return !piece ? "unknown" : differing ? "mixed" : describe(piece->type[TypeAxis::cp_heads], x);
  }

  MeshShape ranks_{{{Axis::cp, 4}}};
  RankAxes of_exchange_{ranks_, 1, 1, 4};
  TypedOps exchange_{types_, of_exchange_};
  TypedMesh comms_{ranks_, types_, of_exchange_, LayoutType()};
};

TEST_F(ExchangeRules, TokensBecomeHeadsAndReturn) {
  const Tensor x = typed(tensor({5, 2, 8}), rows), sent = tensor({4, 5, 8}), received = tensor({4, 5, 8});
  exchange_.split_heads({.x = x, .y = sent, .copies = 2});
  EXPECT_EQ(type_of(sent), "sharded(0) on 2 ranks each");
  comms_.comm(cp_group).all_to_all(received, sent).wait();
  EXPECT_EQ(type_of(received), "sharded(2) on 2 ranks each, rank after rank");
  AxisLayout takes_by_rank = whole;
  takes_by_rank.order = RowOrder::by_rank;
  const Tensor by_heads = tensor({18, 8}), index = typed(tensor({18}, DType::int32), takes_by_rank);
  exchange_.gather_rows({.x = received.reshaped({20, 8}), .index = index, .y = by_heads});
  EXPECT_EQ(type_of(by_heads), "sharded(1) on 2 ranks each");

  AxisLayout addends = as_addends(sharded_along(by_heads, 1));
  addends.copies = 2;
  typed(sent, addends);
  EXPECT_THAT(fault([&] { comms_.comm(cp_group).all_to_all(received, sent).wait(); }),
              HasSubstr("in ascending order, but each rank of 'cp' takes the rows of its own list"));
  addends.order = RowOrder::by_rank;
  typed(sent, addends);
  comms_.comm(cp_group).all_to_all(received, sent).wait();
  EXPECT_EQ(type_of(received), "addends of parts, sharded(0) on 2 ranks each");
  const Tensor dx = tensor({5, 2, 8});
  exchange_.join_heads({.x = received, .y = dx, .copies = 2});
  EXPECT_EQ(type_of(dx), "sharded(0)");
  EXPECT_THAT(fault([&] {
                exchange_.join_heads({.x = received, .y = tensor({5, 4, 8}), .copies = 1});
              }),
              HasSubstr("but 1 of 2 ranks are added"));
  EXPECT_THAT(fault([&] { comms_.comm(cp_group).all_to_all(received, typed(sent, whole)).wait(); }),
              HasSubstr("replicated over cp, but rows of heads are exchanged"));
  const Tensor other_index = typed(tensor({5}, DType::int32), whole);
  EXPECT_THAT(fault([&] {
                exchange_.gather_rows({.x = dx.reshaped({5, 16}), .index = other_index, .y = tensor({5, 16})});
              }),
              HasSubstr("do not belong together"));
}

// 2 heads of a rank, keys of 6 columns, of which 4 are rotary, and values of 3.
TEST_F(LayoutTypeRules, HeadsOfARankExpandWhatAllShare) {
  const Tensor x = tensor({5, 2, 5}), rope = tensor({5, 4}, whole), k = tensor({5, 2, 6}), v = tensor({5, 2, 6});
  typed(x, sharded_along(x, 1));
  ops_.expand_latents({.x = x, .rope = rope, .k = k, .v = v});
  EXPECT_EQ(type_of(k), "sharded(1)");
  EXPECT_EQ(type_of(v), "sharded(1)");
  const Tensor dx = tensor({5, 2, 5}), drope = tensor({5, 4});
  ops_.expand_latents_backward({.dk = k, .dv = v, .dx = dx, .drope = drope});
  EXPECT_EQ(type_of(dx), "sharded(1)");
  EXPECT_EQ(type_of(drope), "partial");
  EXPECT_THAT(fault([&] { ops_.expand_latents({.x = x, .rope = drope, .k = k, .v = v}); }),
              HasSubstr("is partial over tp"));
  const Tensor shortened = tensor({5, 2, 3});
  ops_.resize_rows({.x = v, .y = shortened});
  EXPECT_EQ(type_of(shortened.reshaped({5, 6})), "sharded(1)");
  typed(v, sharded_along(v, 2));
  EXPECT_THAT(fault([&] { ops_.resize_rows({.x = v, .y = shortened}); }), HasSubstr("is read as if it were whole"));
}

// The columns of a rank's only head are that head.
TEST_F(LayoutTypeRules, OneHeadOfARankIsWhole) {
  const Tensor v = tensor({5, 1, 6}), shortened = tensor({5, 1, 3});
  typed(v, sharded_along(v, 1));
  ops_.resize_rows({.x = v, .y = shortened});
  EXPECT_EQ(type_of(shortened.reshaped({5, 3})), "sharded(1)");
}

TEST_F(LayoutTypeRules, ALookUpInAPartOfTheTableGivesAddends) {
  const Tensor tokens = tensor({6}, whole, DType::int32), w = tensor({8, 4}, rows), y = tensor({6, 4});
  ops_.embedding({.tokens = tokens, .w = w, .y = y, .first_row = 8});
  EXPECT_EQ(type_of(y), "partial");
  EXPECT_THAT(fault([&] { ops_.embedding({.tokens = tokens, .w = w, .y = y, .first_row = 7}); }),
              HasSubstr("it starts at 8, but 7 is given"));
}

TEST_F(LayoutTypeRules, ACollectiveTakesWhatItIsFor) {
  const Tensor x = tensor({6, 4}, partial);
  tp().all_reduce(x, ReduceOp::sum).wait();
  EXPECT_EQ(type_of(x), "replicated");
  EXPECT_THAT(fault([&] { tp().all_reduce(x, ReduceOp::sum).wait(); }), HasSubstr("would count it 2 times"));
  EXPECT_THAT(fault([&] {
                tp().all_reduce(columns({6, 4}), ReduceOp::sum).wait();
              }),
              HasSubstr("would add up different parts"));
  EXPECT_THAT(fault([&] { tp().all_reduce(tensor({6}, local_sum), ReduceOp::sum).wait(); }),
              HasSubstr("must be rescaled"));
  EXPECT_THAT(fault([&] { tp().all_reduce(tensor({6}, partial), ReduceOp::max).wait(); }), HasSubstr("the maximum"));
  const Tensor max = tensor({6}, local_max);
  tp().all_reduce(max, ReduceOp::max).wait();
  EXPECT_EQ(type_of(max), "replicated");

  const Tensor full = tensor({6, 4}, partial), shard = tensor({3, 4});
  tp().reduce_scatter(shard, full, ReduceOp::sum).wait();
  EXPECT_EQ(type_of(shard), "sharded(0)");
  const Tensor gathered = tensor({6, 4});
  tp().all_gather(gathered, shard).wait();
  EXPECT_EQ(type_of(gathered), "replicated");
  EXPECT_THAT(fault([&] {
                tp().all_gather(gathered, columns({3, 4})).wait();
              }),
              HasSubstr("sharded(1) over tp, but parts are joined along dim 0"));
  EXPECT_THAT(fault([&] {
                tp().all_gather(gathered, tensor({3, 4}, whole)).wait();
              }),
              HasSubstr("as if each rank had a part of its own"));
  EXPECT_THAT(fault([&] {
                tp().all_gather(gathered, tensor({3, 4}, partial)).wait();
              }),
              HasSubstr("nothing has summed it"));
}

// The bias behind a row-parallel product: under sequence parallelism each rank sums its own tokens out of those that
// were gathered for the weight.
TEST_F(LayoutTypeRules, OnesOwnPartOfWhatWasGatheredIsAPart) {
  const Tensor full = tensor({6, 4}), local = tensor({3, 4}, rows), of_own = tensor({4}), of_all = tensor({4}),
               of_others = tensor({4});
  tp().all_gather(full, local).wait();
  for (const Tensor& bias : {of_own, of_all, of_others}) ops_.fill(bias, 0.0);
  ops_.bias_backward(full.rows(3, 3), of_own);
  ops_.bias_backward(full, of_all);
  ops_.bias_backward(full.rows(0, 3), of_others);
  EXPECT_EQ(type_of(of_own) + ", " + type_of(of_all) + ", " + type_of(of_others), "partial, replicated, replicated");
}

TEST_F(LayoutTypeRules, AStageSendsWhatTheNextOneTakesItFor) {
  const MeshShape shape({{Axis::pp, 2}, {Axis::tp, 2}});
  const RankAxes axes(shape, 0, 1);
  TypedMesh mesh(shape, types_, axes, LayoutType());
  EXPECT_EQ(fault([&] { mesh.comm(pipeline_group).send(tensor({6, 4}, whole), 1).wait(); }), "none");
  EXPECT_THAT(fault([&] {
                mesh.comm(pipeline_group).send(tensor({6, 4}, partial), 1).wait();
              }),
              HasSubstr("takes it for replicated"));
}

TEST_F(LayoutTypeRules, ViewsKnowTheTypesOfWhatTheyShow) {
  const Tensor x = columns({6, 8});
  EXPECT_EQ(type_of(x.rows(2, 3)), "sharded(1)");
  EXPECT_EQ(type_of(x.reshaped({2, 3, 4, 2})), "sharded(2)");
  typed(x.rows(1, 2), partial);
  EXPECT_EQ(type_of(x), "mixed");
  EXPECT_EQ(type_of(x.rows(0, 1)) + ", " + type_of(x.rows(1, 2)) + ", " + type_of(x.rows(3, 3)),
            "sharded(1), partial, sharded(1)");
  typed(x, whole);
  EXPECT_EQ(type_of(x), "replicated");
}

TEST(RankAxes, SharedKvHeadsCutTheTensorAxisInTwo) {
  const MeshShape shape({{Axis::dp_replicate, 2}, {Axis::tp, 8}});
  const RankAxes axes(shape, 8 + 6, 4);
  EXPECT_EQ(axes.names(axes.all()), "dp_replicate+tp+tp/4");
  EXPECT_EQ(axes.degree(TypeAxis::tp), 2);
  EXPECT_EQ(axes.index(TypeAxis::tp), 1);
  EXPECT_EQ(axes.index(TypeAxis::kv_replica), 2);
  EXPECT_EQ(axes.names(axes.of(tp_group)), "tp+tp/4");
  EXPECT_EQ(axes.names(axes.of(kv_replica_group(4))), "tp/4");
  EXPECT_THROW((void)axes.of(kv_replica_group(2)), Failure);
  EXPECT_EQ(representative_ranks(shape, 4), (std::vector<int>{0, 1, 4, 8}));
}

TEST(RankAxes, HeadsThatAreExchangedCutTheContextAxisInTwo) {
  const MeshShape shape({{Axis::dp_shard, 2}, {Axis::cp, 8}});
  const RankAxes axes(shape, 8 + 6, 1, 4);
  EXPECT_EQ(axes.names(axes.all()), "dp_shard+cp+cp/4");
  EXPECT_EQ(axes.degree(TypeAxis::cp), 2);
  EXPECT_EQ(axes.index(TypeAxis::cp), 1);
  EXPECT_EQ(axes.index(TypeAxis::cp_heads), 2);
  EXPECT_EQ(axes.names(axes.of(shard_group)), "dp_shard+cp+cp/4");
  EXPECT_EQ(axes.names(axes.of(cp_heads_group(4))), "cp/4");
  EXPECT_EQ(axes.names(axes.of(cp_ring_group(4))), "cp");
  EXPECT_THROW((void)axes.of(cp_heads_group(2)), Failure);
  EXPECT_EQ(representative_ranks(shape, 1, 4), (std::vector<int>{0, 1, 4, 8}));
  EXPECT_EQ(RankAxes(MeshShape({{Axis::cp, 4}}), 1, 1, 4).names({TypeAxis::cp_heads}), "cp");
}

// A rehearsal's memory has addresses and nothing behind them.
TEST(ArenaDeathTest, PagesThatMayNeverBeTouched) {
  const Arena arena(4096, bare_addresses());
  const Tensor x = arena.tensor(0, DType::float32, {4});
  EXPECT_DEATH({ x.as<float>()[0] = 1; }, "");
}

}  // namespace
}  // namespace echelon
