// The gradients of queries, keys and values after a ring: which parts they have of those that the blocks give.
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

std::vector<GradientHypothesis> gradient_hypotheses(int cp, bool is_of_queries) {
  const char* from = is_of_queries ? "the keys" : "the queries";
  const char* where = is_of_queries ? "before" : "after";
  std::vector<GradientHypothesis> list;
  list.push_back({[](int distance) { return distance == 0 ? 1.0 : 0.0; }, FaultKind::own_block_only,
                  fmt::format("it has the part from {} of the own rank alone", from)});
  for (int lost = 0; lost < cp; ++lost)
    list.push_back({[lost](int distance) { return distance == lost ? 0.0 : 1.0; }, FaultKind::missing_block,
                    lost == 0 ? fmt::format("the part from {} of the own rank is missing", from)
                              : fmt::format("the part from {} of the rank {} {} in the ring is missing", from,
                                            counted(lost, "place"), where)});
  for (int repeated = 0; repeated < cp; ++repeated)
    list.push_back({[repeated](int distance) { return distance == repeated ? 2.0 : 1.0; }, FaultKind::repeated_block,
                    fmt::format("the part from {} of the rank {} {} in the ring counts twice", from,
                                counted(repeated, "place"), where)});
  return list;
}

class GradientExplainer {
 public:
  GradientExplainer(const WrongContext& wrong, HeadGradient which, const std::string& layer)
      : wrong_(wrong), which_(which), cp_(wrong.places().cp()), attention_(wrong.at, wrong.expected, layer) {}

  std::vector<Finding> explain() {
    if (!attention_.has_backward()) return {};
    std::vector<std::vector<double>> fitted;  // of each wrong read, by distance
    for (const WrongRead& each : wrong_.first.wrong) {
      fitted.push_back(coefficients_of(each.read));
      if (fitted.back().empty()) return which_ == HeadGradient::queries ? std::vector<Finding>() : try_stray();
    }
    for (const GradientHypothesis& hypothesis : gradient_hypotheses(cp_, which_ == HeadGradient::queries)) {
      const bool holds = std::ranges::all_of(fitted, [&](const std::vector<double>& coefficients) {
        for (int distance = 0; distance < cp_; ++distance)
          if (!is_near(coefficients[static_cast<std::size_t>(distance)], hypothesis.coefficient(distance),
                       wrong_.at.precision))
            return false;
        return true;
      });
      if (holds) return {wrong_.finding(hypothesis.kind, hypothesis.evidence)};
    }
    return {};
  }

 private:
  [[nodiscard]] int own_of(const Read& read) const {
    return wrong_.places().place_of(read.rank, read.microbatch).cp_rank;
  }
  /// How many places the rank of a part's keys is before the rank, or that of its queries after it.
  [[nodiscard]] int distance_of(int part, int own) const {
    return (which_ == HeadGradient::queries ? own - part + cp_ : part - own + cp_) % cp_;
  }

  /// Empty: the gradient is no sum of the parts.
  std::vector<double> coefficients_of(const Read& read) const {
    std::vector<Values> parts(static_cast<std::size_t>(cp_));
    std::vector<Values> by_rank = attention_.gradient(which_, read);
    for (int part = 0; part < cp_; ++part)
      parts[static_cast<std::size_t>(distance_of(part, own_of(read)))] =
          std::move(by_rank[static_cast<std::size_t>(part)]);
    Values values = read.values;
    for (std::int64_t row = 0; row < read.num_rows(); ++row)
      if (read.tokens[static_cast<std::size_t>(row)] == no_token)
        std::fill_n(values.begin() + row * read.num_columns, read.num_columns, 0.0);
    const auto combination = combine(values, parts);
    return combination && combination->residual <= wrong_.at.precision ? combination->coefficients
                                                                       : std::vector<double>();
  }

  // The other ranks' parts belong to the rows of another rank's block.
  std::vector<Finding> try_stray() const {
    std::string evidence;
    for (const WrongRead& each : wrong_.first.wrong) {
      const int own = own_of(each.read);
      const std::vector<Values> right = attention_.gradient(which_, each.read);
      int block = 0;
      while (block < cp_ && !has_parts_of(each.read, right[static_cast<std::size_t>(own)], block)) ++block;
      if (block == cp_) return {};
      if (evidence.empty())
        evidence = fmt::format(
            "rank {} has the other ranks' parts of the gradient of the block of rank {} of its ring "
            "instead of its own: they did not come home",
            each.read.rank, block);
    }
    return {wrong_.finding(FaultKind::stray_gradient, evidence)};
  }

  /// Whether what is not `own_part` is part of the gradient of another block: of some of the ranks.
  bool has_parts_of(const Read& read, const Values& own_part, int block) const {
    if (block == own_of(read)) return false;
    Read other = read;
    BlockPlace place = wrong_.places().place_of(read.rank, read.microbatch);
    place.cp_rank = block;
    other.tokens = wrong_.places().tokens_of(place);
    for (std::size_t row = 0; row < read.tokens.size(); ++row)
      if (read.tokens[row] == no_token) other.tokens[row] = no_token;
    const std::vector<Values> parts = attention_.gradient(which_, other, read.tokens);
    Values rest = read.values;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const bool is_padding = read.tokens[i / static_cast<std::size_t>(read.num_columns)] == no_token;
      rest[i] = is_padding ? 0 : rest[i] - own_part[i];
    }
    const auto combination = combine(rest, parts);
    if (!combination || combination->residual > wrong_.at.precision) return false;
    return std::ranges::all_of(combination->coefficients, [&](double coefficient) {
      return is_near(coefficient, 0, wrong_.at.precision) || is_near(coefficient, 1, wrong_.at.precision);
    });
  }

  const WrongContext& wrong_;
  HeadGradient which_;
  int cp_;
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
