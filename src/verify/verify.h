// A layout against one rank: the same initial weights, the same global batches, some steps; the loss, the gradient
// norm, every gradient and every updated weight on every rank are compared. A difference is diagnosed.
#pragma once

#include "verify/diagnosis.h"

#include <optional>

namespace echelon {

struct VerifyOptions {
  std::int64_t num_steps = 3;
  Interpose interpose = {};  // of the layout's ranks: a place for tests
};

struct Verdict {
  std::array<WorstError, num_quantities> worst;  // by quantity
  Tolerances tolerances{};
  std::optional<Difference> first;  // the first difference, if there is one
  std::string place;                // of it
  std::optional<Diagnosis> diagnosis;

  [[nodiscard]] bool is_equal() const { return !first.has_value(); }
};

/// Ranks are threads. `config` says how many steps its learning rates are for; no more are run.
[[nodiscard]] Verdict verify(const RunConfig& config, const BatchSource& batches, const VerifyOptions& options = {});

}  // namespace echelon
