#include "verify/router/expert_rows.h"

#include "spec/config/run_config.h"
#include "verify/router/watched_routers.h"

namespace echelon {
namespace {

/// Keeps the rows of one router in one step, on one rank.
class RowWatch {
 public:
  RowWatch(const ChoicePlace& place, int num_addends, ExpertRowsOfTokens& rows)
      : place_(place), num_addends_(num_addends), rows_(rows) {}

  void operator()(const RoutedTokens& routed, Ops& ops, const Operation& operation) {
    if (const auto* const chosen = operation.get_if<ExpertSlotsArgs>();
        chosen != nullptr && chosen->offsets.size(0) > 2)
      experts_ = integers_of(ops, chosen->experts);
    const ChoicePlace place = routed.place_of(0);
    if (place.step != place_.step || place.router != place_.router) return;
    if (const auto* const last = operation.get_if<GroupedMatmulArgs>(); last != nullptr && num_addends_ > 1)
      outputs_ = {downloaded(ops, last->a), downloaded(ops, last->w), last->a.size(1)};
    const auto* const args = operation.get_if<CombineExpertsArgs>();
    if (args == nullptr) return;
    const std::vector<std::int32_t> slots = integers_of(ops, args->slots);
    const std::vector<std::int64_t> tokens = routed.tokens(args->slots.size(0));
    const Values values = downloaded(ops, args->y);
    const auto k = static_cast<std::size_t>(args->slots.size(1));
    const std::ptrdiff_t D = args->y.size(1);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (tokens[i / k] == no_token || slots[i] < 0) continue;
      const auto first = values.begin() + slots[i] * D;
      rows_[tokens[i / k]].push_back(
          {tokens[i / k], experts_[i], {first, first + D}, addends(slots[i], experts_[i], D)});
    }
  }

 private:
  /// The last matmul of the experts: c = a w^T, a [rows, F] and w [E, D, F].
  struct Outputs {
    Values a, w;
    std::int64_t num_features = 0;
  };

  [[nodiscard]] std::vector<Values> addends(std::int32_t row, std::int32_t expert, std::ptrdiff_t D) const {
    std::vector<Values> parts;
    const std::ptrdiff_t F = outputs_.num_features, features = F / num_addends_;
    for (std::ptrdiff_t first = 0; num_addends_ > 1 && first < F; first += features) {
      Values& part = parts.emplace_back(static_cast<std::size_t>(D));
      for (std::ptrdiff_t d = 0; d < D; ++d)
        for (std::ptrdiff_t f = first; f < first + features; ++f)
          part[static_cast<std::size_t>(d)] += outputs_.a[static_cast<std::size_t>(row * F + f)] *
                                               outputs_.w[static_cast<std::size_t>((expert * D + d) * F + f)];
    }
    return parts;
  }

  static std::vector<std::int32_t> integers_of(Ops& ops, const Tensor& x) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(x.num_elements()));
    ops.download(values.data(), x);
    return values;
  }

  ChoicePlace place_;
  int num_addends_;
  Outputs outputs_ = {};
  ExpertRowsOfTokens& rows_;
  std::vector<std::int32_t> experts_;
};

}  // namespace

ExpertRowsOfTokens rows_on_one_rank(const Case& at, std::int64_t step, const std::string& router) {
  const Blueprint blueprint(one_rank(at.config()));
  ExpertRowsOfTokens rows;
  const Interpose nothing;
  const Interpose watch = [&](Ops& ops, Mesh& mesh) {
    return watched(RoutedTokens(blueprint.config(), at.batches, mesh),
                   RowWatch({step, router}, num_feature_ranks(at.config().parallelism), rows), ops, mesh, nothing);
  };
  RunObserver observer;
  run_layout({.blueprint = blueprint, .batches = at.batches, .num_steps = step, .interpose = watch}, observer);
  return rows;
}

}  // namespace echelon
