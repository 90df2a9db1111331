// `echelon plan` of a tiny model, as tests ask it.
#pragma once

#include "cli/program.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace echelon {

inline Outcome planned(const std::vector<std::string>& more, const std::string& batch = "8") {
  std::vector<std::string> arguments = {"plan", "--model=llama-1m", "--global-batch-size=" + batch, "--seq-len=64"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_echelon(arguments);
}

inline nlohmann::json planned_json(std::vector<std::string> more, const std::string& batch = "8") {
  more.emplace_back("--json");
  const Outcome outcome = planned(more, batch);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

inline nlohmann::json best_plan(const std::vector<std::string>& more) { return planned_json(more)["plans"][0]; }

}  // namespace echelon
