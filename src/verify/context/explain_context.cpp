#include "verify/context/explain_context.h"

#include "tensor/tokens.h"

#include <fmt/format.h>

#include <cmath>

namespace echelon {

std::string WrongContext::owner_of(int block) const {
  const int count = places().ranks_of_block(), first = block * count;
  if (count == 1) return fmt::format("rank {} of its ring", block);
  return fmt::format("ranks {} to {} of its cp group", first, first + count - 1);
}

std::vector<std::vector<int>> WrongContext::ranks_by_distance(const Read& read, int direction) const {
  const TokenPlaces& at = places();
  const bool is_ring = at.num_blocks() > 1;
  const int count = is_ring ? at.num_blocks() : at.cp(), size = is_ring ? at.ranks_of_block() : 1;
  const int own = cp_rank_of(read) / size;
  std::vector<std::vector<int>> ranks;
  for (int distance = 0; distance < count; ++distance) {
    const int unit = (own + direction * distance + count) % count;
    std::vector<int>& of_unit = ranks.emplace_back();
    for (int i = 0; i < size; ++i) of_unit.push_back(unit * size + i);
  }
  return ranks;
}

Finding WrongContext::finding(FaultKind kind, const std::string& evidence) const {
  return {.kind = kind,
          .axis = places().cp() > 1 ? "cp" : "",
          .tensor = name().tensor,
          .where = describe_read(at, places().step(), first),
          .evidence = evidence};
}

bool WrongContext::is_same(const ReadName& of, double a, double b) const {
  return std::isnan(b) || std::abs(a - b) <= expected.of(of)->largest * at.tolerance;
}

std::vector<Finding> explain_context(const Case& at, const Activations& expected, const FirstWrongRead& first) {
  const WrongContext wrong = {at, expected, first};
  const std::string& tensor = wrong.name().tensor;
  if (tensor == read_of_targets) return explain_targets(wrong);
  if (is_of_ranges(wrong.name())) return explain_ranges(wrong);
  const std::string layer = attention_layer_of(tensor);
  if (wrong.places().cp() == 1 || layer.empty()) return {};
  std::vector<Finding> findings;
  const bool exchanges_heads = wrong.places().head_ranks() > 1;
  if (tensor == read_of_heads("keys", layer) || tensor == read_of_heads("values", layer) ||
      (exchanges_heads && tensor == read_of_heads("queries", layer)))
    findings = explain_blocks(wrong);
  if (tensor == "input of " + layer + ".o_proj.weight") findings = explain_merged(wrong);
  if (tensor.starts_with("gradient of the output of ")) findings = explain_attention_gradient(wrong);
  return findings.empty() ? explain_heads(wrong) : findings;
}

std::vector<Finding> explain_targets(const WrongContext& wrong) {
  const TokenPlaces& places = wrong.places();
  const std::int64_t T = places.config().training.seq_len;
  std::int64_t num_ignored = 0, num_other = 0, first = no_token;
  bool at_ends = places.cp() > 1;  // of the chunks of a rank, in the middle of the sequence
  for (const WrongRead& each : wrong.first.wrong) {
    const Values right = wrong.expected.expected(each.read);
    for (std::size_t row = 0; row < right.size(); ++row) {
      const std::int64_t token = each.read.tokens[row];
      if (token == no_token || right[row] == each.read.values[row]) continue;
      ++(each.read.values[row] == ignored_target ? num_ignored : num_other);
      if (first == no_token || token < first) first = token;
      at_ends = at_ends && token % T + 1 < T && places.part_of(token) != places.part_of(token + 1);
    }
  }
  const std::string where = fmt::format("the first at position {} of sequence {}{}", first % T, first / T,
                                        at_ends ? ", where the next token is on another rank" : "");
  if (num_other == 0)
    return {wrong.finding(FaultKind::lost_target, fmt::format("{} targets are ignored, {}", num_ignored, where))};
  return {wrong.finding(FaultKind::wrong_target,
                        fmt::format("{} targets are not the next token, {}", num_other + num_ignored, where))};
}

}  // namespace echelon
