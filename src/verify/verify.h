// Compares a layout with one rank, from the same initial weights and global batches, for some steps: the loss, the
// gradient norm, and every gradient and updated weight on every rank. Diagnoses a difference.
#pragma once

#include "verify/diagnosis.h"
#include "verify/router/choices.h"

#include <optional>

namespace echelon {

struct VerifyOptions {
  std::int64_t num_steps = 3;
  Interpose interpose = {};            // wraps the layout's ranks, for tests,
  Interpose interpose_reference = {};  // and one rank
};

struct Verdict {
  std::optional<ChoiceComparison> choices;       // of a model with experts
  std::array<WorstError, num_quantities> worst;  // by quantity
  Tolerances tolerances{};
  std::optional<Difference> first;  // of the first difference, if any
  std::string place;                // of it
  std::optional<Diagnosis> diagnosis;

  [[nodiscard]] bool is_equal() const { return !first && (!choices || choices->num_wrong == 0); }
};

/// Ranks are threads. The learning rates are for the steps of `config`, which bound the number of steps.
[[nodiscard]] Verdict verify(const RunConfig& config, const BatchSource& batches, const VerifyOptions& options = {});

}  // namespace echelon
