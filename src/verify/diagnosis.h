// Diagnoses a fault from the first difference: what the values are instead, and which axis, reduced to one, removes the
// difference.
#pragma once

#include "verify/finding.h"

#include <functional>

namespace echelon {

/// The layout with the axis ("tp", "microbatches", "sequence_parallel", ...) reduced to one, over the same global
/// batches.
[[nodiscard]] RunConfig without_axis(RunConfig config, const std::string& axis);

struct Diagnosis {
  Finding finding;
  std::vector<std::string> gone_without;  // axes whose removal removes the difference
  std::vector<std::string> stays_without;
  // "tp (sentence)": axes without which the run fails, and why.
  std::vector<std::string> fails_without;

  /// "missing sum over tp: the output of ...: each rank has ...; without tp the difference is gone".
  [[nodiscard]] std::string sentence() const;
};

/// `differs`: whether a layout, run in the same way, differs from one rank.
[[nodiscard]] Diagnosis diagnose(const Case& at, const std::function<bool(const RunConfig& layout)>& differs);

}  // namespace echelon
