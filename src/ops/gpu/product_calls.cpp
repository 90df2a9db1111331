#include "ops/gpu/product_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace echelon::cuda {
namespace {

bool is_same(const Tensor& a, const Tensor& b) { return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes; }
bool is_like(const Tensor& a, const Tensor& b) { return a.dtype == b.dtype && a.sizes == b.sizes; }

/// Whether one may be computed before, after or during the other.
bool are_independent(const MatmulArgs& x, const MatmulArgs& y) {
  const auto writes_into = [](const MatmulArgs& from, const MatmulArgs& to) {
    return overlap(from.c, to.a) || overlap(from.c, to.b) || overlap(from.c, to.c);
  };
  return !writes_into(x, y) && !writes_into(y, x);
}

/// Float8 has scales of its own for each matmul.
bool may_be_a_batch(const MatmulArgs& x, const MatmulArgs& y) {
  return is_like(x.a, y.a) && is_like(x.b, y.b) && is_like(x.c, y.c) && x.transpose_a == y.transpose_a &&
         x.transpose_b == y.transpose_b && x.accumulates == y.accumulates && !x.is_float8() && !y.is_float8();
}

/// Whether what `next` rounds may be rounded together with what `call` does, before it.
bool may_be_rounded_before(const ProductCall& call, const MatmulArgs& next) {
  const MatmulArgs& args = call.args;
  if (!args.is_float8() || !next.is_float8() || args.a.dtype != next.a.dtype) return false;
  const std::vector<OperandRounding> earlier = roundings_of(args), later = roundings_of(next);
  return std::none_of(later.begin(), later.end(), [&](const OperandRounding& rounding) {
    const Tensor &memory = rounding.to.memory, amax = rounding.x.place_of_amax(),
                 found = rounding.to.finds_amax ? amax : Tensor();
    const auto meets = [&](const Tensor& x) { return x.exists() && (overlap(memory, x) || overlap(found, x)); };
    return overlap(rounding.x, args.c) || meets(args.a) || meets(args.b) || meets(args.c) || meets(call.vector) ||
           meets(call.addend) || meets(args.a_rounded.memory) || meets(args.b_rounded.memory) ||
           meets(args.a.place_of_amax()) || meets(args.b.place_of_amax()) || overlap(amax, args.c) ||
           std::any_of(earlier.begin(), earlier.end(), [&](const OperandRounding& other) {
             return overlap(other.to.memory, rounding.x) || overlap(other.to.memory, amax);
           });
  });
}

/// `batch` with `next`, a single call; nothing if its operands do not continue the distances.
std::optional<ProductCall> joined(const ProductCall& batch, const ProductCall& next) {
  if (!may_be_a_batch(batch.args, next.args) || batch.epilogue != next.epilogue) return std::nullopt;
  if (batch.addend.exists() || next.addend.exists()) return std::nullopt;
  ProductCall call = batch;
  const auto continues = [&](const Tensor& first, const Tensor& then, std::int64_t& step) {
    const std::int64_t distance = then.data - first.data;
    if (batch.count == 1) step = distance;
    return distance >= 0 && distance == batch.count * step && distance % size_of(first.dtype) == 0;
  };
  if (!continues(batch.args.a, next.args.a, call.steps[0]) || !continues(batch.args.b, next.args.b, call.steps[1]) ||
      !continues(batch.args.c, next.args.c, call.steps[2]))
    return std::nullopt;
  if (batch.epilogue == Epilogue::bias && !continues(batch.vector, next.vector, call.vector_step)) return std::nullopt;
  call.dbias.insert(call.dbias.end(), next.dbias.begin(), next.dbias.end());
  ++call.count;
  return call;
}

}  // namespace

std::vector<OperandRounding> roundings_of(const MatmulArgs& args) {
  std::vector<OperandRounding> roundings;
  if (!args.is_float8()) return roundings;
  const auto add = [&](const Tensor& x, OperandFormat format, const RoundedOperand& to) {
    if (!to.is_made && x.num_elements() > 0) roundings.push_back({x, format, to});
  };
  add(args.a, args.a_format, args.a_rounded);
  add(args.b, args.b_format, args.b_rounded);
  return roundings;
}

std::vector<OperandRounding> roundings_of(const std::vector<ProductCall>& calls) {
  std::vector<OperandRounding> roundings;
  for (const ProductCall& call : calls)
    for (const OperandRounding& rounding : roundings_of(call.args)) roundings.push_back(rounding);
  return roundings;
}

bool ProductCalls::may_join(const MatmulArgs& args) const {
  return waiting_.size() < most_waiting && std::all_of(waiting_.begin(), waiting_.end(), [&](const ProductCall& call) {
           if (args.is_float8()) return may_be_rounded_before(call, args);
           return !call.addend.exists() && may_be_a_batch(call.args, args) && are_independent(call.args, args) &&
                  std::none_of(call.dbias.begin(), call.dbias.end(), [&](const Tensor& dbias) {
                    return overlap(dbias, args.a) || overlap(dbias, args.b) || overlap(dbias, args.c);
                  });
         });
}

bool ProductCalls::is_written(const Tensor& x) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const ProductCall& call) { return overlap(call.args.c, x); });
}

bool ProductCalls::add_bias(const Tensor& y, const Tensor& bias) {
  if (waiting_.empty() || waiting_.back().epilogue != Epilogue::none) return false;
  ProductCall call = waiting_.back();
  // After float8 matmuls with a float32 result the library's biases are bfloat16.
  const bool is_possible = is_same(call.args.c, y) && bias.dtype == y.dtype && !call.addend.exists() &&
                           !is_written(bias) && !(call.args.is_float8() && y.dtype == DType::float32);
  call.epilogue = Epilogue::bias;
  call.vector = bias;
  if (!is_possible || !has_algorithm_(call)) return false;
  waiting_.back() = std::move(call);
  return true;
}

bool ProductCalls::column_sums(const Tensor& dy, const Tensor& dbias) {
  if (waiting_.empty() || waiting_.back().epilogue != Epilogue::none) return false;
  ProductCall call = waiting_.back();
  // A product of float8 has no dy but one that is rounded.
  const bool is_possible = call.args.transpose_a && is_same(call.args.a, dy) && dbias.dtype == call.args.c.dtype &&
                           !call.addend.exists() && !call.args.is_float8();
  call.epilogue = Epilogue::bias_gradient;
  call.dbias = {dbias};
  if (!is_possible || !has_algorithm_(call)) return false;
  waiting_.back() = std::move(call);
  return true;
}

bool ProductCalls::add(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (waiting_.empty()) return false;
  ProductCall& call = waiting_.back();
  const Tensor &c = call.args.c, &addend = is_same(a, c) ? b : a;
  const bool is_possible = is_same(out, c) && (is_same(a, c) || is_same(b, c)) && is_like(addend, c) &&
                           !is_written(addend) && !call.args.accumulates && call.epilogue != Epilogue::bias_gradient &&
                           !call.addend.exists();
  if (is_possible) call.addend = addend;
  return is_possible;
}

std::vector<ProductCall> ProductCalls::take() {
  std::vector<ProductCall> calls;
  for (ProductCall& next : waiting_) {
    std::optional<ProductCall> batch = calls.empty() ? std::nullopt : joined(calls.back(), next);
    if (batch && has_algorithm_(*batch))
      calls.back() = *std::move(batch);
    else
      calls.push_back(std::move(next));
  }
  waiting_.clear();
  return calls;
}

}  // namespace echelon::cuda
