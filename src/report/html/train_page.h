// Collects the reports of a training run until its page is written.
#pragma once

#include "report/html/html_report.h"
#include "report/step_report.h"

#include <cstdint>
#include <vector>

namespace echelon {

class TrainPage {
 public:
  void add(const StepReport& report);
  void add(const EvaluationReport& report);

  /// Tiles, curves and what rank 0 sent in its last step. Nothing before the first step.
  void fill(HtmlReport& page) const;
  [[nodiscard]] std::int64_t num_steps() const { return static_cast<std::int64_t>(steps_.size()); }
  /// The median over all steps except the first, which touches memory for the first time. With a single step, its time.
  [[nodiscard]] double median_step_seconds() const;
  [[nodiscard]] const StepReport& last_step() const { return last_; }

 private:
  [[nodiscard]] std::vector<HtmlTile> tiles() const;
  [[nodiscard]] std::vector<HtmlCurve> curves() const;

  // The plotted values of every step; a run may have millions.
  std::vector<double> steps_, losses_, grad_norms_, lrs_, tokens_per_second_, step_seconds_;
  HtmlCurve::Series validation_ = {.name = "validation"};
  StepReport last_;
};

}  // namespace echelon
