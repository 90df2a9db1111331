// A rank whose routers are watched: which layer an operation is of, and which tokens its rows are.
#pragma once

#include "engine/layout_run.h"
#include "engine/param_pieces.h"
#include "verify/context/token_places.h"
#include "verify/router/choices.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// Which layer routes, and which tokens: it watches the steps of a rank.
class RoutedTokens {
 public:
  RoutedTokens(const RunConfig& config, const BatchSource& batches, Mesh& mesh)
      : config_(config), batches_(batches), mesh_(mesh) {}

  void attach(RankRun& run) { params_ = run.model().part().params(); }
  void begins(const Action& action, ActionPart part) {
    if (part != ActionPart::perform) return;
    action_ = action;
    if (action.kind == ActionKind::load_batch) places_.emplace(config_, batches_, ++step_);
  }
  void note(const MatmulArgs& args) {
    if (!args.transpose_b) return;
    for (const Param* param : params_)
      if (param->value.data == args.b.data && param->name.ends_with("mlp.gate.weight")) router_ = param->name;
  }
  [[nodiscard]] bool is_training() const { return places_ && action_.kind == ActionKind::forward; }
  [[nodiscard]] ChoicePlace place_of(std::int64_t token) const { return {step_, router_, token}; }
  /// Of `num_rows` rows; none on tensor-parallel ranks that route the same tokens as the first.
  [[nodiscard]] std::vector<std::int64_t> tokens(std::int64_t num_rows) const {
    std::vector<std::int64_t> all = places_->tokens_of(places_->place_of(mesh_.rank(), action_.microbatch));
    const int tp_rank = mesh_.coordinate(Axis::tp);
    if (num_rows == std::ssize(all)) return tp_rank == 0 ? all : std::vector<std::int64_t>();
    const auto first = all.begin() + tp_rank * num_rows;
    return {first, first + num_rows};
  }

 private:
  const RunConfig& config_;
  const BatchSource& batches_;
  Mesh& mesh_;
  std::vector<Param*> params_;
  std::int64_t step_ = 0;
  std::optional<TokenPlaces> places_;
  Action action_;
  std::string router_;
};

/// Wraps the backend of a rank; `Watch` sees its operations.
template <class Watch>
class WatchedRank final : public RankInterposer, public StepObserver {
 public:
  WatchedRank(RoutedTokens routed, Watch watch, Ops& ops, Mesh& mesh, const Interpose& inner)
      : routed_(std::move(routed)),
        ops_(*this, std::move(watch), ops),
        mesh_(mesh),
        inner_(inner ? inner(ops_, mesh) : nullptr) {}

  [[nodiscard]] Ops& ops() override { return inner_ ? inner_->ops() : ops_; }
  [[nodiscard]] Mesh& mesh() override { return inner_ ? inner_->mesh() : mesh_; }
  void attach(RankRun& run) override {
    routed_.attach(run);
    if (inner_) inner_->attach(run);
  }
  [[nodiscard]] StepObserver* observer() override { return this; }
  void begins(const Action& action, ActionPart part) override {
    routed_.begins(action, part);
    if (inner_ && inner_->observer()) inner_->observer()->begins(action, part);
  }
  void ends() override {
    if (inner_ && inner_->observer()) inner_->observer()->ends();
  }

 private:
  class WatchedOps final : public Ops {
   public:
    WatchedOps(WatchedRank& rank, Watch watch, Ops& inner) : rank_(rank), watch_(std::move(watch)), inner_(inner) {}
    void perform(const Operation& operation) override {
      inner_.perform(operation);
      if (const auto* matmul = operation.get_if<MatmulArgs>()) rank_.routed_.note(*matmul);
      if (rank_.routed_.is_training()) watch_(rank_.routed_, inner_, operation);
    }
    void upload(Tensor out, const void* host) override { inner_.upload(out, host); }
    void download(void* host, Tensor x) override { inner_.download(host, x); }
    [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return inner_.host_address(x); }
    void publish() override { inner_.publish(); }

   private:
    WatchedRank& rank_;
    Watch watch_;
    Ops& inner_;
  };

  RoutedTokens routed_;
  WatchedOps ops_;
  Mesh& mesh_;
  std::unique_ptr<RankInterposer> inner_;
};

template <class Watch>
std::unique_ptr<RankInterposer> watched(RoutedTokens routed, Watch watch, Ops& ops, Mesh& mesh,
                                        const Interpose& inner) {
  return std::make_unique<WatchedRank<Watch>>(std::move(routed), std::move(watch), ops, mesh, inner);
}

}  // namespace echelon
