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
  /// The cp rank whose block a read is of, or rather should be.
  [[nodiscard]] int source_of(const Read& read) const;
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
/// Keys and values at a hop of the ring.
[[nodiscard]] std::vector<Finding> explain_blocks(const WrongContext& wrong);
/// What attention computed of right blocks: its results, and the gradients of queries, keys and values.
[[nodiscard]] std::vector<Finding> explain_merged(const WrongContext& wrong);
[[nodiscard]] std::vector<Finding> explain_attention_gradient(const WrongContext& wrong);

}  // namespace echelon
