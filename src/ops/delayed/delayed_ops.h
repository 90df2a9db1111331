// A backend for tests that is as asynchronous as a GPU: operations run late, on a thread of their own, and what they will overwrite is poisoned until then.
// Code that reads a result, or hands it to a Comm, without publish() meets NaN.
#pragma once

#include "ops/ops.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace echelon {

/// Runs the operations of `inner` in order. The newest ones, up to eight of them as the seed has it, never start before publish(), download() or upload(),
/// which wait for all. Errors of an operation are thrown by the next call. What was not published when it is destroyed is never computed.
class DelayedOps : public Ops {
 public:
  DelayedOps(std::unique_ptr<Ops> inner, unsigned seed);
  ~DelayedOps() override;

  void matmul(const MatmulArgs& args) override;
  void add_bias(Tensor y_ND, Tensor bias_D) override;
  void bias_backward(Tensor dy_ND, Tensor dbias_D) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void copy(Tensor out, Tensor x) override;
  void fill(Tensor out, double value) override;
  void scale(Tensor x, double factor) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void add_positions(const PositionsArgs& args) override;
  void positions_backward(const PositionsBackwardArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void layer_norm_backward_input(const LayerNormBackwardInputArgs& args) override;
  void layer_norm_backward_weight(const LayerNormBackwardWeightArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward_input(const RmsNormBackwardInputArgs& args) override;
  void rms_norm_backward_weight(const RmsNormBackwardWeightArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void gelu(Tensor y, Tensor x) override;
  void gelu_backward(Tensor dx, Tensor dy, Tensor x) override;
  void swiglu(Tensor y, Tensor gate, Tensor up) override;
  void swiglu_backward(Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) override;
  void row_max(const RowMaxArgs& args) override;
  void row_sum_exp(const RowSumExpArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_backward(const CrossEntropyBackwardArgs& args) override;
  void sum_of_squares(Tensor x, Tensor sum) override;
  void adamw(const AdamWArgs& args) override;
  void upload(Tensor out, const void* host) override;
  void download(void* host, Tensor x) override;
  void publish() override;

 private:
  struct Operation {
    std::function<void()> run;
    std::vector<Tensor> touches;       // all its tensors
    std::vector<Tensor> poison_first;  // outputs that an older operation still needed when this one was enqueued
  };
  struct Tensors {
    std::vector<Tensor> reads;       // also what is added to or changed in place
    std::vector<Tensor> overwrites;  // poisoned, unless it is read too
  };
  void enqueue(const Tensors& tensors, std::function<void()> run);
  void work();
  [[nodiscard]] bool may_start() const;
  [[nodiscard]] bool is_touched(const Tensor& tensor) const;

  std::unique_ptr<Ops> inner_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> queue_;  // the front one may be running
  std::size_t num_held_ = 1;     // of the newest, that wait for publish()
  bool is_publishing_ = false;
  bool is_ending_ = false;
  std::exception_ptr failure_;
  std::thread worker_;  // last: it uses the others
};

}  // namespace echelon
