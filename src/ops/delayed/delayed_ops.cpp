#include "ops/delayed/delayed_ops.h"

#include "ops/check.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace echelon {
namespace {

bool overlap(const Tensor& x, const Tensor& y) {
  const std::less<> before;
  return x.num_bytes() > 0 && y.num_bytes() > 0 && before(x.data, y.data + y.num_bytes()) && before(y.data, x.data + x.num_bytes());
}

// All bits set is a NaN in every float format, and -1 in int32.
void poison(const Tensor& x) {
  if (x.num_bytes() > 0) std::memset(x.data, 0xff, static_cast<std::size_t>(x.num_bytes()));
}

}  // namespace

DelayedOps::DelayedOps(std::unique_ptr<Ops> inner, unsigned seed) : inner_(std::move(inner)), random_(seed), worker_([this] { work(); }) {}

DelayedOps::~DelayedOps() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

bool DelayedOps::may_start() const { return !queue_.empty() && (is_publishing_ || queue_.size() > num_held_); }

bool DelayedOps::is_touched(const Tensor& tensor) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Operation& operation) {
    return std::any_of(operation.touches.begin(), operation.touches.end(), [&](const Tensor& other) { return overlap(tensor, other); });
  });
}

void DelayedOps::enqueue(const Tensors& tensors, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  Operation operation{.run = std::move(run), .touches = tensors.reads, .poison_first = {}};
  operation.touches.insert(operation.touches.end(), tensors.overwrites.begin(), tensors.overwrites.end());
  for (const Tensor& output : tensors.overwrites) {
    const bool is_read = std::any_of(tensors.reads.begin(), tensors.reads.end(), [&](const Tensor& input) { return overlap(output, input); });
    if (is_read) continue;
    if (is_touched(output)) {
      operation.poison_first.push_back(output);
    } else {
      poison(output);
    }
  }
  queue_.push_back(std::move(operation));
  num_held_ = 1 + random_() % 8;
  changed_.notify_all();
}

void DelayedOps::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || may_start(); });
    if (is_ending_) return;
    const Operation& operation = queue_.front();  // stays in place while newer ones are pushed behind it
    lock.unlock();
    std::exception_ptr failure;
    try {
      for (const Tensor& output : operation.poison_first) poison(output);
      operation.run();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    queue_.pop_front();
    changed_.notify_all();
  }
}

void DelayedOps::publish() {
  std::unique_lock lock(mutex_);
  is_publishing_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return queue_.empty(); });
  is_publishing_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  inner_->publish();
}

void DelayedOps::upload(Tensor out, const void* host) {
  publish();
  inner_->upload(out, host);
}

void DelayedOps::download(void* host, Tensor x) {
  publish();
  inner_->download(host, x);
}

void DelayedOps::matmul(const MatmulArgs& args) {
  check(args);
  Tensors tensors{.reads = {args.a, args.b}, .overwrites = {}};
  (args.accumulates ? tensors.reads : tensors.overwrites).push_back(args.c);
  enqueue(tensors, [=, this] { inner_->matmul(args); });
}

void DelayedOps::embedding(const EmbeddingArgs& args) {
  check(args);
  enqueue({.reads = {args.tokens, args.w}, .overwrites = {args.y}}, [=, this] { inner_->embedding(args); });
}

void DelayedOps::embedding_backward(const EmbeddingBackwardArgs& args) {
  check(args);
  enqueue({.reads = {args.tokens, args.dy, args.dw}, .overwrites = {}}, [=, this] { inner_->embedding_backward(args); });
}

void DelayedOps::add_positions(const PositionsArgs& args) {
  check(args);
  enqueue({.reads = {args.w, args.y}, .overwrites = {}}, [=, this] { inner_->add_positions(args); });
}

void DelayedOps::positions_backward(const PositionsBackwardArgs& args) {
  check(args);
  enqueue({.reads = {args.dy, args.dw}, .overwrites = {}}, [=, this] { inner_->positions_backward(args); });
}

void DelayedOps::layer_norm(const LayerNormArgs& args) {
  check(args);
  enqueue({.reads = {args.x, args.w, args.b}, .overwrites = {args.y, args.mean, args.rstd}}, [=, this] { inner_->layer_norm(args); });
}

void DelayedOps::layer_norm_backward_input(const LayerNormBackwardInputArgs& args) {
  check(args);
  enqueue({.reads = {args.dy, args.x, args.w, args.mean, args.rstd}, .overwrites = {args.dx}}, [=, this] { inner_->layer_norm_backward_input(args); });
}

void DelayedOps::layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) {
  check(args);
  enqueue({.reads = {args.dy, args.x, args.mean, args.rstd, args.dw, args.db}, .overwrites = {}}, [=, this] { inner_->layer_norm_backward_weight(args); });
}

void DelayedOps::rms_norm(const RmsNormArgs& args) {
  check(args);
  enqueue({.reads = {args.x, args.w}, .overwrites = {args.y, args.rstd}}, [=, this] { inner_->rms_norm(args); });
}

void DelayedOps::rms_norm_backward_input(const RmsNormBackwardInputArgs& args) {
  check(args);
  enqueue({.reads = {args.dy, args.x, args.w, args.rstd}, .overwrites = {args.dx}}, [=, this] { inner_->rms_norm_backward_input(args); });
}

void DelayedOps::rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) {
  check(args);
  enqueue({.reads = {args.dy, args.x, args.rstd, args.dw}, .overwrites = {}}, [=, this] { inner_->rms_norm_backward_weight(args); });
}

void DelayedOps::rope(const RopeArgs& args) {
  check(args);
  enqueue({.reads = {args.x, args.cos, args.sin}, .overwrites = {args.y}}, [=, this] { inner_->rope(args); });
}

void DelayedOps::attention(const AttentionArgs& args) {
  check(args);
  enqueue({.reads = {args.q, args.k, args.v}, .overwrites = {args.out, args.lse}}, [=, this] { inner_->attention(args); });
}

void DelayedOps::attention_backward(const AttentionBackwardArgs& args) {
  check(args);
  enqueue({.reads = {args.q, args.k, args.v, args.out, args.lse, args.dout}, .overwrites = {args.dq, args.dk, args.dv, args.delta}},
          [=, this] { inner_->attention_backward(args); });
}

void DelayedOps::row_max(const RowMaxArgs& args) {
  check(args);
  enqueue({.reads = {args.logits}, .overwrites = {args.max}}, [=, this] { inner_->row_max(args); });
}

void DelayedOps::row_sum_exp(const RowSumExpArgs& args) {
  check(args);
  enqueue({.reads = {args.logits, args.max, args.targets}, .overwrites = {args.sum, args.target_logit}}, [=, this] { inner_->row_sum_exp(args); });
}

void DelayedOps::cross_entropy(const CrossEntropyArgs& args) {
  check(args);
  enqueue({.reads = {args.max, args.sum, args.target_logit, args.targets, args.loss_sum}, .overwrites = {args.lse}},
          [=, this] { inner_->cross_entropy(args); });
}

void DelayedOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  check(args);
  enqueue({.reads = {args.logits, args.lse, args.targets}, .overwrites = {}}, [=, this] { inner_->cross_entropy_backward(args); });
}

void DelayedOps::adamw(const AdamWArgs& args) {
  check(args);
  enqueue({.reads = {args.master, args.grad, args.m, args.v}, .overwrites = {args.param}}, [=, this] { inner_->adamw(args); });
}

void DelayedOps::add_bias(Tensor y, Tensor bias) {
  check_add_bias(y, bias);
  enqueue({.reads = {y, bias}, .overwrites = {}}, [=, this] { inner_->add_bias(y, bias); });
}

void DelayedOps::bias_backward(Tensor dy, Tensor dbias) {
  check_bias_backward(dy, dbias);
  enqueue({.reads = {dy, dbias}, .overwrites = {}}, [=, this] { inner_->bias_backward(dy, dbias); });
}

void DelayedOps::add(Tensor out, Tensor a, Tensor b) {
  check_add(out, a, b);
  enqueue({.reads = {a, b}, .overwrites = {out}}, [=, this] { inner_->add(out, a, b); });
}

void DelayedOps::copy(Tensor out, Tensor x) {
  check_copy(out, x);
  enqueue({.reads = {x}, .overwrites = {out}}, [=, this] { inner_->copy(out, x); });
}

void DelayedOps::fill(Tensor out, double value) {
  check_fill(out);
  enqueue({.reads = {}, .overwrites = {out}}, [=, this] { inner_->fill(out, value); });
}

void DelayedOps::scale(Tensor x, double factor) {
  check_scale(x);
  enqueue({.reads = {x}, .overwrites = {}}, [=, this] { inner_->scale(x, factor); });
}

void DelayedOps::gelu(Tensor y, Tensor x) {
  check_gelu(y, x);
  enqueue({.reads = {x}, .overwrites = {y}}, [=, this] { inner_->gelu(y, x); });
}

void DelayedOps::gelu_backward(Tensor dx, Tensor dy, Tensor x) {
  check_gelu_backward(dx, dy, x);
  enqueue({.reads = {dy, x}, .overwrites = {dx}}, [=, this] { inner_->gelu_backward(dx, dy, x); });
}

void DelayedOps::swiglu(Tensor y, Tensor gate, Tensor up) {
  check_swiglu(y, gate, up);
  enqueue({.reads = {gate, up}, .overwrites = {y}}, [=, this] { inner_->swiglu(y, gate, up); });
}

void DelayedOps::swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
  check_swiglu_backward(dgate, dup, dy, gate, up);
  enqueue({.reads = {dy, gate, up}, .overwrites = {dgate, dup}}, [=, this] { inner_->swiglu_backward(dgate, dup, dy, gate, up); });
}

void DelayedOps::sum_of_squares(Tensor x, Tensor sum) {
  check_sum_of_squares(x, sum);
  enqueue({.reads = {x, sum}, .overwrites = {}}, [=, this] { inner_->sum_of_squares(x, sum); });
}

}  // namespace echelon
