// The page that `echelon train --html` writes.
#pragma once

#include "pages/train_prediction.h"
#include "report/html/train_page.h"
#include "train/train.h"

#include <optional>
#include <string>

namespace echelon {

class TrainHtml {
 public:
  /// Throws Error if `path` cannot be written.
  TrainHtml(std::string path, const RunConfig& config) : file_(std::move(path)), config_(config) {}

  void add(const StepReport& report) { history_.add(report); }
  void add(const EvaluationReport& report) { history_.add(report); }
  void add(const TraceReport& trace) { trace_ = trace; }
  void add(TrainPrediction prediction) { prediction_ = std::move(prediction); }
  /// Memory of rank 0's GPU; 0: rank 0 runs on CPUs.
  void set_device_memory(std::int64_t num_bytes) { device_memory_bytes_ = num_bytes; }
  void note(const std::string& line) { notes_.push_back(line); }

  /// `ending`: a sentence. Throws Failure if the disk is full.
  void write(const std::string& ending) const;
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  void compare(HtmlReport& page) const;

  HtmlFile file_;
  RunConfig config_;
  TrainPage history_;
  std::int64_t device_memory_bytes_ = 0;
  std::optional<TraceReport> trace_;
  std::optional<TrainPrediction> prediction_;
  std::vector<std::string> notes_;
};

}  // namespace echelon
