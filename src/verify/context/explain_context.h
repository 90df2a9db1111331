// Explains what a rank of context parallelism was given of a sequence, the blocks that it attended to, and what it made
// of them. Each function returns all explanations that fit the first read that differs; none if it is another's.
#pragma once

#include "verify/activations.h"

namespace echelon {

/// Everything that an explanation needs.
struct WrongContext {
  const Case& at;
  const Activations& expected;
  const FirstWrongRead& first;

  [[nodiscard]] const ReadName& name() const { return first.wrong.front().read.name; }
  [[nodiscard]] const TokenPlaces& places() const { return expected.places(); }
  [[nodiscard]] int cp_rank_of(const Read& read) const { return places().place_of(read.rank, read.microbatch).cp_rank; }
  /// The block of keys that a read is of, or rather should be.
  [[nodiscard]] int block_of(const Read& read) const { return places().block_at(cp_rank_of(read), read.hop); }
  /// "rank 2 of its ring", or where a block has the keys of several ranks "ranks 2 to 3 of its cp group".
  [[nodiscard]] std::string owner_of(int block) const;
  /// What travels as one: by the distance from a rank, the cp ranks whose keys are in a block of a ring, or else one
  /// rank. `direction` -1: those before it, 1: after it.
  [[nodiscard]] std::vector<std::vector<int>> ranks_by_distance(const Read& read, int direction) const;
  [[nodiscard]] Finding finding(FaultKind kind, const std::string& evidence) const;
  [[nodiscard]] bool is_same(const ReadName& of, double a, double b) const;
};

/// One of those below, by the name of the read.
[[nodiscard]] std::vector<Finding> explain_context(const Case& at, const Activations& expected,
                                                   const FirstWrongRead& first);

/// Targets, without context parallelism too.
[[nodiscard]] std::vector<Finding> explain_targets(const WrongContext& wrong);
/// Which keys queries see. Always an explanation.
[[nodiscard]] std::vector<Finding> explain_ranges(const WrongContext& wrong);
/// Keys and values of a block: at a hop of a ring, or of several ranks.
[[nodiscard]] std::vector<Finding> explain_blocks(const WrongContext& wrong);
/// Heads that have the values of other heads.
[[nodiscard]] std::vector<Finding> explain_heads(const WrongContext& wrong);
/// What attention computed of right blocks: its results, and the gradients of queries, keys and values.
[[nodiscard]] std::vector<Finding> explain_merged(const WrongContext& wrong);
[[nodiscard]] std::vector<Finding> explain_attention_gradient(const WrongContext& wrong);

}  // namespace echelon
