#include "verify/router/choices.h"

#include "verify/combination.h"
#include "verify/router/kept_rows.h"
#include "verify/router/watched_routers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace echelon {
namespace {

std::vector<std::int32_t> integers_of(Ops& ops, const Tensor& x) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(x.num_elements()));
  ops.download(values.data(), x);
  return values;
}

ChosenExperts row_of(const std::vector<std::int32_t>& experts, std::int64_t row, std::int64_t k) {
  return {experts.begin() + row * k, experts.begin() + (row + 1) * k};
}

/// Of each row.
std::vector<RoutedToken> routed_tokens(Ops& ops, const ChooseExpertsArgs& args) {
  const Values logits = downloaded(ops, args.logits), bias = args.bias.exists() ? downloaded(ops, args.bias) : Values();
  const std::ptrdiff_t E = args.logits.size(1);
  std::vector<RoutedToken> tokens;
  for (auto row = logits.begin(); row != logits.end(); row += E) tokens.push_back({{row, row + E}, bias, args.rule});
  return tokens;
}

/// Adds the choices of a rank. What is done with a choice starts with its slots.
class Record {
 public:
  explicit Record(Choices& choices) : choices_(choices) {}

  void operator()(const RoutedTokens& routed, Ops& ops, const Operation& operation) {
    if (const auto* chosen = operation.get_if<ChooseExpertsArgs>()) tokens_ = routed_tokens(ops, *chosen);
    if (const auto* limited = operation.get_if<LimitExpertsArgs>()) before_drops_ = integers_of(ops, limited->experts);
    const auto* const args = operation.get_if<ExpertSlotsArgs>();
    if (args == nullptr || args->offsets.size(0) == 2) return;  // a gate of a shared expert is a router of one
    const std::vector<std::int32_t> kept = integers_of(ops, args->experts),
                                    experts = before_drops_.empty() ? kept : std::exchange(before_drops_, {});
    const std::int64_t k = args->experts.size(1);
    const std::vector<std::int64_t> tokens = routed.tokens(args->experts.size(0));
    for (std::int64_t n = 0; n < std::ssize(tokens); ++n) {
      const auto row = static_cast<std::size_t>(n);
      if (tokens[row] != no_token)
        choices_.add(routed.place_of(tokens[row]), {tokens_[row], row_of(experts, n, k), row_of(kept, n, k)});
    }
  }

 private:
  Choices& choices_;
  std::vector<RoutedToken> tokens_;
  std::vector<std::int32_t> before_drops_;  // all that were chosen, where some rows have no slots
};

/// The choices of one rank, next to those of the layout.
class Replay {
 public:
  Replay(const Choices& choices, double rounding, ChoiceComparison& comparison)
      : choices_(choices), rounding_(rounding), comparison_(comparison) {}

  void operator()(const RoutedTokens& routed, Ops& ops, const Operation& operation) const {
    if (const auto* const limited = operation.get_if<LimitExpertsArgs>()) return replay_drops(routed, ops, *limited);
    const auto* const args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || args->logits.size(1) == 1) return;
    const std::int64_t k = args->experts.size(1);
    std::vector<std::int32_t> experts = integers_of(ops, args->experts);
    Values weights = downloaded(ops, args->weights);
    const std::vector<RoutedToken> rows = routed_tokens(ops, *args);
    const std::vector<std::int64_t> tokens = routed.tokens(args->logits.size(0));
    bool changes = false;
    for (std::int64_t n = 0; n < std::ssize(tokens); ++n) {
      if (experts[static_cast<std::size_t>(n * k)] < 0) continue;  // padding
      const RoutedChoice own = {rows[static_cast<std::size_t>(n)], row_of(experts, n, k)};
      const RoutedChoice* const other = replaced(routed.place_of(tokens[static_cast<std::size_t>(n)]), own);
      if (other == nullptr) continue;
      changes = true;
      std::ranges::copy(other->experts, experts.begin() + n * k);
      std::ranges::copy(weights_of(own.token, other->experts), weights.begin() + n * k);
    }
    if (!changes) return;
    ops.upload(args->experts, experts.data());
    upload_as(ops, args->weights, weights);
  }

 private:
  /// The layout's choice, where one rank is to take it.
  [[nodiscard]] const RoutedChoice* replaced(const ChoicePlace& place, const RoutedChoice& own) const {
    ++comparison_.num_choices;
    const RoutedChoice* const other = choices_.at(place);
    if (other != nullptr && std::ranges::is_permutation(other->experts, own.experts)) return nullptr;
    if (other != nullptr && is_tie(own.token, own.experts, other->experts) &&
        is_tie(other->token, own.experts, other->experts)) {
      ++comparison_.num_ties;
      return other;
    }
    if (comparison_.num_wrong++ == 0) note_wrong(place, own, other);
    return nullptr;
  }
  [[nodiscard]] bool is_tie(const RoutedToken& token, const ChosenExperts& a, const ChosenExperts& b) const {
    return gap_between(token, a, b) <= rounding_ * largest_score(token);
  }
  void replay_drops(const RoutedTokens& routed, Ops& ops, const LimitExpertsArgs& args) const {
    const std::vector<std::int32_t> chosen = integers_of(ops, args.experts);
    std::vector<std::int32_t> kept = integers_of(ops, args.kept);
    const Values weights = args.weights.exists() ? downloaded(ops, args.weights) : Values();
    const std::vector<std::int64_t> tokens = routed.tokens(args.kept.size(0));
    std::vector<const RoutedChoice*> on_layout;
    for (const std::int64_t token : tokens) on_layout.push_back(choices_.at(routed.place_of(token)));
    bool changes = false;
    for (const FlippedRows& rows : flipped_rows({args, chosen, kept, weights, on_layout})) {
      const bool replays = !weights.empty() && are_ties(rows, rounding_);
      for (const FlippedRow& row : rows) {
        const auto i = static_cast<std::size_t>(row.row);
        if (replays) kept[i] = row.is_kept_by_layout ? chosen[i] : -1;
        if (!replays && comparison_.num_wrong++ == 0)
          note_wrong_drop(routed.place_of(tokens[i / static_cast<std::size_t>(args.kept.size(1))]), row, chosen[i]);
      }
      if (replays) comparison_.num_row_ties += std::ssize(rows) / 2;
      changes |= replays;
    }
    if (changes) ops.upload(args.kept, kept.data());
  }
  void note_wrong_drop(const ChoicePlace& place, const FlippedRow& row, std::int32_t expert) const {
    comparison_.first_wrong = place;
    comparison_.sentence = fmt::format("expert {} of {} {} the row of token {} of step {}, and {} it on one rank",
                                       expert, place.router, row.is_kept_by_layout ? "keeps" : "drops", place.token,
                                       place.step, row.is_kept_by_layout ? "drops" : "keeps");
  }
  void note_wrong(const ChoicePlace& place, const RoutedChoice& own, const RoutedChoice* other) const {
    comparison_.first_wrong = place;
    comparison_.sentence =
        fmt::format("token {} of step {} chose {} at {}, and on one rank {}{}", place.token, place.step,
                    other == nullptr ? "nothing" : fmt::format("experts {}", fmt::join(other->experts, ", ")),
                    place.router, fmt::join(own.experts, ", "),
                    other == nullptr ? ""
                                     : fmt::format(", whose scores differ by {:.2g} there and by {:.2g} on the layout",
                                                   gap_between(own.token, own.experts, other->experts),
                                                   gap_between(other->token, own.experts, other->experts)));
  }
  static void upload_as(Ops& ops, const Tensor& x, const Values& values) {
    if (x.dtype == DType::float64) return ops.upload(x, values.data());
    const std::vector<float> rounded(values.begin(), values.end());
    ops.upload(x, rounded.data());
  }

  const Choices& choices_;
  double rounding_;
  ChoiceComparison& comparison_;
};

}  // namespace

void Choices::add(ChoicePlace place, RoutedChoice choice) {
  const std::lock_guard lock(mutex_);
  choices_[std::move(place)] = std::move(choice);
}

const RoutedChoice* Choices::at(const ChoicePlace& place) const {
  const auto found = choices_.find(place);
  return found == choices_.end() ? nullptr : &found->second;
}

Interpose recorded(const Blueprint& layout, const BatchSource& batches, Choices& choices, const Interpose& inner) {
  return [&layout, &batches, &choices, &inner](Ops& ops, Mesh& mesh) {
    return watched(RoutedTokens(layout.config(), batches, mesh), Record(choices), ops, mesh, inner);
  };
}

Interpose replayed(const ReplayOptions& options, const Interpose& inner, ChoiceComparison& comparison) {
  return [options, &inner, &comparison](Ops& ops, Mesh& mesh) {
    return watched(RoutedTokens(options.one_rank.config(), options.batches, mesh),
                   Replay(options.choices, options.rounding, comparison), ops, mesh, inner);
  };
}

}  // namespace echelon
