// What one layout saved, another one resumes: fifteen layouts that have little in common, in float64.
#include "resume/layouts.h"
#include "resume/small_run.h"

#include "cli/program.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "spec/config/config_reader.h"
#include "tree/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <span>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ResumeMatrix : public SmallRun {
 protected:
  static constexpr std::int64_t saved_step = 3;

  RunConfig config_of(const NamedLayout& layout, const std::string& folder) const {
    RunConfig config = this->config(folder);
    layout.set(config.parallelism);
    if (has_experts_) SmallRun::use_experts(config, family_);
    if (has_experts_ && freezes_routers_) {
      config.moe.freeze_router = true;
    } else if (has_experts_) {
      config.moe = {.seq_aux_loss_coeff = 0.1, .global_aux_loss_coeff = 0.2, .z_loss_coeff = 0.05};
      config.moe.bias_update_rate = 0.05;
    }
    if (has_documents_) {
      config.data.path = (scratch_ / "documents").string();
      config.data.packing = Packing::best_fit;
      config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = true;
      config.data.balance_batch = config.data_parallel_degree() > 1;
    }
    if (!base_.empty()) {
      config.checkpoint.initial_load_path = base_;
      config.lora = {.rank = 2, .alpha = 4, .target_modules = {"q_proj", "o_proj", "down_proj"}};
    }
    if (layout.place == Place::emulated_gpu) config.training.device = DeviceChoice::cuda;
    return config;
  }

  Steps run_layout(const NamedLayout& layout, const RunConfig& config) const {
    if (layout.place != Place::processes) return run(config);
    std::filesystem::create_directories(config.output.dir);
    const std::string path = config.output.dir + ".toml";
    std::ofstream(path) << to_toml(config);
    const Outcome outcome = run_echelon_processes(config.mesh_shape().num_ranks(), {"train", path});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return steps_of_metrics(std::filesystem::path(config.output.dir) / "metrics.jsonl");
  }

  /// The uninterrupted run on a layout, which leaves a checkpoint after saved_step.
  const Steps& uninterrupted(const NamedLayout& layout) {
    Steps& steps = uninterrupted_[layout.name];
    if (steps.losses.empty()) steps = run_layout(layout, config_of(layout, layout.name));
    return steps;
  }

  void expect_resumes(const NamedLayout& from, const NamedLayout& to) {
    SCOPED_TRACE(std::string(from.name) + " to " + to.name);
    const Steps expected = after(saved_step, uninterrupted(layouts().front()));
    (void)uninterrupted(from);
    const std::string folder = std::string(from.name) + "-to-" + to.name;
    RunConfig config = config_of(to, folder);
    config.checkpoint.load = checkpoint(from.name, saved_step).string();
    const Steps resumed = run_layout(to, config);
    ASSERT_EQ(resumed.losses.size(), expected.losses.size());
    for (const auto& [step, loss] : expected.losses)
      EXPECT_NEAR(resumed.losses.at(step), loss, 1e-11 * loss) << "step " << step;
    const StateValues state = read_state(checkpoint(folder, config.training.steps));
    const auto at_end = checkpoint(layouts().front().name, config.training.steps);
    EXPECT_LE(worst_difference(state, read_state(at_end), 1e-3), 1e-9);
    const SavedRouters routers = StateReader(checkpoint(folder, config.training.steps)).manifest().scalars.routers;
    EXPECT_EQ(routers, StateReader(at_end).manifest().scalars.routers);
    const bool moves_routers = has_experts_ && !freezes_routers_;
    EXPECT_EQ(std::ranges::any_of(routers.bias, [](float bias) { return bias != 0; }), moves_routers);
    EXPECT_EQ(std::ranges::any_of(routers.counts, [](std::int64_t rows) { return rows != 0; }), has_experts_);
    if (&from != &to) return;
    EXPECT_EQ(resumed, after(saved_step, uninterrupted(to)));
    EXPECT_EQ(state, read_state(checkpoint(to.name, config.training.steps)));
  }

  /// Itself and the next one.
  void expect_each_resumes(const std::vector<NamedLayout>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      expect_resumes(all[i], all[i]);
      expect_resumes(all[i], all[(i + 1) % all.size()]);
    }
  }

  void use_experts(Family family = Family::dots1) {
    has_experts_ = true;
    family_ = family;
  }
  void freeze_routers() { freezes_routers_ = true; }
  void use_documents() {
    has_documents_ = true;
    IndexedDatasetWriter writer((scratch_ / "documents").string(), TokenType::u16);
    for (std::int32_t document = 0; document < 200; ++document) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t i = 0; i <= document * document % 13; ++i) tokens.push_back((i * i + document) % 125);
      writer.add_document(tokens);
    }
    writer.publish();
  }
  /// Documents of which only parts are trained, and some not at all.
  void use_chats(std::int64_t period) {
    use_documents();
    std::vector<std::uint8_t> is_trained;
    const std::int64_t count = IndexedDataset((scratch_ / "documents").string()).num_tokens();
    for (std::int64_t i = 0; i < count; ++i) is_trained.push_back(i * i % period < period / 2 ? 1 : 0);
    write_loss_mask((scratch_ / "documents").string(), is_trained);
  }
  void use_adapters() {
    RunConfig base = config("base");
    base.training.seed = 7;
    base.training.steps = 2;
    (void)run(base);
    base_ = (output("base") / "model").string();
  }

  bool is_here(const NamedLayout& layout) const {
    return layout.place != Place::processes || std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures");
  }

  void SetUp() override {
    SmallRun::SetUp();
    setenv("ECHELON_CUDA_PLUGIN", ECHELON_BINARY_DIR "/libechelon_cuda_emulated.so", 1);
  }
  ~ResumeMatrix() override { unsetenv("ECHELON_CUDA_PLUGIN"); }

 private:
  std::map<std::string, Steps> uninterrupted_;
  Family family_ = Family::dots1;  // with experts
  bool has_documents_ = false, has_experts_ = false, freezes_routers_ = false;
  std::string base_;  // of adapters, if they are trained
};

// Each layout resumes itself, bit for bit, and one other layout, in an order that the seed decides.
//
// Claim (training): Any of fifteen layouts that have little in common resumes the checkpoint of any
//   other one, and its own with identical bits.
// Bound: 5 steps in float64: losses to 1e-11, weights and moments to 1e-9.
// Tests: ResumeMatrix
TEST_F(ResumeMatrix, EachLayoutResumesItselfAndAnother) {
  std::vector<std::size_t> order(layouts().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(21));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const NamedLayout &from = layouts()[order[i]], &to = layouts()[order[(i + 1) % order.size()]];
    if (is_here(from)) expect_resumes(from, from);
    if (is_here(from) && is_here(to)) expect_resumes(from, to);
  }
}

TEST_F(ResumeMatrix, LayoutsOfDocumentsResumeThemselvesAndTheNext) {
  use_documents();
  expect_each_resumes(layouts_of_documents());
}

TEST_F(ResumeMatrix, LayoutsOfExpertsResumeThemselvesAndTheNext) {
  use_experts();
  expect_each_resumes(layouts_of_experts());
}

/// The last three of layouts_of_experts(), and some of the fifteen.
TEST_F(ResumeMatrix, MixedLayoutsOfExpertsResumeOthersAndAreResumed) {
  use_experts();
  const auto mixed = std::span(layouts_of_experts()).last(3);
  const std::size_t others[] = {4, 6, 9};  // ZeRO-3, tensor parallelism, DualPipeV
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    expect_resumes(layouts()[others[i]], mixed[i]);
    expect_resumes(mixed[i], layouts()[others[(i + 1) % mixed.size()]]);
  }
}

TEST_F(ResumeMatrix, LayoutsOfLatentAttentionResumeThemselvesAndTheNext) {
  use_experts(Family::deepseek_v3);
  expect_each_resumes(layouts_of_latents());
}

TEST_F(ResumeMatrix, LayoutsOfFrozenRoutersResumeThemselvesAndTheNext) {
  use_experts();
  freeze_routers();
  expect_each_resumes(layouts_of_experts());
}

// The next sequence is the next one of the packed conversations, with its own part of the mask.
TEST_F(ResumeMatrix, LayoutsOfChatsResumeThemselvesAndTheNext) {
  use_documents();
  const Steps all_trained = run(config_of(layouts().front(), "all-trained"));
  use_chats(17);
  expect_each_resumes(layouts_of_documents());
  EXPECT_GT(
      std::abs(uninterrupted(layouts().front()).losses.at(saved_step + 1) - all_trained.losses.at(saved_step + 1)),
      1e-3);
  (void)run(config_of(layouts().front(), "other-mask"), saved_step);
  use_chats(19);
  EXPECT_THAT([&] { (void)run(config_of(layouts().front(), "other-mask")); },
              ThrowsMessage<Error>(HasSubstr("was made with other data than data.path")));
}

TEST_F(ResumeMatrix, LayoutsOfAdaptersOnChatsResumeThemselvesAndTheNext) {
  use_adapters();
  use_chats(17);
  expect_each_resumes(layouts_of_adapters());
}

TEST_F(ResumeMatrix, EveryPairLong) {
  if (std::getenv("ECHELON_LONG_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_LONG_TESTS to run all 225 pairs";
  for (const NamedLayout& from : layouts())
    for (const NamedLayout& to : layouts())
      if (is_here(from) && is_here(to)) expect_resumes(from, to);
}

TEST_F(ResumeMatrix, EveryPairWithMixedLayoutsOfExpertsLong) {
  if (std::getenv("ECHELON_LONG_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_LONG_TESTS to run all 81 pairs";
  use_experts();
  const auto mixed = std::span(layouts_of_experts()).last(3);
  for (const NamedLayout& one : mixed) {
    for (const NamedLayout& other : layouts()) {
      if (!is_here(other)) continue;
      expect_resumes(one, other);
      expect_resumes(other, one);
    }
    for (const NamedLayout& other : mixed) expect_resumes(one, other);
  }
}

}  // namespace
}  // namespace echelon::testing
