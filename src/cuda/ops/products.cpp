#include "cuda/ops/products.h"

#include "base/error.h"
#include "cuda/device/stream_memory.h"
#include "cuda/ops/float8.h"
#include "cuda/ops/stopwatch.h"

#include <algorithm>
#include <limits>

namespace echelon::cuda {

Products::Products(Device& device, const Workspace& workspace, const ProductOptions& options)
    : device_(device), workspace_(workspace), options_(options) {
  check(cublasLtCreate(&handle_), "cuBLASLt");
}

Products::~Products() {
  plans_.clear();
  cublasLtDestroy(handle_);
}

bool Products::is_one(const MatmulArgs& args) { return args.c.num_elements() > 0 && args.a.num_elements() > 0; }

Tensor Products::sums_of(const ProductCall& call) const {
  const Tensor& c = call.args.c;
  const Tensor sums(nullptr, c.dtype, {call.count, c.size(0)});
  const bool has_room = sums.num_bytes() <= Workspace::most_bytes - ProductPlan::workspace_bytes;
  return {has_room ? workspace_.as<std::byte>(sums.num_bytes(), ProductPlan::workspace_bytes) : nullptr, sums.dtype,
          sums.sizes};
}

ProductPlan::Where Products::where_of(const ProductCall& call) const {
  const MatmulArgs& args = call.args;
  ProductPlan::Where where = {
      .a = args.a.data,
      .b = args.b.data,
      .addend = call.addend.exists() ? call.addend.data : args.c.data,
      .c = args.c.data,
      .vector = call.epilogue == Epilogue::bias_gradient ? sums_of(call).data : call.vector.data,
      .adds = args.accumulates || call.addend.exists()};
  if (args.is_float8()) {
    const Float8Values a = float8_values(args.a, args.a_rounded, args.a_order()),
                       b = float8_values(args.b, args.b_rounded, args.b_order());
    where.a = a.values;
    where.b = b.values;
    where.back_a = a.back;
    where.back_b = b.back;
  }
  return where;
}

bool Products::has_algorithm(const ProductCall& call) {
  const ProductPlan::Where where = where_of(call);
  const bool has_room = call.epilogue != Epilogue::bias_gradient || where.vector != nullptr;
  return has_room && plan_of(key_of(call, where), where) != nullptr;
}

void Products::enqueue(const ProductCall& call) {
  const MatmulArgs& args = call.args;
  const ProductPlan::Where where = where_of(call);
  const ProductPlan* const plan = plan_of(key_of(call, where), where);
  if (plan == nullptr)
    throw Failure(fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {} in {}", args.c.size(0),
                              args.c.size(1), args.a.size(args.transpose_a ? 0 : 1),
                              args.is_float8() ? "float8" : name_of(args.a.dtype)));
  plan->enqueue(handle_, where, workspace_, device_.compute_with_room().get());
}

void Products::round(const std::vector<OperandRounding>& roundings) {
  if (roundings.empty()) return;
  round_operands(roundings, {device_.compute_with_room().get(), device_.num_multiprocessors(), workspace_});
}

void Products::enqueue_empty(const MatmulArgs& args) {
  if (args.c.num_elements() == 0 || args.accumulates) return;
  check(
      cudaMemsetAsync(args.c.data, 0, static_cast<std::size_t>(args.c.num_bytes()), device_.compute_with_room().get()),
      "zeros");
}

const ProductPlan* Products::plan_of(const ProductKey& key, const ProductPlan::Where& where) {
  const auto [found, is_new] = plans_.try_emplace(key);
  std::optional<ProductPlan>& plan = found->second;
  if (is_new) {
    plan.emplace(key, options_.float32_products);
    constexpr int most_timed = 8;
    const std::vector<cublasLtMatmulAlgo_t> candidates =
        plan->candidates(handle_, where, options_.is_timed ? most_timed : 1);
    if (candidates.empty())
      plan.reset();
    else
      plan->choose(candidates.size() == 1 ? candidates.front() : fastest(*plan, key, where, candidates));
  }
  return plan ? &*plan : nullptr;
}

// The result is written to temporary memory, since the matmul may add to its own result.
cublasLtMatmulAlgo_t Products::fastest(ProductPlan& plan, const ProductKey& key, ProductPlan::Where where,
                                       const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  constexpr std::size_t room_for_vector = 16;
  Stream& stream = device_.compute();
  if (stream.is_captured()) return candidates.front();
  const auto result_bytes = static_cast<std::size_t>((key.count - 1) * key.steps[2] * size_of(key.result) +
                                                     key.M * key.N * size_of(key.result));
  const auto vector_bytes = static_cast<std::size_t>(key.count * std::max(key.M, key.N) * size_of(key.result));
  const StreamMemory scratch(stream, result_bytes + room_for_vector + vector_bytes);
  if (scratch.data() == nullptr) return candidates.front();
  where.c = scratch.data();
  where.addend = where.c;
  if (key.epilogue == Epilogue::bias_gradient)
    where.vector = where.c + (result_bytes + room_for_vector) / room_for_vector * room_for_vector;
  where.adds = false;
  Stopwatch stopwatch;
  std::size_t best = 0;
  float best_milliseconds = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    plan.choose(candidates[i]);
    if (const float milliseconds = milliseconds_of(plan, where, stopwatch); milliseconds < best_milliseconds) {
      best = i;
      best_milliseconds = milliseconds;
    }
  }
  return candidates[best];
}

float Products::milliseconds_of(const ProductPlan& plan, const ProductPlan::Where& where, Stopwatch& stopwatch) const {
  constexpr int num_runs = 3;
  Stream& stream = device_.compute();
  float best = std::numeric_limits<float>::infinity();
  // The first run loads its code.
  if (plan.try_to_enqueue(handle_, where, workspace_, stream.get()) != CUBLAS_STATUS_SUCCESS) return best;
  for (int i = 0; i < num_runs; ++i)
    best = std::min(
        best, stopwatch.milliseconds_of(device_, [&] { plan.enqueue(handle_, where, workspace_, stream.get()); }));
  return best;
}

}  // namespace echelon::cuda
