// The real program as an MPI job on this machine, or on two "hosts" of it (two_hosts), with a small corpus out of this
// tree's sources.
#pragma once

#include "cli/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace echelon {

struct Job {
  int num_processes = 2;
  int num_hosts = 1;     // 1 | 2,
  int num_on_first = 0;  // of which the first one has so many processes; 0: as many as the second
  // Further options of mpirun, e.g. "--map-by node": neighbouring ranks on different hosts.
  std::string placing = "";
  std::vector<std::string> keys;  // of the config
  std::string link = "";          // options of two_hosts
  std::string key_of_last = "";   // of the last process alone
};

class Jobs : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Why the job cannot be run on this machine; empty if it can.
  [[nodiscard]] static std::string obstacle(int num_hosts);

  [[nodiscard]] Outcome run(const Job& job, const Watch& watch = {}) const;
  [[nodiscard]] Outcome run_on_threads(const std::vector<std::string>& keys) const;
  /// Processes of this test's jobs, by a look at /proc; `rank` -1: of all ranks.
  [[nodiscard]] std::vector<int> processes(int rank) const;

  /// The lines of metrics.jsonl of the last run.
  [[nodiscard]] std::vector<nlohmann::json> metrics() const;
  /// Bytes that the first host's card sent during the last run over two hosts, Ethernet's headers included.
  [[nodiscard]] std::int64_t bytes_on_link() const;

  std::string folder_;

 private:
  [[nodiscard]] std::vector<std::string> train(const std::vector<std::string>& keys) const;
};

}  // namespace echelon
