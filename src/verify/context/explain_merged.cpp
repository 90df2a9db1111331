// The result of a ring of right blocks, compared with what it would be if a block were left out or counted twice, or if
// the parts were not merged.
#include "verify/context/attention_parts.h"
#include "verify/context/explain_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace echelon {
namespace {

/// The weight of each block's part, by the log-sum-exps of the parts; both by hop.
using BlockWeights = std::function<std::vector<double>(const std::vector<double>& lse)>;

struct MergeHypothesis {
  BlockWeights weights;
  FaultKind kind{};
  std::string evidence;
};

/// A merge in which block `hop` counts `times` times.
BlockWeights counted_times(int hop, double times) {
  return [=](const std::vector<double>& lse) {
    std::vector<double> weights;
    double sum = 0;
    for (std::size_t i = 0; i < lse.size(); ++i) {
      weights.push_back((static_cast<int>(i) == hop ? times : 1.0) * std::exp(lse[i]));
      sum += weights.back();
    }
    for (double& weight : weights) weight = sum > 0 ? weight / sum : 0;
    return weights;
  };
}

std::vector<MergeHypothesis> merge_hypotheses(int num_blocks) {
  std::vector<MergeHypothesis> list;
  const auto constant = [](double weight) {
    return [weight](const std::vector<double>& lse) { return std::vector<double>(lse.size(), weight); };
  };
  for (int hop = num_blocks - 1; hop >= 0; --hop)
    list.push_back({counted_times(hop, 0), FaultKind::missing_block,
                    fmt::format("the block of hop {}{} is missing from the result", hop,
                                hop == 0                ? ", the rank's own,"
                                : hop == num_blocks - 1 ? ", the last,"
                                                        : "")});
  if (num_blocks > 2)
    list.push_back({[](const std::vector<double>& lse) {
                      std::vector<double> weights(lse.size());
                      weights[0] = std::exp(lse[0]) > 0 ? 1 : 0;
                      return weights;
                    },
                    FaultKind::missing_block, "the result is that of the rank's own block alone"});
  for (int hop = 0; hop < num_blocks; ++hop)
    list.push_back(
        {counted_times(hop, 2), FaultKind::repeated_block, fmt::format("the block of hop {} counts twice", hop)});
  list.push_back(
      {constant(1.0 / num_blocks), FaultKind::unmerged_parts,
       fmt::format("the results of the {} blocks are averaged, not merged by their log-sum-exps", num_blocks)});
  list.push_back({constant(1), FaultKind::unmerged_parts,
                  fmt::format("the results of the {} blocks are added, not merged by their log-sum-exps", num_blocks)});
  return list;
}

/// A query head of a rank: what was read, and its parts by hop.
struct ReadHead {
  const double* actual = nullptr;
  std::vector<double> lse;
  std::vector<Values> parts;
};

std::vector<ReadHead> heads_of(const WrongContext& wrong, const AttentionParts& attention, const Read& read,
                               std::int64_t C) {
  std::vector<ReadHead> heads;
  const std::vector<std::vector<int>> ranks = wrong.ranks_by_distance(read, -1);
  for (std::int64_t row = 0; row < read.num_rows(); ++row)
    for (std::int64_t h = 0; h < read.num_columns / C; ++h) {
      const std::int64_t token = read.tokens[static_cast<std::size_t>(row)];
      if (token == no_token) continue;
      const std::vector<HeadPart> parts = attention.forward(token, read.first_column / C + h);
      ReadHead& head = heads.emplace_back();
      head.actual = read.values.data() + row * read.num_columns + h * C;
      for (const std::vector<int>& of_hop : ranks) {
        HeadPart part = united(parts, of_hop);
        head.lse.push_back(part.lse);
        head.parts.push_back(std::move(part.out));
      }
    }
  return heads;
}

bool is_merge(const WrongContext& wrong, const ReadHead& head, const BlockWeights& weights_of) {
  const std::vector<double> weights = weights_of(head.lse);
  for (std::size_t i = 0; i < head.parts.front().size(); ++i) {
    double sum = 0;
    for (std::size_t hop = 0; hop < weights.size(); ++hop) sum += weights[hop] * head.parts[hop][i];
    if (!wrong.is_same(wrong.name(), head.actual[i], sum)) return false;
  }
  return true;
}

}  // namespace

std::vector<Finding> explain_merged(const WrongContext& wrong) {
  const AttentionParts attention(wrong.at, wrong.expected, attention_layer_of(wrong.name().tensor));
  if (!attention.has_forward() || wrong.places().num_blocks() == 1) return {};
  std::vector<ReadHead> heads;
  for (const WrongRead& each : wrong.first.wrong)
    std::ranges::move(heads_of(wrong, attention, each.read, wrong.at.config().model.head_dim),
                      std::back_inserter(heads));
  for (const MergeHypothesis& hypothesis : merge_hypotheses(wrong.places().num_blocks()))
    if (std::ranges::all_of(heads, [&](const ReadHead& head) { return is_merge(wrong, head, hypothesis.weights); }))
      return {wrong.finding(hypothesis.kind, hypothesis.evidence)};
  return {};
}

}  // namespace echelon
