// What a first user asks of `plan`: every question has an answer that fits with room for the driver, in a 16-bit
// format, with an interval, and that asking for fewer rows does not better.
#include "plan/search/search.h"

#include "plan/some_host.h"
#include "plan/text/text.h"
#include "predict/published/promise.h"
#include "scratch_folder.h"
#include "spec/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>

namespace echelon {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t work_of_a_question = 1'000'000,  // the experts' shapes, and the polish of what is listed
    work_of_a_textbook_config = 4'000'000;

const std::string two_nodes_with_one_slow_card = "two nodes with one slow card";

struct UserQuestion {
  std::string model, machine;
  std::int64_t gpus = 1, batch = 1, seq_len = 1;
  /// What an expert would require of the degrees.
  bool (*is_sensible)(const PlanShape& shape, const PlanData& data) = nullptr;
};

std::ostream& operator<<(std::ostream& out, const UserQuestion& question) {
  return out << question.model << " on " << question.gpus << " of " << question.machine;
}

/// 16 A100 of 40 GB whose nodes have one card of 10 Gbit/s.
std::string file_of_slow_nodes() {
  MachineSpec machine = read_machine("a100-40");
  machine.nodes.front().num_nics = 1;
  machine.nodes.front().nic_bandwidth = 10e9 / 8;
  std::string path = scratch_folder() + "/slow_nodes.toml";
  std::ofstream(path) << to_toml(machine);
  return path;
}

/// 30 B parameters: 60 blocks of width 6,656.
std::string file_of_30b() {
  std::string path = scratch_folder() + "/30b.toml";
  std::ofstream(path) << "[model]\nmodel_type = \"llama\"\nhidden_size = 6656\nnum_hidden_layers = 60\n"
                         "num_attention_heads = 52\nintermediate_size = 17920\nvocab_size = 32000\n"
                         "max_position_embeddings = 4096\n";
  return path;
}

PlanQuestion planned_question(const UserQuestion& asked, std::int64_t top) {
  PlanQuestion question = {
      .model = asked.model == "30b" ? file_of_30b() : asked.model,
      .machine = asked.machine == two_nodes_with_one_slow_card ? file_of_slow_nodes() : asked.machine,
      .gpus = asked.gpus,
      .global_batch_size = asked.batch,
      .seq_len = asked.seq_len,
      .top = top,
      .work = work_of_a_question};
  question.settings = {fmt::format("--model.max_position_embeddings={}", std::max<std::int64_t>(8192, asked.seq_len))};
  return question;
}

class UserQuestions : public testing::TestWithParam<UserQuestion> {};

// Claim (plans): Asking `plan` for more rows never makes the first one worse.
// Bound: eleven questions of a first user, Llama-3 405B on 16,384 GPUs among them.
// Tests: UserQuestions
TEST_P(UserQuestions, HaveASensibleAnswerThatMoreRowsDoNotWorsen) {
  const UserQuestion& asked = GetParam();
  const PlanRequest request = read_plan_request(planned_question(asked, 2));
  const PlanResult found = find_fitting_plans(request);
  ASSERT_FALSE(found.plans.empty());
  const Plan& first = found.plans.front();
  EXPECT_TRUE(asked.is_sensible(first.choice.shape, first.choice.data)) << to_text(found, request);
  EXPECT_EQ(size_of(first.config.training.dtype), 2);
  const DeviceSpec& device = request.machine.nodes.front().device;
  for (const Plan& plan : found.plans)
    EXPECT_LE(plan.outcome.peak_memory_bytes(), device.memory_bytes - device.reserved_bytes);
  const SecondsRange range = seconds_range(first.outcome, request.machine, request.profile);
  EXPECT_LT(range.low, first.outcome.step_seconds);
  EXPECT_GT(range.high, first.outcome.step_seconds);

  const PlanResult alone = find_fitting_plans(read_plan_request(planned_question(asked, 1)));
  EXPECT_LE(first.outcome.step_seconds, alone.plans.front().outcome.step_seconds * (1 + 1e-9));
}

bool is_any(const PlanShape& /*shape*/, const PlanData& /*data*/) { return true; }
bool is_sharded_data_parallelism(const PlanShape& shape, const PlanData& data) {
  return shape.tp == 1 && shape.pp == 1 && data.shard > 1;
}
bool keeps_tensor_parallelism_in_nodes(const PlanShape& shape, const PlanData& /*data*/) { return shape.tp <= 8; }
bool is_tensor_in_nodes_and_pipeline(const PlanShape& shape, const PlanData& /*data*/) {
  return shape.tp > 1 && shape.tp <= 8 && shape.pp > 1;
}
bool is_pipeline(const PlanShape& shape, const PlanData& /*data*/) { return shape.pp > 1; }

INSTANTIATE_TEST_SUITE_P(
    Plan, UserQuestions,
    testing::Values(UserQuestion{"llama3-8b", "h100", 8, 64, 8192, is_sharded_data_parallelism},
                    UserQuestion{"llama3-8b", "h100", 16, 64, 8192, is_sharded_data_parallelism},
                    UserQuestion{"llama3-8b", "h100", 64, 64, 32768, keeps_tensor_parallelism_in_nodes},
                    UserQuestion{"llama3-8b", "h100", 64, 64, 131072, keeps_tensor_parallelism_in_nodes},
                    UserQuestion{"llama3-8b", "h100", 7, 64, 8192, is_any},
                    UserQuestion{"llama3-8b", "h100", 13, 13, 8192, is_any},
                    UserQuestion{"llama3-70b", "h100", 64, 256, 8192, keeps_tensor_parallelism_in_nodes},
                    UserQuestion{"llama3-405b", "h100", 16384, 2048, 8192, is_tensor_in_nodes_and_pipeline},
                    UserQuestion{"gpt3-175b", "a100-80", 1024, 1536, 2048, keeps_tensor_parallelism_in_nodes},
                    UserQuestion{"llama2-13b", "v100", 32, 512, 4096, keeps_tensor_parallelism_in_nodes},
                    UserQuestion{"30b", two_nodes_with_one_slow_card, 16, 128, 2048, is_pipeline}));

// What helps is tried: with so many devices a layout fits.
TEST(FirstUser, IsToldHowManyDevicesAreEnough) {
  for (const UserQuestion& asked :
       {UserQuestion{"llama3-70b", "h100", 8, 64, 8192}, UserQuestion{"llama3-8b", "a100-40", 1, 64, 8192}}) {
    const PlanResult found = find_plans(read_plan_request(planned_question(asked, 1)));
    ASSERT_TRUE(found.plans.empty());
    ASSERT_FALSE(found.suggestions.empty());
    constexpr std::string_view flag = "--gpus=";
    const std::size_t at = found.suggestions.back().find(flag);
    ASSERT_NE(at, std::string::npos) << found.suggestions.back();
    UserQuestion more = asked;
    more.gpus = std::stoll(found.suggestions.back().substr(at + flag.size()));
    EXPECT_GT(more.gpus, asked.gpus);
    EXPECT_FALSE(find_plans(read_plan_request(planned_question(more, 1))).plans.empty());
  }
}

// The key of the machine file: with 20 GiB less, plans take 20 GiB less at most.
TEST(FirstUser, FindsTheReserveOfDevicesInTheMachineFile) {
  MachineSpec machine = read_machine("a100-80");
  machine.nodes.front().device.reserved_bytes = std::int64_t{20} << 30;
  const std::string path = scratch_folder() + "/reserved.toml";
  std::ofstream(path) << to_toml(machine);
  PlanQuestion question = planned_question({"llama3-8b", path, 8, 64, 8192}, 3);
  question.within_percent = 20;
  const PlanRequest request = read_plan_request(question);
  EXPECT_EQ(request.machine.nodes.front().device.reserved_bytes, std::int64_t{20} << 30);
  const PlanResult found = find_plans(request);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans)
    EXPECT_LE(plan.outcome.peak_memory_bytes(),
              request.machine.nodes.front().device.memory_bytes - (std::int64_t{20} << 30));
  EXPECT_THAT(to_text(found, request), HasSubstr("for the driver, libraries and NCCL)"));
}

// A host whose products in bfloat16 take longer than those in float32, since it has no instructions for them.
TEST(FirstUser, OnACpuWithoutBfloat16TakesFloat32AndComparesIt) {
  HostSpec host = *some_host().host;
  host.device.bfloat16_flops = host.core.bfloat16_flops = 0;
  auto& of_bfloat16 = host.operations["matmul"]["bfloat16"] = host.operations["matmul"]["float32"];
  for (auto& each : of_bfloat16) {
    each.core_seconds *= 1.2;
    each.busy_seconds *= 1.2;
    each.shared_seconds *= 1.2;
  }
  PlanQuestion question;
  question.model = "llama-1m";
  question.gpus = 2;
  question.global_batch_size = 8;
  question.seq_len = 64;
  question.settings = {"--training.micro_batch_size=1", "--training.recompute=none", "--parallelism.virtual_stages=1"};
  question.this_machine = [&] { return machine_of(host); };
  const PlanRequest request = read_plan_request(question);
  EXPECT_EQ(request.base.training.dtype, DType::float32);
  EXPECT_TRUE(request.chooses_dtype);
  const PlanResult found = find_plans(request);
  const auto is_bfloat16 = [](const Plan& plan) { return plan.config.training.dtype == DType::bfloat16; };
  const auto other = std::ranges::find_if(found.in_other_formats, is_bfloat16);
  ASSERT_NE(other, found.in_other_formats.end());
  EXPECT_GT(other->outcome.step_seconds, found.plans.front().outcome.step_seconds);
  EXPECT_THAT(to_text(found, request), HasSubstr("the first layout in bfloat16: "));
}

// Blocks of 16 values: what the longest sequences have, but not the single token with which the model is read.
TEST(FirstUser, PlansFloat8WithoutNamingASequenceLength) {
  PlanQuestion question;
  question.model = "llama-1m";
  question.machine = "h100";
  question.gpus = 2;
  question.global_batch_size = 8;
  question.settings = {"--training.linear_dtype=float8"};
  const PlanRequest request = read_plan_request(question);
  EXPECT_EQ(request.base.training.seq_len, request.base.model.max_position_embeddings);
  EXPECT_TRUE(request.base.training.linear_dtype);
}

// All configs of the folder that fit their machine, but the four of PlanForExperts: new ones are found by themselves.
TEST(FirstUser, NoConfigOfTheTextbookBeatsThePlanForItsModel) {
  int num_compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ECHELON_SOURCE_DIR "/examples/textbook")) {
    const std::string name = entry.path().filename();
    constexpr std::string_view of_experts[] = {"llama3-405b.toml", "llama3-70b.toml", "gpt3-175b.toml",
                                               "mtnlg-530b.toml"};
    if (!name.ends_with(".toml") || std::ranges::find(of_experts, name) != std::end(of_experts)) continue;
    SCOPED_TRACE(name);
    RunConfig config = read_run_config({.path = entry.path(), .arguments = {}, .read_model = {}});
    PlanQuestion question;
    question.model = entry.path();
    question.machine = name.starts_with("megatron")   ? "v100-dgx2"
                       : name.starts_with("deepseek") ? "h800"
                       : name.starts_with("mixtral")  ? "h100"
                                                      : "a100-80";
    question.gpus = config.mesh_shape().num_ranks();
    question.top = 1;
    question.work = work_of_a_textbook_config;
    const PlanRequest request = read_plan_request(question);
    config.training.dtype = request.base.training.dtype;
    config.training.device = request.base.training.device;
    const Simulation as_written = simulate(Blueprint(config), request.machine);
    if (!as_written.fits()) continue;
    const PlanResult found = find_fitting_plans(request);
    ASSERT_FALSE(found.plans.empty());
    EXPECT_LE(found.plans.front().outcome.step_seconds, as_written.step_seconds * (1 + 1e-9));
    ++num_compared;
  }
  EXPECT_GE(num_compared, 7);  // OPT-175B, the four of Megatron-LM, DeepSeek-V3 and Mixtral 8x22B
}

}  // namespace
}  // namespace echelon
