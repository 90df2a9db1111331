// What one layout saved, another one resumes: twelve layouts that have little in common, in float64.
#include "resume/small_run.h"

#include "cli/program.h"
#include "data/indexed_dataset.h"
#include "spec/config/config_reader.h"
#include "tree/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

namespace echelon::testing {
namespace {

enum class Place : std::uint8_t { threads, processes, emulated_gpu };

struct NamedLayout {
  const char* name;
  std::function<void(ParallelConfig& p)> set;
  Place place = Place::threads;
};

const std::vector<NamedLayout>& layouts() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"replicas-2", [](ParallelConfig& p) { p.data_parallel_replicate_degree = 2; }},
      {"zero1-4", [](ParallelConfig& p) { p.data_parallel_shard_degree = 4; }},
      {"zero2-3",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 3;
         p.zero_level = 2;
       }},
      {"zero3-4",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = 4;
         p.zero_level = 3;
       }},
      {"hsdp-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_replicate_degree = p.data_parallel_shard_degree = 2;
         p.zero_level = 3;
       }},
      {"tp-sp-4",
       [](ParallelConfig& p) {
         p.tensor_parallel_degree = 4;
         p.sequence_parallel = true;
       }},
      {"pp-3", [](ParallelConfig& p) { p.pipeline_parallel_degree = 3; }},
      {"interleaved-2x2",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.virtual_stages = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::interleaved_one_f_one_b;
       }},
      {"dualpipev",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.pipeline_parallel_schedule = PipelineSchedule::dualpipe_v;
       }},
      {"mpi-2x2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.tensor_parallel_degree = p.pipeline_parallel_degree = 2;
         p.order = parse_axis_order("order", {"tp-cp-ep-dp-pp"});
       },
       Place::processes},
      {"emulated-gpu", [](ParallelConfig&) {}, Place::emulated_gpu},
  };
  return all;
}

/// On documents that are packed, whose token lists, positions and balanced batches are part of what is resumed.
const std::vector<NamedLayout>& layouts_of_documents() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"packed-4",
       [](ParallelConfig& p) {
         p.context_parallel_degree = 4;
         p.context_parallel_load_balancer = LoadBalancer::packed;
       }},
      {"zero2-packed-2x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.context_parallel_degree = p.zero_level = 2;
         p.context_parallel_load_balancer = LoadBalancer::packed;
         p.context_parallel_method = ContextMethod::all_gather;
       }},
      {"pp-per-document-2x3",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.context_parallel_degree = 3;
         p.context_parallel_load_balancer = LoadBalancer::per_document;
       }},
  };
  return all;
}

/// Of a mixture of experts, whose stacked weights are cut along another dim by each axis.
const std::vector<NamedLayout>& layouts_of_experts() {
  static const std::vector<NamedLayout> all = {
      {"one-rank", [](ParallelConfig&) {}},
      {"zero3-tp-3x2",
       [](ParallelConfig& p) {
         p.data_parallel_shard_degree = p.zero_level = 3;
         p.tensor_parallel_degree = 2;
       }},
      {"pp-tp-sp-2x4",
       [](ParallelConfig& p) {
         p.pipeline_parallel_degree = 2;
         p.tensor_parallel_degree = 4;
         p.sequence_parallel = true;
       }},
  };
  return all;
}

class ResumeMatrix : public SmallRun {
 protected:
  static constexpr std::int64_t saved_step = 3;

  RunConfig config_of(const NamedLayout& layout, const std::string& folder) const {
    RunConfig config = this->config(folder);
    layout.set(config.parallelism);
    if (has_experts_) {
      const ModelSpec dense = config.model;
      config.model = preset("mixtral-30m");
      config.moe = {.seq_aux_loss_coeff = 0.1, .global_aux_loss_coeff = 0.2, .z_loss_coeff = 0.05};
      config.model.mixture.num_experts = 5;
      config.model.mixture.moe_intermediate_size = config.model.intermediate_size = 12;
      config.model.hidden_size = dense.hidden_size;
      config.model.num_hidden_layers = 3;
      config.model.num_attention_heads = dense.num_attention_heads;
      config.model.head_dim = dense.head_dim;
      config.model.vocab_size = dense.vocab_size;
      config.model.initializer_range = dense.initializer_range;
    }
    if (has_documents_) {
      config.data.path = (scratch_ / "documents").string();
      config.data.packing = Packing::best_fit;
      config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = true;
      config.data.balance_batch = config.data_parallel_degree() > 1;
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
    EXPECT_LE(worst_difference(state, read_state(checkpoint(layouts().front().name, config.training.steps)), 1e-3),
              1e-9);
    if (&from != &to) return;
    EXPECT_EQ(resumed, after(saved_step, uninterrupted(to)));
    EXPECT_EQ(state, read_state(checkpoint(to.name, config.training.steps)));
  }

  void use_experts() { has_experts_ = true; }
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
  bool has_documents_ = false, has_experts_ = false;
};

// Each layout resumes itself, bit for bit, and one other layout, in an order that the seed decides.
//
// Claim (training): Any of twelve layouts that have little in common resumes the checkpoint of any
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
  const std::vector<NamedLayout>& all = layouts_of_documents();
  for (std::size_t i = 0; i < all.size(); ++i) {
    expect_resumes(all[i], all[i]);
    expect_resumes(all[i], all[(i + 1) % all.size()]);
  }
}

TEST_F(ResumeMatrix, LayoutsOfExpertsResumeThemselvesAndTheNext) {
  use_experts();
  const std::vector<NamedLayout>& all = layouts_of_experts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    expect_resumes(all[i], all[i]);
    expect_resumes(all[i], all[(i + 1) % all.size()]);
  }
}

TEST_F(ResumeMatrix, EveryPairLong) {
  if (std::getenv("ECHELON_LONG_TESTS") == nullptr) GTEST_SKIP() << "set ECHELON_LONG_TESTS to run all 144 pairs";
  for (const NamedLayout& from : layouts())
    for (const NamedLayout& to : layouts())
      if (is_here(from) && is_here(to)) expect_resumes(from, to);
}

}  // namespace
}  // namespace echelon::testing
