// Progress of a run: one line that is redrawn on a terminal, plain lines in a log. Both show when the run will end.
#pragma once

#include "report/step_report.h"

#include <cstdint>
#include <deque>
#include <iosfwd>

namespace echelon {

enum class ProgressStyle : std::uint8_t { terminal, log };

class Progress {
 public:
  struct Options {
    std::int64_t num_steps = 0;
    std::int64_t log_freq = 1;  // steps between lines of a log; the first and the last step always have one
    ProgressStyle style = ProgressStyle::log;
  };

  /// `out` must outlive this object.
  Progress(const Options& options, std::ostream& out) : options_(options), out_(out) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  /// A permanent line: an evaluation, a checkpoint.
  void note(const std::string& line);

 private:
  [[nodiscard]] double eta_seconds(std::int64_t step) const;
  void draw(const StepReport& report);

  Options options_;
  std::ostream& out_;
  std::deque<double> recent_seconds_;  // of the last steps
  std::string drawn_;                  // the line shown on the terminal
};

/// "42s", "3m05s", "2h07m", "4d03h"
[[nodiscard]] std::string duration(double seconds);

}  // namespace echelon
