// Keys and values that a rank attends to, where they are not those of the block: of another block, or of another rank
// among those whose keys the block has.
#include "verify/context/explain_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace echelon {
namespace {

/// How the keys of one rank differ within a block that has those of several.
struct WrongPart {
  FaultKind kind{};
  std::string evidence;
};

class BlockExplainer {
 public:
  explicit BlockExplainer(const WrongContext& wrong)
      : wrong_(wrong), places_(wrong.places()), whole_(*wrong.expected.of(wrong.name())) {}

  std::vector<Finding> explain() const {
    std::vector<Finding> findings = places_.num_blocks() > 1 ? try_other_blocks() : std::vector<Finding>();
    return findings.empty() ? try_parts() : findings;
  }

 private:
  // All keys are those of another block of the ring.
  std::vector<Finding> try_other_blocks() const {
    bool all_stale = true;
    std::string evidence;
    for (const auto& [read, partial] : wrong_.first.wrong) {
      const int block = wrong_.block_of(read), found = block_with(read);
      if (read.hop == 0 || found < 0) return {};
      all_stale = all_stale && found == (block + 1) % places_.num_blocks();
      if (evidence.empty())
        evidence = fmt::format("at hop {} rank {} attends to the block of {} instead of {}", read.hop, read.rank,
                               wrong_.owner_of(found), wrong_.owner_of(block));
    }
    if (all_stale) evidence += ": to that of the hop before, once more";
    return {wrong_.finding(all_stale ? FaultKind::stale_block : FaultKind::wrong_block, evidence)};
  }

  /// The block whose tokens have the values that were read; -1: none.
  [[nodiscard]] int block_with(const Read& read) const {
    for (int other = 0; other < places_.num_blocks(); ++other) {
      Read as = read;
      as.tokens = places_.keys_of(places_.place_of(read.rank, read.microbatch), other);
      const Values right = wrong_.expected.expected(as);
      bool is_same = true;
      for (std::size_t i = 0; i < right.size() && is_same; ++i)
        is_same = wrong_.is_same(read.name, read.values[i], right[i]);
      if (is_same) return other;
    }
    return -1;
  }

  // The keys of some of the block's ranks are wrong, in one way.
  std::vector<Finding> try_parts() const {
    std::optional<WrongPart> first;
    for (const auto& [read, partial] : wrong_.first.wrong) {
      const int first_rank = wrong_.block_of(read) * places_.ranks_of_block();
      for (int rank = first_rank; rank < first_rank + places_.ranks_of_block(); ++rank) {
        if (is_part_as(read, rank, [&](std::int64_t token) { return token; })) continue;
        const std::optional<WrongPart> part = wrong_part(read, rank);
        if (!part || (first && first->kind != part->kind)) return {};
        if (!first) first = part;
      }
    }
    if (!first) return {};
    return {wrong_.finding(first->kind, first->evidence)};
  }

  [[nodiscard]] std::optional<WrongPart> wrong_part(const Read& read, int rank) const {
    const std::string what = read.name.tensor.substr(0, read.name.tensor.find(" of model.")),
                      of = fmt::format("the {} of rank {} of the cp group", what, rank);
    if (is_part(read, rank, [&](std::int64_t, const double* actual) {
          return std::all_of(actual, actual + read.num_columns, [](double value) { return value == 0; });
        }))
      return WrongPart{FaultKind::missing_block, fmt::format("rank {} attends {} zeros in place of {}", read.rank,
                                                             what == "keys" || what == "values" ? "to" : "with", of)};
    const int first_rank = wrong_.block_of(read) * places_.ranks_of_block();
    for (int other = first_rank; other < first_rank + places_.ranks_of_block(); ++other) {
      const auto in_place = [&](std::int64_t token) { return token_in_row_of(token, other); };
      if (other == rank || !is_part_as(read, rank, in_place)) continue;
      const bool is_twice = is_part_as(read, other, [](std::int64_t token) { return token; });
      return WrongPart{is_twice ? FaultKind::repeated_block : FaultKind::wrong_block,
                       fmt::format("rank {} has the {} of rank {}{} in place of {}", read.rank, what, other,
                                   is_twice ? " once more," : "", of)};
    }
    for (std::int64_t column = 0; column < whole_.num_columns; column += read.num_columns)
      if (column != read.first_column && is_part(read, rank, [&](std::int64_t token, const double* actual) {
            return is_same(actual, whole_.row(token) + column, read.num_columns);
          }))
        return WrongPart{
            FaultKind::stale_block,
            fmt::format("rank {} has other heads in place of {}: those that were gathered before", read.rank, of)};
    return std::nullopt;
  }

  /// Whether visit(token, values) holds for the rows of a rank's tokens.
  [[nodiscard]] bool is_part(const Read& read, int rank,
                             const std::function<bool(std::int64_t token, const double* actual)>& visit) const {
    for (std::int64_t row = 0; row < read.num_rows(); ++row) {
      const std::int64_t token = read.tokens[static_cast<std::size_t>(row)];
      if (token != no_token && places_.part_of(token) == rank &&
          !visit(token, read.values.data() + row * read.num_columns))
        return false;
    }
    return true;
  }

  /// Whether they have the values of tokens as(token); of no_token any.
  [[nodiscard]] bool is_part_as(const Read& read, int rank, const std::function<std::int64_t(std::int64_t)>& as) const {
    return is_part(read, rank, [&](std::int64_t token, const double* actual) {
      const std::int64_t other = as(token);
      return other == no_token || is_same(actual, whole_.row(other) + read.first_column, read.num_columns);
    });
  }

  /// The token of another rank that has the same row there.
  [[nodiscard]] std::int64_t token_in_row_of(std::int64_t token, int rank) const {
    const std::int64_t T = places_.config().training.seq_len, sequence = token / T, row = places_.row_of(token);
    const auto positions = places_.positions(sequence, rank);
    return row < std::ssize(positions) ? sequence * T + positions[static_cast<std::size_t>(row)] : no_token;
  }

  [[nodiscard]] bool is_same(const double* actual, const double* right, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (!wrong_.is_same(wrong_.name(), actual[i], right[i])) return false;
    return true;
  }

  const WrongContext& wrong_;
  const TokenPlaces& places_;
  const Activation& whole_;
};

}  // namespace

std::vector<Finding> explain_blocks(const WrongContext& wrong) { return BlockExplainer(wrong).explain(); }

// Where ranks exchange heads: those of another rank, or zeros, in the place of a head.
std::vector<Finding> explain_heads(const WrongContext& wrong) {
  const std::int64_t C = wrong.at.config().model.head_dim;
  if (wrong.places().head_ranks() == 1) return {};
  const Activation& whole = *wrong.expected.of(wrong.name());
  std::string evidence;
  bool are_zero = true;
  for (const WrongRead& each : wrong.first.wrong) {
    const Read& read = each.read;
    if (read.num_columns % C != 0 || whole.num_columns % C != 0) return {};
    for (std::int64_t column = 0; column < read.num_columns; column += C) {
      const auto all_tokens = [&](const std::function<bool(std::int64_t token, const double* head)>& visit) {
        for (std::int64_t row = 0; row < read.num_rows(); ++row)
          if (const std::int64_t token = read.tokens[static_cast<std::size_t>(row)];
              token != no_token && !visit(token, read.values.data() + row * read.num_columns + column))
            return false;
        return true;
      };
      const auto has_head = [&](std::int64_t from) {
        return all_tokens([&](std::int64_t token, const double* head) {
          for (std::int64_t i = 0; i < C; ++i)
            if (!wrong.is_same(read.name, head[i], whole.row(token)[from + i])) return false;
          return true;
        });
      };
      if (has_head(read.first_column + column)) continue;
      const bool is_zero = all_tokens([&](std::int64_t, const double* head) {
        return std::all_of(head, head + C, [](double value) { return value == 0; });
      });
      std::int64_t other = 0;
      while (other < whole.num_columns && !is_zero && !has_head(other)) other += C;
      if (other == whole.num_columns) return {};
      are_zero = are_zero && is_zero;
      if (evidence.empty())
        evidence = is_zero ? fmt::format(
                                 "on rank {} the values of head {} are zero: they did not come from the rank "
                                 "that attends with it",
                                 read.rank, (read.first_column + column) / C)
                           : fmt::format("on rank {} head {} has the values of head {}", read.rank,
                                         (read.first_column + column) / C, other / C);
    }
  }
  if (are_zero) return {wrong.finding(FaultKind::missing_gather, evidence)};
  return {wrong.finding(FaultKind::exchanged_heads, evidence)};
}

}  // namespace echelon
