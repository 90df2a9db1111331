#include "verify/router/expert_rows.h"

#include "verify/router/watched_routers.h"

namespace echelon {
namespace {

/// Keeps the rows of one router in one step, on one rank.
class RowWatch {
 public:
  RowWatch(std::int64_t step, const std::string& router, ExpertRowsOfTokens& rows)
      : place_{step, router}, rows_(rows) {}

  void operator()(const RoutedTokens& routed, Ops& ops, const Operation& operation) {
    if (const auto* const chosen = operation.get_if<ExpertSlotsArgs>();
        chosen != nullptr && chosen->offsets.size(0) > 2)
      experts_ = integers_of(ops, chosen->experts);
    const auto* const args = operation.get_if<CombineExpertsArgs>();
    const ChoicePlace place = routed.place_of(0);
    if (args == nullptr || place.step != place_.step || place.router != place_.router) return;
    const std::vector<std::int32_t> slots = integers_of(ops, args->slots);
    const std::vector<std::int64_t> tokens = routed.tokens(args->slots.size(0));
    const Values values = downloaded(ops, args->y);
    const auto k = static_cast<std::size_t>(args->slots.size(1));
    const std::ptrdiff_t D = args->y.size(1);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (tokens[i / k] == no_token || slots[i] < 0) continue;
      const auto first = values.begin() + slots[i] * D;
      rows_[tokens[i / k]].push_back({tokens[i / k], experts_[i], {first, first + D}});
    }
  }

 private:
  static std::vector<std::int32_t> integers_of(Ops& ops, const Tensor& x) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(x.num_elements()));
    ops.download(values.data(), x);
    return values;
  }

  ChoicePlace place_;
  ExpertRowsOfTokens& rows_;
  std::vector<std::int32_t> experts_;
};

}  // namespace

ExpertRowsOfTokens rows_on_one_rank(const Case& at, std::int64_t step, const std::string& router) {
  const Blueprint blueprint(one_rank(at.config()));
  ExpertRowsOfTokens rows;
  const Interpose nothing;
  const Interpose watch = [&](Ops& ops, Mesh& mesh) {
    return watched(RoutedTokens(blueprint.config(), at.batches, mesh), RowWatch(step, router, rows), ops, mesh,
                   nothing);
  };
  RunObserver observer;
  run_layout({.blueprint = blueprint, .batches = at.batches, .num_steps = step, .interpose = watch}, observer);
  return rows;
}

}  // namespace echelon
