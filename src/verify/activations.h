// What layers read in one step of one rank, whole, and the first read of a layout that is not the same.
#pragma once

#include "verify/probe.h"

namespace echelon {

/// [tokens of the global batch, num_columns]
struct Activation {
  std::int64_t num_columns = 0;
  Numbers numbers;
  double largest = 0;

  [[nodiscard]] const double* row(std::int64_t row) const { return numbers.data() + row * num_columns; }
};

class Activations {
 public:
  /// Runs one rank up to `step`.
  Activations(const Case& at, std::int64_t step);

  /// What a read is compared with, null if the reference has no such read. A layer that is computed again in a backward
  /// pass reads what it read before.
  [[nodiscard]] const Activation* of(const ReadName& name) const;
  /// The expected numbers of a read; NaN in columns of padding.
  [[nodiscard]] Numbers expected(const Read& read) const;
  /// Largest difference over the largest number of the tensor.
  [[nodiscard]] double error_of(const Read& read) const;
  [[nodiscard]] int position(const ReadName& name) const;  // in the order in which one microbatch reads

 private:
  void add(const Read& read);

  std::int64_t num_tokens_;
  std::map<ReadName, Activation> activations_;
  std::map<ReadName, int> positions_;
};

/// A read that differs and is told with all that a diagnosis asks for.
struct WrongRead {
  Read read;
  PartialResult partial;
};

/// The first read that differs in the forward or the backward passes, by its place in the model and by microbatch: as
/// all ranks that differ in it have it, and of the other ranks their partial results. Empty: all are right.
struct FirstWrongRead {
  std::vector<WrongRead> wrong;   // ascending by rank
  std::vector<WrongRead> others;  // the same read on ranks where it is right
};
[[nodiscard]] FirstWrongRead first_wrong_read(const Case& at, const Activations& expected, std::int64_t step,
                                              bool is_backward);

}  // namespace echelon
