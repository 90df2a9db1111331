// A job over two hosts: the numbers of thread ranks, and on the wire what the layout says.
#include "hosts/job.h"

#include <gmock/gmock.h>

#include <set>

namespace echelon {
namespace {

std::vector<std::vector<nlohmann::json>> numbers(const std::vector<nlohmann::json>& steps) {
  std::vector<std::vector<nlohmann::json>> all;
  for (const auto& step : steps) all.push_back({step["loss"], step["grad_norm"]});
  return all;
}

const std::vector<std::string> data_tensor_pipeline = {"--parallelism.data_parallel_shard_degree=2",
                                                       "--parallelism.tensor_parallel_degree=2",
                                                       "--parallelism.pipeline_parallel_degree=2"};

// Claim (processes): Eight processes on two hosts (data 2 x tensor 2 x pipeline 2, TCP between
//   them) give the bits of eight threads.
// Bound: losses and norms are identical.
// Tests: Jobs.OverTwoHosts
TEST_F(Jobs, OverTwoHostsGiveTheBitsOfThreads) {
  if (const std::string why = obstacle(2); !why.empty()) GTEST_SKIP() << why;
  ASSERT_EQ(run_on_threads(data_tensor_pipeline).status, 0);
  const auto expected = numbers(metrics());
  ASSERT_EQ(expected.size(), 3U);

  // The pipeline across and everything else inside the hosts, then tensor-parallel neighbours on different ones.
  for (const char* placing : {"--map-by slot", "--map-by node"}) {
    const Outcome outcome = run({.num_processes = 8, .num_hosts = 2, .placing = placing, .keys = data_tensor_pipeline});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(numbers(metrics()), expected) << placing;
    EXPECT_GT(bytes_on_link(), 0);
  }
}

/// The groups in which rank 0 sent something.
std::set<std::string> groups(const std::vector<nlohmann::json>& steps) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : steps.back()["comm_bytes"].items()) names.insert(name);
  return names;
}

struct ExpertJob {
  const char* name;
  int num_processes;
  const char* placing;
  std::vector<std::string> keys;      // of parallelism
  const char* of_threads_alone = "";  // what a launcher knows
  int num_on_first = 0;
  const char* described = "";
};

std::vector<ExpertJob> expert_jobs() {
  const char *four = "data_parallel_shard_degree=4", *two_nodes = "ranks_per_node=2", *slots = "--map-by slot";
  const std::vector<std::string> tensor = {"tensor_parallel_degree=2", "sequence_parallel=true"};
  const auto with_tensor = [&](std::vector<std::string> keys) {
    keys.insert(keys.end(), tensor.begin(), tensor.end());
    return keys;
  };
  return {
      {"directly", 4, slots, {four, "expert_parallel_degree=4", "expert_dispatch=direct"}, two_nodes},
      {"once for each host", 4, slots, {four, "expert_parallel_degree=4", "expert_dispatch=hierarchical"}, two_nodes},
      {"by default once for each host",
       4,
       slots,
       {four, "expert_parallel_degree=4"},
       two_nodes,
       0,
       "experts: rows go in two hops over 2 nodes, with 2 of the 4 ranks"},
      {"directly over uneven hosts",
       4,
       slots,
       {four, "expert_parallel_degree=4"},
       "",
       3,
       "experts: rows go directly, since one host has 3 ranks and another has 1"},
      {"directly between neighbours on different hosts",
       4,
       "--map-by node",
       {four, "expert_parallel_degree=4"},
       "",
       0,
       "experts: rows go directly, since rank 2 is on a host of ranks before rank 1"},
      {"features of an expert on both hosts", 8, "--map-by node",
       with_tensor({four, "expert_parallel_degree=2", "expert_tensor_parallel_degree=2", "zero_level=3"})},
      {"a pipeline between the hosts", 8, slots,
       with_tensor({"data_parallel_shard_degree=2", "pipeline_parallel_degree=2", "expert_parallel_degree=4",
                    "pipeline_parallel_schedule=ZB-H1", "zero_level=2"})}};
}

TEST_F(Jobs, WithExpertsOverTwoHostsGiveTheBitsOfThreads) {
  if (const std::string why = obstacle(2); !why.empty()) GTEST_SKIP() << why;
  for (const ExpertJob& job : expert_jobs()) {
    SCOPED_TRACE(job.name);
    std::vector<std::string> keys = {"--model.preset=mixtral-30m", "--model.hidden_size=64",
                                     "--model.moe_intermediate_size=32", "--moe.global_aux_loss_coeff=0.01"};
    for (const std::string& key : job.keys) keys.push_back("--parallelism." + key);
    std::vector<std::string> of_threads = keys;
    if (*job.of_threads_alone != 0) of_threads.push_back(std::string("--parallelism.") + job.of_threads_alone);
    ASSERT_EQ(run_on_threads(of_threads).status, 0);
    const auto of_threads_alone = metrics();
    const auto expected = numbers(of_threads_alone);
    ASSERT_EQ(expected.size(), 3U);
    const Outcome outcome = run({.num_processes = job.num_processes,
                                 .num_hosts = 2,
                                 .num_on_first = job.num_on_first,
                                 .placing = job.placing,
                                 .keys = keys});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(numbers(metrics()), expected);
    EXPECT_EQ(groups(metrics()), groups(of_threads_alone)) << "other groups have sent rows";
    EXPECT_THAT(outcome.out + outcome.err, testing::HasSubstr(job.described));
    EXPECT_GT(bytes_on_link(), 0);
  }
}

/// What rank 0 sent in a group during all steps.
std::int64_t sent(const std::vector<nlohmann::json>& steps, const char* group) {
  std::int64_t bytes = 0;
  for (const auto& step : steps) bytes += step["comm_bytes"].value(group, std::int64_t{0});
  return bytes;
}

// Ranks 0 1 are one tensor-parallel pair, 0 2 one data-parallel pair. Both ranks of a host send alike, so the wire
// carries twice what rank 0 sends in the group that lies across, and else only what starts a job and the sums of a few
// numbers.
TEST_F(Jobs, PutOnTheLinkWhatTheirLayoutSays) {
  if (const std::string why = obstacle(2); !why.empty()) GTEST_SKIP() << why;
  Job job = {.num_processes = 4,
             .num_hosts = 2,
             .placing = "--map-by slot",
             .keys = {"--parallelism.data_parallel_shard_degree=2", "--parallelism.tensor_parallel_degree=2",
                      "--training.steps=6", "--training.seq_len=64", "--training.global_batch_size=16"}};
  constexpr double start = 600e3, headers = 1.1;
  ASSERT_EQ(run(job).status, 0);
  const std::int64_t tensor_inside = bytes_on_link();
  const std::int64_t data_bytes = 2 * sent(metrics(), "dp_shard+cp"), tensor_bytes = 2 * sent(metrics(), "tp");
  ASSERT_GT(tensor_bytes, 2 * data_bytes);
  ASSERT_GT(data_bytes, static_cast<std::int64_t>(start));
  EXPECT_GT(tensor_inside, data_bytes);
  EXPECT_LT(static_cast<double>(tensor_inside), headers * static_cast<double>(data_bytes) + start);

  job.placing = "--map-by node";
  ASSERT_EQ(run(job).status, 0);
  const std::int64_t tensor_across = bytes_on_link();
  EXPECT_GT(tensor_across, tensor_bytes);
  EXPECT_LT(static_cast<double>(tensor_across), headers * static_cast<double>(tensor_bytes) + start);
}

}  // namespace
}  // namespace echelon
