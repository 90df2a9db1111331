// Reads metrics.jsonl as one run, however often its program was started.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace echelon {

/// The steps and evaluations that led to the run's last step, in their order. When a run resumes from an earlier step,
/// it repeats steps: the later ones count.
struct MetricsHistory {
  struct Line {
    std::int64_t step = 0;
    bool is_evaluation = false;
    double loss = 0;   // of training or validation, in nats; NaN if the run did not know it
    std::string text;  // the JSON object
  };
  std::vector<Line> lines;
  int num_resumed = 0;              // times that the run was resumed
  std::int64_t num_repeated = 0;    // lines of steps that were made again, left out
  std::int64_t num_unreadable = 0;  // lines left out that are no objects: cut off when a run was killed
};

/// Lines of other kinds are skipped. Throws Error if the file cannot be read.
[[nodiscard]] MetricsHistory read_metrics(const std::filesystem::path& path);

/// "steps 1 to 200, 2 resumes; ..." in a few lines.
[[nodiscard]] std::string to_text(const MetricsHistory& history);

}  // namespace echelon
