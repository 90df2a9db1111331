#include "verify/context/explain_context.h"

#include "tensor/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {

int WrongContext::source_of(const Read& read) const {
  const int cp = places().cp();
  return (places().place_of(read.rank, read.microbatch).cp_rank - read.hop + cp) % cp;
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
  if (tensor == read_of_heads("keys", layer) || tensor == read_of_heads("values", layer)) return explain_blocks(wrong);
  if (tensor == "input of " + layer + ".o_proj.weight") return explain_merged(wrong);
  return tensor.starts_with("gradient of the output of ") ? explain_attention_gradient(wrong) : std::vector<Finding>();
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

namespace {

/// The cp rank whose tokens have the values that were read; -1: none.
int block_of(const WrongContext& wrong, const Read& read) {
  for (int other = 0; other < wrong.places().cp(); ++other) {
    BlockPlace block = wrong.places().place_of(read.rank, read.microbatch);
    block.cp_rank = other;
    Read as = read;
    as.tokens = wrong.places().tokens_of(block);
    const Values right = wrong.expected.expected(as);
    bool is_same = true;
    for (std::size_t i = 0; i < right.size() && is_same; ++i)
      is_same = wrong.is_same(read.name, read.values[i], right[i]);
    if (is_same) return other;
  }
  return -1;
}

}  // namespace

std::vector<Finding> explain_blocks(const WrongContext& wrong) {
  const int cp = wrong.places().cp();
  bool all_stale = true;
  std::string evidence;
  for (const auto& [read, partial] : wrong.first.wrong) {
    const int source = wrong.source_of(read), found = block_of(wrong, read);
    if (read.hop == 0 || found < 0) return {};
    all_stale = all_stale && found == (source + 1) % cp;
    if (evidence.empty())
      evidence = fmt::format("at hop {} rank {} attends to the block of rank {} of its ring instead of rank {}",
                             read.hop, read.rank, found, source);
  }
  if (all_stale) evidence += ": to that of the hop before, once more";
  return {wrong.finding(all_stale ? FaultKind::stale_block : FaultKind::wrong_block, evidence)};
}

}  // namespace echelon
