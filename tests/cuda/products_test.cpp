// How products are enqueued: plans, the choice of an algorithm, and what they do on their way
// (cuda/ops/pending_product.h). Their numbers: ops_test.cpp.
#include "base/error.h"
#include "cuda/emulated/include/cublasLt.h"
#include "cuda/ops/cuda_ops.h"
#include "numbers.h"
#include "ops/reference/reference_ops.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace echelon {
namespace {

class CudaProducts : public ::testing::Test {
 protected:
  CudaProducts() { emulated::products() = {}; }
  ~CudaProducts() override { emulated::products() = {}; }

  /// The numbers on the device, `offset` of them behind an aligned address.
  [[nodiscard]] Tensor moved(Numbers numbers, std::int64_t offset = 0) {
    const Tensor host = numbers.tensor();
    memory_.emplace_back(device_.memory().allocate(host.num_bytes() + 16),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    const Tensor x(memory_.back().get() + offset * size_of(host.dtype), host.dtype, host.sizes);
    ops_->upload(x, numbers.bytes().data());
    return x;
  }
  [[nodiscard]] Numbers read(const Tensor& x) {
    Numbers numbers(x.dtype, x.sizes);
    ops_->download(numbers.bytes().data(), x);
    return numbers;
  }
  void open(const cuda::OpsOptions& options) { ops_ = std::make_unique<cuda::CudaOps>(device_, options); }

  cuda::Device device_{0};
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::unique_ptr<cuda::CudaOps> ops_ = std::make_unique<cuda::CudaOps>(device_, cuda::OpsOptions{});
};

struct LinearNumbers {
  Numbers x, w, b, dy, dw, db;
  explicit LinearNumbers(DType dtype, DType gradient)
      : x(Numbers::random(dtype, {5, 24}, 1)),
        w(Numbers::random(dtype, {7, 24}, 2)),
        b(Numbers::random(dtype, {7}, 3)),
        dy(Numbers::random(dtype, {5, 7}, 4)),
        dw(Numbers::random(gradient, {7, 24}, 5)),
        db(Numbers::random(gradient, {7}, 6)) {}
};

TEST_F(CudaProducts, ABiasIsAddedByTheProductThatMadeItsOperand) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
    LinearNumbers n(dtype, dtype);
    const Tensor x = moved(n.x), w = moved(n.w), b = moved(n.b), y = moved(n.dy);
    const std::int64_t before = ops_->num_fused();
    ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
    ops_->add_bias(y, b);
    // The library has no such product of float64.
    EXPECT_EQ(ops_->num_fused() - before, dtype == DType::float64 ? 0 : 1);

    ReferenceOps reference;
    reference.matmul({.a = n.x, .b = n.w, .c = n.dy, .transpose_b = true});
    reference.add_bias(n.dy, n.b);
    expect_near(read(y), n.dy, tolerance_of(dtype), "y = x w^T + b in " + std::string(name_of(dtype)));
  }
}

// The second size of a grid ends at 65535 blocks, of 64 rows each: with ECHELON_SIZES=long there are more tokens.
TEST_F(CudaProducts, InFloat8RoundAnyNumberOfRows) {
  const char* sizes = std::getenv("ECHELON_SIZES");  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  const std::int64_t num_rows = sizes != nullptr && std::string_view(sizes) == "long" ? 64 * 65536 + 128 : 4096;
  constexpr std::int64_t count = 16;  // of rows that are not zero, the last ones
  Numbers a = Numbers::random(DType::bfloat16, {count, count}, 1),
          b = Numbers::random(DType::bfloat16, {count, count}, 2);
  const auto room = [&](DType dtype, Sizes of) {
    memory_.emplace_back(device_.memory().allocate(of.num_elements() * size_of(dtype)),
                         [this](std::byte* address) { device_.memory().release(address, 0); });
    return Tensor(memory_.back().get(), dtype, of);
  };
  const auto product = [&](std::int64_t rows) {
    const Tensor x = room(DType::bfloat16, {rows, count}), y = room(DType::bfloat16, {rows, count}),
                 c = room(DType::float32, {count, count}),
                 scratch = room(DType::int32, {float8_scratch_size(rows * count, rows * count)});
    ops_->fill(x, 0);
    ops_->fill(y, 0);
    ops_->upload(x.rows(rows - count, count), a.bytes().data());
    ops_->upload(y.rows(rows - count, count), b.bytes().data());
    ops_->matmul(rounded_in({.a = x,
                             .b = y,
                             .c = c,
                             .transpose_a = true,
                             .a_format = OperandFormat::float8_e4m3,
                             .b_format = OperandFormat::float8_e4m3},
                            scratch));
    return read(c);
  };
  expect_near(product(num_rows), product(count), 1e-6, "a product of many rows in float8");
}

TEST_F(CudaProducts, AGradientOfABiasComesWithThatOfItsWeight) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const DType gradient : {DType::float32, dtype}) {
      LinearNumbers n(dtype, gradient);
      const Tensor x = moved(n.x), dy = moved(n.dy), dw = moved(n.dw), db = moved(n.db);
      ReferenceOps reference;
      for (const bool accumulates : {false, true}) {
        const std::int64_t before = ops_->num_fused();
        const MatmulArgs product = {.a = dy, .b = x, .c = dw, .transpose_a = true, .accumulates = accumulates};
        ops_->matmul(product);
        ops_->bias_backward(dy, db);
        EXPECT_EQ(ops_->num_fused() - before, 1);
        reference.matmul({.a = n.dy, .b = n.x, .c = n.dw, .transpose_a = true, .accumulates = accumulates});
        reference.bias_backward(n.dy, n.db);
      }
      expect_near(read(dw), n.dw, tolerance_of(gradient), "dw");
      expect_near(read(db), n.db, 2 * tolerance_of(gradient), "db");  // of each microbatch rounded, and of the sum
    }
}

/// Rows [3 i, 3 i + 3) of a tensor with `count` times three rows.
Tensor third(const Tensor& x, std::int64_t i) { return x.rows(3 * i, 3); }

struct ParallelProducts {
  static constexpr std::int64_t count = 3;
  Numbers x, w, b, y, dw, db;
  explicit ParallelProducts(DType dtype)
      : x(Numbers::random(dtype, {3, 16}, 1)),
        w(Numbers::random(dtype, {3 * count, 16}, 2)),
        b(Numbers::random(dtype, {3 * count}, 3)),
        y(Numbers::random(dtype, {3 * count, 3}, 4)),
        dw(Numbers::random(dtype, {3 * count, 16}, 5)),
        db(Numbers::random(dtype, {3 * count}, 6)) {}

  struct Tensors {
    Tensor x, w, b, y, dw, db;
  };
  static void forward(Ops& ops, const Tensors& of, bool has_bias) {
    for (std::int64_t i = 0; i < count; ++i) {
      ops.matmul({.a = of.x, .b = third(of.w, i), .c = third(of.y, i), .transpose_b = true});
      if (has_bias) ops.add_bias(third(of.y, i), third(of.b, i));
    }
  }
  static void backward(Ops& ops, const Tensors& of, bool has_bias) {  // y is dy
    for (std::int64_t i = 0; i < count; ++i) {
      ops.matmul({.a = third(of.y, i), .b = of.x, .c = third(of.dw, i), .transpose_a = true, .accumulates = true});
      if (has_bias) ops.bias_backward(third(of.y, i), third(of.db, i));
    }
  }
};

TEST_F(CudaProducts, NeighboursOfOneOperandAreOneBatch) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
    for (const bool has_bias : {false, true})
      for (const bool has_batches : {true, false}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(dtype), has_bias, has_batches));
        emulated::products() = {.has_batches = has_batches};
        open({});
        ParallelProducts n(dtype);
        const ParallelProducts::Tensors on_device = {moved(n.x), moved(n.w),  moved(n.b),
                                                     moved(n.y), moved(n.dw), moved(n.db)};
        const bool is_batch =
            has_batches && !(has_bias && dtype == DType::float64);  // where a bias is a pass of its own
        ParallelProducts::forward(*ops_, on_device, has_bias);
        ops_->publish();
        EXPECT_EQ(emulated::products().num_products, is_batch ? 1 : 3);
        EXPECT_EQ(emulated::products().num_batches, is_batch ? 1 : 0);
        ParallelProducts::backward(*ops_, on_device, has_bias);
        ops_->publish();
        EXPECT_EQ(emulated::products().num_products, is_batch ? 2 : 6);

        ReferenceOps reference;
        const ParallelProducts::Tensors expected = {n.x, n.w, n.b, n.y, n.dw, n.db};
        ParallelProducts::forward(reference, expected, has_bias);
        ParallelProducts::backward(reference, expected, has_bias);
        expect_near(read(on_device.y), n.y, tolerance_of(dtype), "y");
        expect_near(read(on_device.dw), n.dw, 2 * tolerance_of(dtype), "dw");
        expect_near(read(on_device.db), n.db, 2 * tolerance_of(dtype), "db");
      }
}

TEST_F(CudaProducts, WhatIsNoBatchIsComputedInOrder) {
  const Numbers square = Numbers::random(DType::float32, {16, 16}, 1),
                many = Numbers::random(DType::float32, {96, 16}, 2);
  const Tensor a = moved(square), all = moved(many);
  const auto calls = [](Ops& ops, const Tensor& x, const Tensor& of) {
    const auto part = [&](std::int64_t i) { return of.rows(16 * i, 16); };
    ops.matmul({.a = x, .b = part(0), .c = part(1)});
    ops.matmul({.a = x, .b = part(1), .c = part(2)});  // reads what the first writes
    ops.matmul({.a = x, .b = part(2), .c = part(1)});  // overwrites what the second reads
    ops.matmul({.a = x, .b = part(1), .c = part(3)});
    ops.matmul({.a = x, .b = part(2), .c = part(5)});  // at other distances than
    ops.matmul({.a = x, .b = part(0), .c = part(4)});  // before
    ops.matmul({.a = x, .b = part(0), .c = part(4), .accumulates = true});
  };
  calls(*ops_, a, all);
  ops_->publish();
  EXPECT_EQ(emulated::products().num_products, 6) << "the fourth and fifth are a batch";
  ReferenceOps reference;
  calls(reference, square, many);
  expect_near(read(all), many, 1e3 * tolerance_of(DType::float32), "all results");
}

TEST_F(CudaProducts, AResidualIsAddedByTheProduct) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
    for (const bool has_bias : {false, true}) {
      emulated::products() = {};
      LinearNumbers n(dtype, dtype);
      Numbers h = Numbers::random(dtype, {5, 7}, 7);
      const Tensor x = moved(n.x), w = moved(n.w), b = moved(n.b), y = moved(n.dy), residual = moved(h);
      const auto layer = [&](Ops& ops, const auto& x_, const auto& w_, const auto& b_, const auto& y_, const auto& h_) {
        ops.matmul({.a = x_, .b = w_, .c = y_, .transpose_b = true});
        if (has_bias) ops.add_bias(y_, b_);
        ops.add(y_, y_, h_);
      };
      layer(*ops_, x, w, b, y, residual);
      ops_->publish();
      const bool is_apart = has_bias && dtype == DType::float64;
      EXPECT_EQ(emulated::products().num_addends, is_apart ? 0 : 1);
      ReferenceOps reference;
      layer(reference, n.x, n.w, n.b, n.dy, h);
      expect_near(read(y), n.dy, 2 * tolerance_of(dtype), "y = x w^T + b + h");
    }
}

TEST_F(CudaProducts, ASumOfSomethingElseIsNotFused) {
  LinearNumbers n(DType::float32, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), y = moved(n.dy), other = moved(n.dy);
  const MatmulArgs product = {.a = x, .b = w, .c = y, .transpose_b = true};
  ReferenceOps reference;
  Numbers h = n.dy;
  reference.matmul({.a = n.x, .b = n.w, .c = n.dy, .transpose_b = true});
  ops_->matmul(product);
  ops_->add(other, y, other);  // into another tensor
  reference.add(h, n.dy, h);
  ops_->matmul(product);
  ops_->add(y, y, y);  // of the result itself
  reference.add(n.dy, n.dy, n.dy);
  ops_->publish();
  EXPECT_EQ(emulated::products().num_addends, 0);
  expect_near(read(other), h, tolerance_of(DType::float32), "the other sum");
  expect_near(read(y), n.dy, tolerance_of(DType::float32), "twice y");
}

TEST_F(CudaProducts, WhatDoesNotFollowIsNotFused) {
  LinearNumbers n(DType::float32, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), b = moved(n.b), y = moved(n.dy), other = moved(n.dy);
  const MatmulArgs product = {.a = x, .b = w, .c = y, .transpose_b = true};
  ops_->matmul(product);
  ops_->add_bias(other, b);  // of another product
  ops_->matmul(product);
  ops_->scale(y, 2);  // between the product and its bias
  ops_->add_bias(y, b);
  ops_->matmul(product);
  ops_->publish();  // somebody may read y
  ops_->add_bias(y, b);
  EXPECT_EQ(ops_->num_fused(), 0);
  EXPECT_EQ(emulated::products().num_epilogues, 0);

  ReferenceOps reference;
  reference.matmul({.a = n.x, .b = n.w, .c = n.dy, .transpose_b = true});
  reference.add_bias(n.dy, n.b);
  expect_near(read(y), n.dy, tolerance_of(DType::float32), "y");
}

TEST_F(CudaProducts, AProductThatIsHeldBackIsThereForWhoeverReads) {
  LinearNumbers n(DType::float32, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), y = moved(n.dy);
  ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  EXPECT_EQ(emulated::products().num_products, 0);
  ops_->publish();
  EXPECT_EQ(emulated::products().num_products, 1);

  ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true, .accumulates = true});
  ops_->upload(x, n.x.bytes().data());
  EXPECT_EQ(emulated::products().num_products, 3) << "what x was before";
}

TEST_F(CudaProducts, TheLibraryIsAskedOncePerKind) {
  LinearNumbers n(DType::bfloat16, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), y = moved(n.dy);
  const auto ask = [&](const Tensor& a, bool accumulates) {
    ops_->matmul({.a = a, .b = w, .c = y, .transpose_b = true, .accumulates = accumulates});
    ops_->publish();
    return emulated::products().num_heuristics;
  };
  EXPECT_EQ(ask(x, false), 1);
  EXPECT_EQ(ask(x, true), 1);
  EXPECT_EQ(ask(moved(n.x), false), 1) << "another address, as well aligned";
  EXPECT_EQ(ask(moved(n.x, 1), false), 2) << "an address that is a multiple of 2 only";
}

TEST_F(CudaProducts, TensorFloat32OnRequestAlone) {
  const auto compute_of = [&](DType dtype) {
    LinearNumbers n(dtype, dtype);
    ops_->matmul({.a = moved(n.x), .b = moved(n.w), .c = moved(n.dy), .transpose_b = true});
    ops_->publish();
    return emulated::products().last_compute;
  };
  EXPECT_EQ(compute_of(DType::float32), CUBLAS_COMPUTE_32F);
  open({.allows_tf32 = true});
  EXPECT_EQ(compute_of(DType::float32), CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(compute_of(DType::bfloat16), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute_of(DType::float64), CUBLAS_COMPUTE_64F);
}

// dy is rounded, and its column sums are not those of a bias's gradient; a bias of float32 would be read as bfloat16.
TEST_F(CudaProducts, OfFloat8FuseABiasOfBfloat16Alone) {
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    Numbers x = Numbers::random(dtype, {16, 32}, 1), w = Numbers::random(dtype, {48, 32}, 2),
            b = Numbers::random(dtype, {48}, 3), y(dtype, {16, 48});
    const Numbers scratch(DType::int32, {float8_scratch_size(16 * 32, 48 * 32)});
    MatmulArgs args = {.a = x,
                       .b = w,
                       .c = y,
                       .transpose_b = true,
                       .a_format = OperandFormat::float8_e4m3,
                       .b_format = OperandFormat::float8_e4m3};
    args = rounded_in(args, scratch);
    ReferenceOps reference;
    reference.matmul(args);
    reference.add_bias(y, b);

    const std::int64_t before = ops_->num_fused();
    args.a = moved(x);
    args.b = moved(w);
    args.c = moved(y);
    args = rounded_in(args, moved(scratch));
    const Tensor bias = moved(b);
    ops_->matmul(args);
    ops_->add_bias(args.c, bias);
    EXPECT_EQ(ops_->num_fused() - before, dtype == DType::bfloat16 ? 1 : 0);
    expect_near(read(args.c), y, tolerance_of(dtype), "y");
  }
}

// Float8's kernels know no other compute type, whatever products of float32 are allowed.
TEST_F(CudaProducts, OfFloat8AreFormedInFloat32) {
  open({.allows_tf32 = true});
  Numbers x = Numbers::random(DType::float32, {16, 32}, 1), w = Numbers::random(DType::float32, {48, 32}, 2),
          y(DType::float32, {16, 48});
  const Numbers scratch(DType::int32, {float8_scratch_size(16 * 32, 48 * 32)});
  MatmulArgs args = {.a = x,
                     .b = w,
                     .c = y,
                     .transpose_b = true,
                     .a_format = OperandFormat::float8_e4m3,
                     .b_format = OperandFormat::float8_e4m3};
  args = rounded_in(args, scratch);
  ReferenceOps().matmul(args);

  args.a = moved(x);
  args.b = moved(w);
  args.c = moved(y);
  args = rounded_in(args, moved(scratch));
  ops_->matmul(args);
  expect_near(read(args.c), y, tolerance_of(DType::float32), "y");
  EXPECT_EQ(emulated::products().last_compute, CUBLAS_COMPUTE_32F);
}

TEST_F(CudaProducts, FloatEightNeedsAGpuThatHasIt) {
  emulated::set_capability(80);
  cuda::Device old(0);
  EXPECT_THROW(cuda::CudaOps(old, {.needs_float8 = true}), Error);
  EXPECT_NO_THROW(cuda::CudaOps(old, {}));
  emulated::set_capability(90);
  EXPECT_NO_THROW(open({.needs_float8 = true}));
}

TEST_F(CudaProducts, OutsideDeterministicModeTheFastestOfSeveralIsTaken) {
  emulated::products().slow_algorithms = 1;  // the one that is named first
  LinearNumbers n(DType::float32, DType::float32);
  ReferenceOps reference;
  for (int i = 0; i < 2; ++i)
    reference.matmul({.a = n.dy, .b = n.x, .c = n.dw, .transpose_a = true, .accumulates = true});
  const Numbers expected = n.dw;
  for (const bool deterministic : {true, false}) {
    open({.deterministic = deterministic});
    LinearNumbers again(DType::float32, DType::float32);
    const Tensor x = moved(again.x), dy = moved(again.dy), dw = moved(again.dw);
    for (int i = 0; i < 2; ++i) ops_->matmul({.a = dy, .b = x, .c = dw, .transpose_a = true, .accumulates = true});
    ops_->publish();
    EXPECT_EQ(emulated::products().last_algorithm == 0, deterministic);
    expect_near(read(dw), expected, tolerance_of(DType::float32), "what is added to is added to once");
  }
}

TEST_F(CudaProducts, AnAlgorithmThatIsOfferedAndRefusedIsLeftOut) {
  emulated::products().refused_algorithms = 1;
  open({.deterministic = false});
  const std::int64_t before = emulated::num_allocated_bytes();
  LinearNumbers n(DType::float32, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), y = moved(n.dy);
  const std::int64_t of_operands = emulated::num_allocated_bytes() - before;
  ReferenceOps().matmul({.a = n.x, .b = n.w, .c = n.dy, .transpose_b = true});
  ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  expect_near(read(y), n.dy, tolerance_of(DType::float32), "y");
  EXPECT_NE(emulated::products().last_algorithm, 0);

  emulated::products().refused_algorithms = 3;
  ops_->matmul({.a = y, .b = w, .c = x});
  EXPECT_THROW(ops_->publish(), Failure) << "none of them runs";
  ops_->finish();
  EXPECT_EQ(emulated::num_allocated_bytes() - before, of_operands) << "what was taken for measuring is given back";
}

// A receive from a rank that has not sent yet; whoever waited for the whole device would wait for that rank.
TEST_F(CudaProducts, MeasuringWaitsForNoOtherStream) {
  open({.deterministic = false});
  LinearNumbers n(DType::float32, DType::float32);
  const Tensor x = moved(n.x), w = moved(n.w), y = moved(n.dy);
  bool has_come = false;
  ASSERT_EQ(emulated::enqueue_when(device_.communication().get(),
                                   [&] { return emulated::DueWork{.is_due = [&] { return has_come; }}; }),
            cudaSuccess);
  ReferenceOps().matmul({.a = n.x, .b = n.w, .c = n.dy, .transpose_b = true});
  ops_->matmul({.a = x, .b = w, .c = y, .transpose_b = true});
  ops_->finish();
  EXPECT_FALSE(device_.communication().is_idle());
  EXPECT_EQ(emulated::products().num_products, 3 * 4 + 1) << "each of three is run and then timed three times";
  has_come = true;
  device_.communication().synchronize();
  expect_near(read(y), n.dy, tolerance_of(DType::float32), "y");
}

TEST_F(CudaProducts, NoBytesAreNoMemory) {
  const std::int64_t before = emulated::num_allocated_bytes();
  std::byte* const none = device_.memory().allocate(0);
  EXPECT_EQ(none, nullptr);
  device_.memory().release(none, 0);
  EXPECT_EQ(emulated::num_allocated_bytes(), before);
}

}  // namespace
}  // namespace echelon
