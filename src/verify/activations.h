// Records what layers read in one step of one rank, and finds the first read of a layout that differs.
#pragma once

#include "verify/probe.h"

#include <array>

namespace echelon {

/// [tokens of the global batch, num_columns]
struct Activation {
  std::int64_t num_columns = 0;
  Values values;
  double largest = 0;

  [[nodiscard]] const double* row(std::int64_t row) const { return values.data() + row * num_columns; }
};

class Activations {
 public:
  /// Runs one rank up to `step`.
  Activations(const Case& at, std::int64_t step);

  /// The reference for a read; null if the reference has no such read. A layer that is recomputed in backward reads
  /// what it read in forward.
  [[nodiscard]] const Activation* of(const ReadName& name) const;
  /// The expected values of a read; NaN in rows and columns of padding. Ranges of keys follow from the places of
  /// tokens.
  [[nodiscard]] Values expected(const Read& read) const;
  [[nodiscard]] const TokenPlaces& places() const { return places_; }
  /// Largest difference over the largest magnitude in the tensor. Where that is tiny next to those of other tensors of
  /// the pass, as a gradient that would be zero without rounding, over a part of theirs.
  [[nodiscard]] double error_of(const Read& read) const;
  /// The place of a read in the order of those of one microbatch: what a layer recomputes comes before its gradients.
  using Position = std::pair<int, int>;
  [[nodiscard]] Position position(const Read& read) const;

 private:
  void add(const Read& read);
  [[nodiscard]] int position_of(const ReadName& name) const;

  TokenPlaces places_;  // of the layout
  std::int64_t num_tokens_;
  std::map<ReadName, Activation> activations_;
  std::map<ReadName, int> positions_;
  std::array<double, 2> largest_ = {};           // of forward and of backward passes
  std::map<std::int64_t, int> first_gradients_;  // of each layer, the position of the first read in backward
};

/// A read that differs, with everything that a diagnosis needs.
struct WrongRead {
  Read read;
  PartialResult partial;
};

/// The first read that differs in the forward or backward passes, ordered by place in the model and microbatch: the
/// values of all ranks that differ, and the partial results of the other ranks. Empty if all are right.
struct FirstWrongRead {
  std::vector<WrongRead> wrong;   // ascending by rank
  std::vector<WrongRead> others;  // the same read on ranks where it is right
};
[[nodiscard]] FirstWrongRead first_wrong_read(const Case& at, const Activations& expected, bool is_backward);

/// "forward pass of step 1, microbatch 0, first seen as the input of ... on ranks 0, 1"
[[nodiscard]] std::string describe_read(const Case& at, std::int64_t step, const FirstWrongRead& first);

}  // namespace echelon
