// Routers that choose what a test says, so that loads are as uneven as it wants.
#pragma once

#include "parity/training_run.h"

#include <functional>
#include <memory>
#include <utility>

namespace echelon::testing {

/// The expert of token n of a sequence at its j-th place.
using Choice = std::function<std::int32_t(std::int64_t n, std::int64_t j)>;

/// Chooses for the router, which gives the experts the weights of those that it chose.
class ForcedOps : public Ops {
 public:
  ForcedOps(Ops& inner, Choice choice, std::int64_t seq_len)
      : inner_(inner), choice_(std::move(choice)), seq_len_(seq_len) {}

  void perform(const Operation& operation) override {
    inner_.perform(operation);
    const auto* const args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr) return;
    inner_.publish();
    const std::int64_t k = args->experts.size(1);
    for (std::int64_t i = 0; i < args->experts.num_elements(); ++i)
      args->experts.as<std::int32_t>()[i] = choice_(i / k % seq_len_, i % k);
  }
  void upload(Tensor out, const void* host) override { inner_.upload(out, host); }
  void download(void* host, Tensor x) override { inner_.download(host, x); }
  void publish() override { inner_.publish(); }

 private:
  Ops& inner_;
  Choice choice_;
  std::int64_t seq_len_;
};

class ForcedRank : public RankInterposer {
 public:
  ForcedRank(Ops& ops, Mesh& mesh, Choice choice, std::int64_t seq_len)
      : ops_(ops, std::move(choice), seq_len), mesh_(mesh) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  ForcedOps ops_;
  Mesh& mesh_;
};

/// Of ranks with whole sequences of `seq_len` tokens.
[[nodiscard]] inline Interpose forced(const Choice& choice, std::int64_t seq_len) {
  return [=](Ops& ops, Mesh& mesh) { return std::make_unique<ForcedRank>(ops, mesh, choice, seq_len); };
}

}  // namespace echelon::testing
