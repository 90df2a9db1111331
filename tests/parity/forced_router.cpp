#include "parity/forced_router.h"

#include "ops/forwarding_ops.h"

#include <utility>

namespace echelon::testing {
namespace {

class ForcedRank final : public RankInterposer, public ForwardingOps {
 public:
  ForcedRank(Ops& inner, Mesh& mesh, std::vector<Choice> choices, std::int64_t seq_len)
      : ForwardingOps(inner), mesh_(mesh), choices_(std::move(choices)), seq_len_(seq_len) {}
  [[nodiscard]] Ops& ops() override { return *this; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

  void perform(const Operation& operation) override {
    inner().perform(operation);
    const auto* const args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || args->logits.size(1) == 1) return;  // a gate of a shared expert is a router of one
    inner().publish();
    const Choice& choice = choices_[num_calls_++ % choices_.size()];
    const std::int64_t k = args->experts.size(1);
    auto* const experts = args->experts.as<std::int32_t>();
    for (std::int64_t i = 0; i < args->experts.num_elements(); ++i)
      if (experts[i] >= 0) experts[i] = choice(i / k % seq_len_, i % k);
  }

 private:
  Mesh& mesh_;
  std::vector<Choice> choices_;  // of the layers, which choose in turn
  std::size_t num_calls_ = 0;
  std::int64_t seq_len_;
};

}  // namespace

Interpose forced(const Choice& choice, std::int64_t seq_len) { return forced_by_layer({choice}, seq_len); }

Interpose forced_by_layer(const std::vector<Choice>& choices, std::int64_t seq_len) {
  return [choices, seq_len](Ops& ops, Mesh& mesh) { return std::make_unique<ForcedRank>(ops, mesh, choices, seq_len); };
}

}  // namespace echelon::testing
