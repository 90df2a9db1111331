#include "verify/router/explain_rows.h"

#include "base/text/counted.h"
#include "verify/router/expert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

namespace echelon {
namespace {

/// The output of a token that is wrong.
struct WrongToken {
  std::int64_t token = 0;
  Values actual = {}, input = {};  // input: of the mixture
};

class RowExplainer {
 public:
  RowExplainer(const Case& at, std::int64_t step, const Activations& expected, const FirstWrongRead& first)
      : at_(at), step_(step), expected_(expected), first_(first) {
    const std::string& name = first.wrong.front().read.name.tensor;
    const std::size_t prefix = std::string_view("output of ").size(), end = name.rfind(".experts");
    layer_ = name.substr(prefix, end - prefix);
    rows_ = rows_on_one_rank(at, step, layer_ + ".gate.weight");
    most_ = expected.of(first.wrong.front().read.name)->largest * at.tolerance;
    find_wrong_tokens();
  }

  std::vector<Finding> explain() const {
    if (auto found = lost_rows(); !found.empty()) return found;
    if (auto found = lost_addends(); !found.empty()) return found;
    return rows_of_others();
  }

 private:
  void find_wrong_tokens() {
    std::set<std::int64_t> seen;
    const Activation* const inputs = expected_.of({false, "input of " + layer_ + ".gate.weight"});
    for (const WrongRead& wrong : first_.wrong) {
      const Values right = expected_.expected(wrong.read);
      const std::int64_t D = wrong.read.num_columns;
      for (std::int64_t row = 0; row < wrong.read.num_rows(); ++row) {
        const std::int64_t token = wrong.read.tokens[static_cast<std::size_t>(row)];
        const auto first = wrong.read.values.begin() + row * D;
        if (token == no_token ||
            is_same({first, first + D}, {right.begin() + row * D, right.begin() + (row + 1) * D}) ||
            !seen.insert(token).second)
          continue;
        WrongToken found = {token, {first, first + D}};
        if (inputs != nullptr && inputs->num_columns == D)
          found.input.assign(inputs->row(token), inputs->row(token) + D);
        tokens_.push_back(std::move(found));
      }
    }
  }

  [[nodiscard]] bool is_same(const Values& a, const Values& b) const {
    return std::ranges::equal(a, b, [&](double x, double y) { return std::abs(x - y) <= most_; });
  }

  /// Of a token: its rows that are not in its sum, and how often what was sent to their experts is.
  struct Lost {
    std::vector<std::int32_t> experts;
    double num_sent = 0;
  };
  // Nothing if its sum is not made of its rows, each once or not at all, and of what was sent.
  [[nodiscard]] std::optional<Lost> lost_of(const WrongToken& wrong) const {
    const auto own = rows_.find(wrong.token);
    if (own == rows_.end()) return std::nullopt;
    std::vector<Values> parts;
    for (const ExpertRow& row : own->second) parts.push_back(row.values);
    if (!wrong.input.empty()) parts.push_back(wrong.input);
    std::optional<Combination> sum = Combination{std::vector<double>(parts.size()), 0};
    if (largest(wrong.actual) > most_) sum = combine(wrong.actual, parts);
    if (!sum || sum->residual > at_.precision) return std::nullopt;
    Lost lost;
    for (std::size_t j = 0; j < own->second.size(); ++j) {
      if (is_near(sum->coefficients[j], 1, at_.precision)) continue;
      if (!is_near(sum->coefficients[j], 0, at_.precision)) return std::nullopt;
      lost.experts.push_back(own->second[j].expert);
    }
    lost.num_sent = wrong.input.empty() ? 0 : sum->coefficients.back();
    return lost;
  }

  // Rows are missing in sums, or what was sent to their experts is in place of them.
  [[nodiscard]] std::vector<Finding> lost_rows() const {
    std::size_t num_lost = 0;
    std::set<std::int32_t> experts;
    bool are_missing = true, are_as_sent = true;
    for (const WrongToken& wrong : tokens_) {
      const std::optional<Lost> lost = lost_of(wrong);
      if (!lost || lost->experts.empty()) return {};
      num_lost += lost->experts.size();
      experts.insert(lost->experts.begin(), lost->experts.end());
      are_missing = are_missing && is_near(lost->num_sent, 0, at_.precision);
      are_as_sent = are_as_sent && is_near(lost->num_sent, static_cast<double>(lost->experts.size()), at_.precision);
    }
    if (num_lost == 0 || (!are_missing && !are_as_sent)) return {};
    return {finding(FaultKind::lost_rows,
                    fmt::format("{} rows of {} tokens {}: those of {}", num_lost, tokens_.size(),
                                are_missing ? "are missing in their sums" : "came back as they were sent",
                                list_of(experts, "expert")))};
  }

  /// Which ranks with features of a token's experts are not in its sum. None if it is not made of their addends, each
  /// once or not at all.
  [[nodiscard]] std::set<std::size_t> lost_places(const WrongToken& wrong) const {
    const auto own = rows_.find(wrong.token);
    if (own == rows_.end()) return {};
    std::vector<Values> parts;
    for (const ExpertRow& row : own->second) parts.insert(parts.end(), row.addends.begin(), row.addends.end());
    if (parts.empty()) return {};
    const std::optional<Combination> sum = combine(wrong.actual, parts);
    if (!sum || sum->residual > at_.precision) return {};
    std::set<std::size_t> lost;
    const std::size_t num_places = parts.size() / own->second.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (is_near(sum->coefficients[i], 1, at_.precision)) continue;
      if (!is_near(sum->coefficients[i], 0, at_.precision)) return {};
      lost.insert(i % num_places);
    }
    return lost;
  }

  // Ranks with features of an expert gave back addends, of which not all are summed.
  [[nodiscard]] std::vector<Finding> lost_addends() const {
    std::set<std::size_t> all;
    for (const WrongToken& wrong : tokens_) {
      const std::set<std::size_t> lost = lost_places(wrong);
      if (lost.empty()) return {};
      all.insert(lost.begin(), lost.end());
    }
    if (all.empty()) return {};
    Finding found =
        finding(FaultKind::missing_sum,
                fmt::format("rows of {} tokens were not summed over etp: they lack what {} of the features computed",
                            tokens_.size(), list_of(all, "rank")));
    found.axis = "etp";
    return {found};
  }

  // In place of a token's row its sum has a row of another token.
  [[nodiscard]] std::vector<Finding> rows_of_others() const {
    std::int64_t num_found = 0;
    std::string example;
    for (const WrongToken& wrong : tokens_) {
      const std::string found = row_of_another(wrong);
      if (found.empty()) continue;
      ++num_found;
      if (example.empty()) example = found;
    }
    // The others may have several.
    if (2 * num_found <= std::ssize(tokens_)) return {};
    return {finding(FaultKind::exchanged_rows,
                    fmt::format("{} of {} wrong tokens have a row of another token in place of one of their own: {}",
                                num_found, tokens_.size(), example))};
  }

  /// Empty: none explains it.
  [[nodiscard]] std::string row_of_another(const WrongToken& wrong) const {
    const auto own = rows_.find(wrong.token);
    if (own == rows_.end()) return {};
    for (const ExpertRow& lost : own->second) {
      Values in_its_place = wrong.actual;
      for (const ExpertRow& row : own->second)
        for (std::size_t i = 0; &row != &lost && i < in_its_place.size(); ++i) in_its_place[i] -= row.values[i];
      for (const auto& [token, rows] : rows_)
        for (const ExpertRow& row : rows)
          if (token != wrong.token && is_same(row.values, in_its_place))
            return fmt::format("{} has that of {} from expert {}, in place of its own from expert {}",
                               name_of_token(wrong.token), name_of_token(token), row.expert, lost.expert);
    }
    return {};
  }

  [[nodiscard]] std::string name_of_token(std::int64_t token) const {
    const std::int64_t T = at_.config().training.seq_len;
    return fmt::format("token {} of sequence {}", token % T, token / T);
  }
  template <class Number>
  static std::string list_of(const std::set<Number>& all, std::string_view noun) {
    return fmt::format("{} {}", plural(all.size(), noun), fmt::join(all, ", "));
  }

  [[nodiscard]] Finding finding(FaultKind kind, std::string evidence) const {
    const std::vector<LayoutAxis> axes = axes_of_experts(at_.config());
    return {.kind = kind,
            .axis = axes.empty() ? "" : axes.back().name,
            .tensor = "output of " + layer_ + ".experts",
            .where = describe_read(at_, step_, first_),
            .evidence = std::move(evidence)};
  }

  const Case& at_;
  std::int64_t step_;
  const Activations& expected_;
  const FirstWrongRead& first_;
  std::string layer_;  // "model.layers.3.mlp"
  ExpertRowsOfTokens rows_;
  double most_ = 0;  // of rounding
  std::vector<WrongToken> tokens_;
};

}  // namespace

std::vector<Finding> explain_expert_rows(const Case& at, std::int64_t step, const Activations& expected,
                                         const FirstWrongRead& first) {
  const ReadName& name = first.wrong.front().read.name;
  if (name.is_backward || !name.tensor.starts_with("output of ") || !name.tensor.ends_with(".mlp.experts")) return {};
  return RowExplainer(at, step, expected, first).explain();
}

}  // namespace echelon
