// Which experts each token of a run chose: by step, layer and position, wherever the layout has the token.
#pragma once

#include "parity/training_run.h"
#include "verify/router/choices.h"

namespace echelon::testing {

class RouterChoices {
 public:
  /// Runs the config's training once more, with the sequences in their order, and records it.
  RouterChoices(RunConfig config, Targets targets);

  [[nodiscard]] const echelon::Choices& recorded() const { return choices_; }

 private:
  echelon::Choices choices_;
};

/// All tokens of all steps: sets of experts. Returns how many were compared.
std::int64_t expect_equal_choices(const echelon::Choices& actual, const echelon::Choices& expected,
                                  const RunConfig& config);

}  // namespace echelon::testing
