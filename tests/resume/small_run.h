// A small training run on data of its own, what it computed, and what it left on disk.
#pragma once

#include "checkpoint/scratch_folder.h"
#include "checkpoint/state/state_reader.h"
#include "train/report_log.h"
#include "train/train.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace echelon::testing {

/// Every value of every state of a checkpoint, by "state/parameter".
using StateValues = std::map<std::string, std::vector<double>>;
[[nodiscard]] StateValues read_state(const std::filesystem::path& folder);
/// The largest |a - b| / max(largest |b| of the tensor, floor), over all states.
[[nodiscard]] double worst_difference(const StateValues& a, const StateValues& b, double floor);

/// What a run reported of its steps, by step.
struct Steps {
  std::map<std::int64_t, double> losses, norms;
  bool operator==(const Steps&) const = default;
};
[[nodiscard]] Steps steps_of(const ReportLog& log);
[[nodiscard]] Steps steps_of_metrics(const std::filesystem::path& metrics);
/// Of the steps after `step` alone.
[[nodiscard]] Steps after(std::int64_t step, const Steps& steps);

/// Data of 1,000 tokens, and configs of runs on it.
class SmallRun : public ::testing::Test {
 protected:
  void SetUp() override;
  void write_data(const std::string& name, std::int32_t num_tokens) const;
  /// A tied Llama of float64 with fewer key than query heads and a vocabulary that no degree divides; 12 sequences per
  /// step. A checkpoint every third step.
  [[nodiscard]] RunConfig config(const std::string& folder) const;
  /// Makes its model a dots1 or deepseek_v3 of three layers with six experts, whose routers nothing balances.
  static void use_experts(RunConfig& config, Family family = Family::dots1);
  [[nodiscard]] std::filesystem::path output(const std::string& folder) const { return scratch_ / folder; }
  [[nodiscard]] std::filesystem::path checkpoint(const std::string& folder, std::int64_t step) const;
  /// Runs until its end, or until it has made `last_step`.
  static TrainResult run(const RunConfig& config, ReportLog& log, std::int64_t last_step = 0);
  static Steps run(const RunConfig& config, std::int64_t last_step = 0);

  ScratchFolder scratch_;
};

}  // namespace echelon::testing
