// The time of a step by operation: measured steps of one rank, summed by kind, next to the lower bound of the CPU.
//
//     floor = max(flops / peak of multiply-adds, bytes / memory bandwidth), summed over the calls
//
// An operation with operands in caches may be faster than the bound, since its bytes do not come from memory.
#pragma once

#include "report/step_trace.h"
#include "spec/machine/host_spec.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// Sums over the traced steps, per step.
struct OperationRow {
  std::string name;
  double calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
  std::optional<double> floor_seconds = {};  // of operations
  double multiply_add_seconds = 0;           // of the floor, what the peak of multiply-adds alone allows
};

struct OperationTable {
  std::int64_t num_steps = 0;
  double step_seconds = 0;                                    // mean
  std::vector<OperationRow> rows;                             // longest first: operations, communication, load_batch
  std::map<std::string, std::vector<OperationRow>> by_shape;  // of an operation: "1024x768x3072 float32", longest first
  double unnamed_seconds = 0;                                 // in no row

  [[nodiscard]] double named_fraction() const { return step_seconds > 0 ? 1 - unnamed_seconds / step_seconds : 1; }
  [[nodiscard]] double floor_seconds() const;
};

/// `rates`: of the cores that the rank computes on. Needs at least one trace.
[[nodiscard]] OperationTable operation_table(const std::vector<StepTrace>& steps, const Program& program,
                                             const ComputeRates& rates);

/// What contradicts the rates: one sentence per operation whose multiply-adds took less than their peak allows, and one
/// if the step took less than its floor.
[[nodiscard]] std::vector<std::string> probe_errors(const OperationTable& table);

/// Some lines of text, with shares of the step and bound / measured in percent.
[[nodiscard]] std::string to_text(const OperationTable& table);
/// One object with all values of the table.
[[nodiscard]] std::string to_json(const OperationTable& table);

}  // namespace echelon
