#include "cuda/ops/pending_product.h"

#include <utility>

namespace echelon::cuda {

PendingProduct::PendingProduct(Products& products, AddSums add_sums)
    : products_(products),
      add_sums_(std::move(add_sums)),
      calls_([&products](const ProductCall& call) { return products.has_algorithm(call); }) {}

void PendingProduct::hold(const MatmulArgs& args) {
  if (!Products::is_one(args)) {
    flush();
    products_.round(roundings_of(args));
    return products_.enqueue_empty(args);
  }
  if (!calls_.may_join(args)) flush();
  calls_.hold(args);
}

void PendingProduct::flush() {
  const std::vector<ProductCall> calls = calls_.take();
  products_.round(roundings_of(calls));
  for (const ProductCall& call : calls) {
    products_.enqueue(call);
    if (!call.dbias.empty()) add_sums_(call.dbias, products_.sums_of(call));
  }
}

bool PendingProduct::add_bias(const Tensor& y, const Tensor& bias) { return counted(calls_.add_bias(y, bias)); }

bool PendingProduct::column_sums(const Tensor& dy, const Tensor& dbias) {
  return counted(calls_.column_sums(dy, dbias));
}

bool PendingProduct::add(const Tensor& out, const Tensor& a, const Tensor& b) { return counted(calls_.add(out, a, b)); }

bool PendingProduct::counted(bool is_fused) {
  if (is_fused) ++num_fused_;
  return is_fused;
}

}  // namespace echelon::cuda
