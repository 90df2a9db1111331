// The gradients of queries, keys and values: which parts they have of those that ranks, or the blocks of a ring, give.
#include "base/text/counted.h"
#include "verify/context/attention_parts.h"
#include "verify/context/explain_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace echelon {
namespace {

/// Coefficients of the parts of a gradient, by the distance of the ranks that they come from.
struct GradientHypothesis {
  std::function<double(int distance)> coefficient;
  FaultKind kind{};
  std::string evidence;
};

std::vector<GradientHypothesis> gradient_hypotheses(int num_units, bool is_of_queries, const char* ranks) {
  const char* from = is_of_queries ? "the keys" : "the queries";
  const char* where = is_of_queries ? "before" : "after";
  std::vector<GradientHypothesis> list;
  list.push_back({[](int distance) { return distance == 0 ? 1.0 : 0.0; }, FaultKind::own_block_only,
                  fmt::format("it has the part from {} of the own rank alone", from)});
  for (int lost = 0; lost < num_units; ++lost)
    list.push_back({[lost](int distance) { return distance == lost ? 0.0 : 1.0; }, FaultKind::missing_block,
                    lost == 0 ? fmt::format("the part from {} of the own rank is missing", from)
                              : fmt::format("the part from {} of the rank {} {} in the {} is missing", from,
                                            counted(lost, "place"), where, ranks)});
  for (int repeated = 0; repeated < num_units; ++repeated)
    list.push_back({[repeated](int distance) { return distance == repeated ? 2.0 : 1.0; }, FaultKind::repeated_block,
                    fmt::format("the part from {} of the rank {} {} in the {} counts twice", from,
                                counted(repeated, "place"), where, ranks)});
  return list;
}

class GradientExplainer {
 public:
  GradientExplainer(const WrongContext& wrong, HeadGradient which, const std::string& layer)
      : wrong_(wrong), which_(which), places_(wrong.places()), attention_(wrong.at, wrong.expected, layer) {}

  std::vector<Finding> explain() const {
    if (!attention_.has_backward()) return {};
    for (const auto& attempt :
         {&GradientExplainer::try_parts, &GradientExplainer::try_replicas, &GradientExplainer::try_stray})
      if (auto found = (this->*attempt)(); !found.empty()) return found;
    return {};
  }

 private:
  [[nodiscard]] bool is_of_queries() const { return which_ == HeadGradient::queries; }

  // Parts from the keys of ranks before a query, or from the queries of ranks after a key.
  std::vector<Finding> try_parts() const {
    std::vector<std::vector<double>> fitted;  // of each wrong read, by distance
    for (const WrongRead& each : wrong_.first.wrong) {
      fitted.push_back(coefficients_of(each.read, parts_by_distance(each.read)));
      if (fitted.back().empty()) return {};
    }
    const int num_units = static_cast<int>(fitted.front().size());
    for (const GradientHypothesis& hypothesis :
         gradient_hypotheses(num_units, is_of_queries(), places_.num_blocks() > 1 ? "ring" : "cp group")) {
      const bool holds = std::ranges::all_of(fitted, [&](const std::vector<double>& coefficients) {
        for (int distance = 0; distance < num_units; ++distance)
          if (!is_near(coefficients[static_cast<std::size_t>(distance)], hypothesis.coefficient(distance),
                       wrong_.at.precision))
            return false;
        return true;
      });
      if (holds) return {wrong_.finding(hypothesis.kind, hypothesis.evidence)};
    }
    return {};
  }

  [[nodiscard]] std::vector<Values> parts_by_distance(const Read& read) const {
    const std::vector<Values> by_rank = attention_.gradient(which_, read);
    std::vector<Values> parts;
    for (const std::vector<int>& ranks : wrong_.ranks_by_distance(read, is_of_queries() ? -1 : 1))
      parts.push_back(sum_of(by_rank, ranks));
    return parts;
  }

  [[nodiscard]] static Values sum_of(const std::vector<Values>& parts, const std::vector<int>& which) {
    Values sum(parts.front().size());
    for (const int part : which)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[static_cast<std::size_t>(part)][i];
    return sum;
  }

  // Ranks that share a kv head each have the part of their query heads.
  std::vector<Finding> try_replicas() const {
    if (is_of_queries()) return {};
    const std::int64_t u = places_.head_ranks(), C = wrong_.at.config().model.head_dim;
    int replica = 0, num_replicas = 1;
    for (const WrongRead& each : wrong_.first.wrong) {
      num_replicas = static_cast<int>(u * C / each.read.num_columns);
      if (num_replicas < 2) return {};
      const std::vector<Values> parts = attention_.gradient_by_heads(which_, each.read, num_replicas);
      while (replica < num_replicas && !is_part(each.read, parts, replica)) ++replica;
      if (replica == num_replicas) return {};
    }
    return {wrong_.finding(FaultKind::one_replica,
                           fmt::format("of the {} ranks that share each kv head, it has the part from the query heads "
                                       "of {} alone",
                                       num_replicas, replica == 0 ? "the first" : fmt::format("number {}", replica)))};
  }

  [[nodiscard]] bool is_part(const Read& read, const std::vector<Values>& parts, int only) const {
    const std::vector<double> coefficients = coefficients_of(read, parts);
    if (coefficients.empty()) return false;
    for (std::size_t i = 0; i < coefficients.size(); ++i)
      if (!is_near(coefficients[i], static_cast<int>(i) == only ? 1 : 0, wrong_.at.precision)) return false;
    return true;
  }

  /// Of the parts in the gradient; empty: it is no sum of them.
  [[nodiscard]] std::vector<double> coefficients_of(const Read& read, const std::vector<Values>& parts) const {
    const auto combination = combine(without_padding(read, read.values), parts);
    return combination && combination->residual <= wrong_.at.precision ? combination->coefficients
                                                                       : std::vector<double>();
  }

  [[nodiscard]] static Values without_padding(const Read& read, Values values) {
    for (std::int64_t row = 0; row < read.num_rows(); ++row)
      if (read.tokens[static_cast<std::size_t>(row)] == no_token)
        std::fill_n(values.begin() + row * read.num_columns, read.num_columns, 0.0);
    return values;
  }

  // Parts belong to the rows of another block: what other ranks gave, or where keys are gathered all.
  std::vector<Finding> try_stray() const {
    if (is_of_queries() || places_.head_ranks() == places_.cp()) return {};
    const bool is_ring = places_.num_blocks() > 1;
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      Values rest = each.read.values;
      if (is_ring) {
        const Values own = parts_by_distance(each.read).front();
        for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= own[i];
      }
      rest = without_padding(each.read, std::move(rest));
      const int count = is_ring ? places_.num_blocks() : places_.cp();
      int block = 0;
      while (block < count && !has_parts_of(each.read, rest, block)) ++block;
      if (block == count) return {};
      if (evidence.empty())
        evidence = is_ring ? fmt::format(
                                 "rank {} has the other ranks' parts of the gradient of the block of {} "
                                 "instead of its own: they did not come home",
                                 each.read.rank, wrong_.owner_of(block))
                           : fmt::format(
                                 "rank {} has the gradient of the keys of rank {} of its cp group instead of "
                                 "its own: it did not come home",
                                 each.read.rank, block);
    }
    return {wrong_.finding(FaultKind::stray_gradient, evidence)};
  }

  /// Whether these values are part of the gradient of another block's rows: of some of the ranks.
  [[nodiscard]] bool has_parts_of(const Read& read, const Values& values, int block) const {
    const bool is_ring = places_.num_blocks() > 1;
    if (block == (is_ring ? places_.own_block(wrong_.cp_rank_of(read)) : wrong_.cp_rank_of(read))) return false;
    Read other = read;
    for (std::int64_t& token : other.tokens)
      if (token != no_token) token = is_ring ? token_in_block(token, block) : token_of_rank(token, block);
    const std::vector<Values> parts = attention_.gradient(which_, other, read.tokens);
    const auto combination = combine(without_padding(other, values), parts);
    if (!combination || combination->residual > wrong_.at.precision) return false;
    return std::ranges::all_of(combination->coefficients, [&](double coefficient) {
      return is_near(coefficient, 0, wrong_.at.precision) || is_near(coefficient, 1, wrong_.at.precision);
    });
  }

  /// The token in the same row of another block's, or another rank's, keys.
  [[nodiscard]] std::int64_t token_in_block(std::int64_t token, int block) const {
    const std::int64_t sequence = token / seq_len();
    const auto own = places_.keys(sequence, places_.own_block(places_.part_of(token)));
    const auto row = std::ranges::lower_bound(own, static_cast<std::int32_t>(token % seq_len())) - own.begin();
    return token_at(sequence, places_.keys(sequence, block), row);
  }
  [[nodiscard]] std::int64_t token_of_rank(std::int64_t token, int cp_rank) const {
    const std::int64_t sequence = token / seq_len();
    return token_at(sequence, places_.positions(sequence, cp_rank), places_.row_of(token));
  }
  [[nodiscard]] std::int64_t token_at(std::int64_t sequence, std::span<const std::int32_t> positions,
                                      std::int64_t row) const {
    return row < std::ssize(positions) ? sequence * seq_len() + positions[static_cast<std::size_t>(row)] : no_token;
  }
  [[nodiscard]] std::int64_t seq_len() const { return places_.config().training.seq_len; }

  const WrongContext& wrong_;
  HeadGradient which_;
  const TokenPlaces& places_;
  AttentionParts attention_;
};

}  // namespace

// "... of model.layers.3.self_attn.q_proj.weight", or of the norms of the heads.
std::vector<Finding> explain_attention_gradient(const WrongContext& wrong) {
  const std::string &tensor = wrong.name().tensor, layer = attention_layer_of(tensor);
  for (const auto& [name, which] :
       {std::pair{".q_", HeadGradient::queries}, {".k_", HeadGradient::keys}, {".v_", HeadGradient::values}})
    if (tensor.find(layer + name) != std::string::npos) return GradientExplainer(wrong, which, layer).explain();
  return {};
}

}  // namespace echelon
