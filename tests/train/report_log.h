// Keeps what a training run reports.
#pragma once

#include "engine/run_observer.h"

#include <functional>
#include <optional>
#include <vector>

namespace echelon::testing {

class ReportLog final : public RunObserver {
 public:
  void described(const std::string& line) override { lines.push_back(line); }
  void reported(const StepReport& report) override {
    steps.push_back(report);
    if (after_step) after_step(report);
  }
  void validated(const EvaluationReport& report) override { evaluations.push_back(report); }
  void warned(const std::string& sentence) override {
    warnings.push_back(sentence);
    if (after_warning) after_warning();
  }
  void saved(const std::filesystem::path& folder) override { folders.push_back(folder); }
  void traced(const TraceReport& report) override { trace = report; }

  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  std::vector<std::filesystem::path> folders;
  std::vector<std::string> lines, warnings;
  std::optional<TraceReport> trace;
  std::function<void(const StepReport& report)> after_step;
  std::function<void()> after_warning;
};

}  // namespace echelon::testing
