#include "verify/pieces.h"

#include <algorithm>
#include <cmath>
#include <mutex>

namespace echelon {
namespace {

RankPiece piece_of(const ParamPiece& piece, int rank, Ops& ops) {
  RankPiece taken = {.rank = rank};
  const std::vector<double> values = downloaded(ops, piece.numbers);
  piece.slice.for_each_run([&](const Run& run) {
    for (std::int64_t i = 0; i < run.count; ++i) taken.indices.push_back(run.global + i);
    const auto first = values.begin() + run.local;
    taken.values.insert(taken.values.end(), first, first + run.count);
  });
  return taken;
}

/// Shared by all ranks.
struct Taken {
  std::string tensor;
  Quantity quantity{};
  std::int64_t step = 0;
  std::mutex mutex;
  TensorPieces pieces;
  std::vector<double> factors;  // of local gradients, by rank

  void add(std::vector<RankPiece>& list, RankPiece piece) {
    const std::lock_guard lock(mutex);
    list.push_back(std::move(piece));
  }
};

// The rank's gradient is complete after the backward passes: at the first action that sums it, or at clipping.
class LocalGradient final : public RankInterposer, public StepObserver {
 public:
  LocalGradient(Taken& taken, Ops& ops, Mesh& mesh, const Interpose& interpose)
      : taken_(taken), plain_ops_(ops), plain_mesh_(mesh), inner_(interpose ? interpose(ops, mesh) : nullptr) {}

  [[nodiscard]] Ops& ops() override { return inner_ ? inner_->ops() : plain_ops_; }
  [[nodiscard]] Mesh& mesh() override { return inner_ ? inner_->mesh() : plain_mesh_; }
  void attach(RankRun& run) override {
    run_ = &run;
    if (inner_) inner_->attach(run);
  }
  [[nodiscard]] StepObserver* observer() override { return this; }

  void begins(const Action& action, ActionPart part) override {
    if (part == ActionPart::perform) take_before(action);
    if (inner_ && inner_->observer()) inner_->observer()->begins(action, part);
  }
  void ends() override {
    if (inner_ && inner_->observer()) inner_->observer()->ends();
  }

 private:
  void take_before(const Action& action) {
    if (action.kind == ActionKind::load_batch) {
      ++step_;
      is_taken_ = false;
    }
    const bool sums = action.kind == ActionKind::sum_replicas || action.kind == ActionKind::reduce_gradients ||
                      action.kind == ActionKind::sum_tied;
    if (step_ != taken_.step || is_taken_ || (!sums && action.kind != ActionKind::clip)) return;
    visit_local_gradients(run_->model(), action, [&](const ParamPiece& piece) {
      if (piece.param.name != taken_.tensor) return;
      taken_.add(taken_.pieces.local, piece_of(piece, plain_mesh_.rank(), plain_ops_));
      is_taken_ = true;
    });
  }

  Taken& taken_;
  Ops& plain_ops_;
  Mesh& plain_mesh_;
  std::unique_ptr<RankInterposer> inner_;
  RankRun* run_ = nullptr;
  std::int64_t step_ = 0;
  bool is_taken_ = false;
};

class Taker final : public RunObserver {
 public:
  explicit Taker(Taken& taken) : taken_(taken) {}
  void starts(const RankView& rank) override {
    if (taken_.step == 0) take_value(rank);
  }
  void has_gradients(const RankView& rank, std::int64_t step, double factor) override {
    if (step != taken_.step) return;
    taken_.factors[static_cast<std::size_t>(rank.mesh.rank())] = factor;
    if (taken_.quantity != Quantity::gradient) return;
    visit_gradients(rank.run.model(), [&](const ParamPiece& piece) { take(piece, rank, factor); });
  }
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& /*result*/) override {
    if (step == taken_.step && taken_.quantity == Quantity::weight) take_value(rank);
  }

 private:
  void take_value(const RankView& rank) {
    visit_values(rank.run.model(), [&](const ParamPiece& piece) { take(piece, rank, 1.0); });
  }
  void take(const ParamPiece& piece, const RankView& rank, double factor) {
    if (piece.param.name != taken_.tensor) return;
    RankPiece taken = piece_of(piece, rank.mesh.rank(), rank.ops);
    for (double& number : taken.values) number *= factor;
    taken_.add(taken_.pieces.pieces, std::move(taken));
  }

  Taken& taken_;
};

}  // namespace

std::int64_t shift_of(const RankPiece& piece, const std::vector<std::size_t>& places, const Values& expected,
                      double tolerance) {
  const auto size = static_cast<std::int64_t>(expected.size());
  const auto is_moved_by = [&](std::int64_t shift) {
    std::size_t num_inside = 0, num_other = 0;
    for (const std::size_t place : places) {
      const std::int64_t from = piece.indices[place] + shift;
      if (from < 0 || from >= size) continue;
      if (!(std::abs(expected[static_cast<std::size_t>(from)] - piece.values[place]) <= tolerance) &&
          10 * ++num_other > places.size())
        return false;
      ++num_inside;
    }
    return 2 * num_inside > places.size() && num_inside > 1 + num_other;
  };
  for (std::int64_t distance = 1; distance < size; ++distance)
    for (const std::int64_t shift : {distance, -distance})
      if (is_moved_by(shift)) return shift;
  return 0;
}

TensorPieces pieces_of(const Case& at, const std::string& tensor, Quantity quantity, std::int64_t step) {
  Taken taken = {.tensor = tensor, .quantity = quantity, .step = step, .mutex = {}, .pieces = {}, .factors = {}};
  taken.factors.resize(static_cast<std::size_t>(at.mesh().num_ranks()));
  Taker taker(taken);
  const Interpose interpose = [&](Ops& ops, Mesh& mesh) {
    return std::make_unique<LocalGradient>(taken, ops, mesh, at.interpose);
  };
  run_layout({.blueprint = at.blueprint, .batches = at.batches, .num_steps = step, .interpose = interpose}, taker);
  for (RankPiece& piece : taken.pieces.local)
    for (double& number : piece.values) number *= taken.factors[static_cast<std::size_t>(piece.rank)];
  for (auto* list : {&taken.pieces.pieces, &taken.pieces.local}) std::ranges::stable_sort(*list, {}, &RankPiece::rank);
  return std::move(taken.pieces);
}

}  // namespace echelon
