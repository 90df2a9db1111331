// Tensor-parallel ranks against one rank: outputs, loss and every gradient, with heads, features and vocabularies that
// do not divide.
#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "comm/trace/trace_mesh.h"
#include "nn/bench.h"
#include "nn/models.h"
#include "spec/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

namespace echelon::test {
namespace {

struct Layout {
  int tp = 1;
  bool sequence_parallel = false;
  BackwardKind backward = BackwardKind::fused;
  int ep = 1, etp = 0;  // etp 0: features of all experts are over all ranks
};

// What a stage computes, put together from all ranks: whole tensors by name.
struct WholeTensors {
  double loss_sum = 0;
  std::map<std::string, std::vector<double>> tensors;            // gradients of parameters, "y", "dx"
  std::map<std::string, std::vector<int>> copies, first_copies;  // ranks that hold an element
};

// Where element i of this rank's slice is in the whole tensor; -1: in the padding.
std::int64_t place_in_whole(const Param& param, std::int64_t i) {
  const int dim = param.slice.dim();
  if (dim < 0 || !param.slice.is_padded()) return param.slice.index(i);
  const Sizes& sizes = param.global_sizes();
  const std::int64_t global_count = sizes[dim];
  std::int64_t inner = 1;
  for (int of = dim + 1; of < sizes.num_dims(); ++of) inner *= sizes[of];
  const auto [first, count] = param.slice.entries(dim);
  const std::int64_t row = i / (count * inner), j = first + i / inner % count;
  return j < global_count ? (row * global_count + j) * inner + i % inner : -1;
}

// Sums what the parameter says is to be summed; the rest must agree. Counts the first copies of every element.
void add_gradient(WholeTensors& outcome, const Param& param) {
  std::vector<double>& whole = outcome.tensors[param.name];
  std::vector<int>& copies = outcome.copies[param.name];
  std::vector<int>& first_copies = outcome.first_copies[param.name];
  for (auto* counts : {&copies, &first_copies})
    counts->resize(static_cast<std::size_t>(param.global_sizes().num_elements()));
  whole.resize(copies.size());
  const std::vector<double> part = numbers_of(param.grad);
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::int64_t place = place_in_whole(param, static_cast<std::int64_t>(i));
    if (place < 0) {
      EXPECT_EQ(part[i], 0.0) << "padding of " << param.name << " has a gradient";
      continue;
    }
    const auto at = static_cast<std::size_t>(place);
    const bool is_summed = param.groups.partial.has_value() || copies[at] == 0;
    if (is_summed)
      whole[at] += part[i];
    else
      EXPECT_EQ(whole[at], part[i]) << param.name << ": ranks that are not summed must agree";
    ++copies[at];
    if (param.is_first_copy) ++first_copies[at];
  }
}

void put_tokens(std::vector<double>& whole, const LayerOptions& options, const Tensor& local) {
  const std::vector<double> part = numbers_of(local);
  whole.resize(static_cast<std::size_t>(options.num_tokens() * options.model.hidden_size));
  std::copy(
      part.begin(), part.end(),
      whole.begin() + (options.sequence_parallel ? options.tp_rank : 0) * static_cast<std::ptrdiff_t>(part.size()));
}

WholeTensors run_stage(const ModelSpec& model, const StageLayers& layers, const Layout& layout) {
  WholeTensors outcome;
  std::mutex mutex;
  const MeshShape shape = tp_shape(layout.tp);
  run_thread_ranks(shape, {}, [&](Mesh& mesh) {
    LayerOptions options = one_rank(model, 2, 6);
    options.tp = layout.tp;
    options.tp_rank = mesh.coordinate(Axis::tp);
    options.sequence_parallel = layout.sequence_parallel;
    options.divides_expert_features = layout.tp > 1 && layout.etp == 0;
    if (layout.etp > 0) {
      options.ep = layout.ep;
      options.etp = layout.etp;
      options.ep_rank = options.tp_rank / layout.etp % layout.ep;
      options.etp_rank = options.tp_rank % layout.etp;
    }
    Stage stage(options, layers);
    const Tables tables(options);
    stage.bind_rope_tables(*make_reference_ops(), tables.cos, tables.sin);
    TraceMesh trace_mesh(shape, mesh.rank());
    Bench bench(passes_of(stage), options, mesh, trace_mesh);
    const RegionBytes used = bench.run(layout.backward);

    const std::lock_guard lock(mutex);
    EXPECT_EQ(used, bench.measured(layout.backward));
    EXPECT_TRUE(outcome.tensors.empty() || outcome.loss_sum == bench.loss_sum()) << "all ranks compute the same loss";
    outcome.loss_sum = bench.loss_sum();
    for (const Param* param : bench.params()) add_gradient(outcome, *param);
    if (!layers.has_embedding) put_tokens(outcome.tensors["dx"], options, bench.dx());
    if (!layers.has_head) put_tokens(outcome.tensors["y"], options, bench.y());
  });
  return outcome;
}

void expect_same(const WholeTensors& outcome, const WholeTensors& expected, const std::string& what) {
  for (const auto& [name, counts] : outcome.first_copies)
    EXPECT_THAT(counts, testing::Each(1)) << what << ": each element of " << name << " counts once";
  EXPECT_NEAR(outcome.loss_sum, expected.loss_sum, 1e-12 * (1.0 + std::abs(expected.loss_sum))) << what;
  ASSERT_EQ(outcome.tensors.size(), expected.tensors.size()) << what;
  for (const auto& [name, numbers] : expected.tensors) {
    double size = 1.0, error = 0.0;
    const std::vector<double>& others = outcome.tensors.at(name);
    ASSERT_EQ(numbers.size(), others.size()) << what << ": " << name;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      size = std::max(size, std::abs(numbers[i]));
      error = std::max(error, std::isnan(others[i]) ? 1.0 : std::abs(numbers[i] - others[i]));
    }
    EXPECT_LT(error / size, 1e-12) << what << ": " << name;
  }
}

constexpr StageLayers middle = {.first_layer = 2, .num_layers = 2};

void expect_layouts_agree(const ModelSpec& model, const std::vector<int>& degrees) {
  for (const StageLayers& layers : {whole_model, middle}) {
    const WholeTensors expected = run_stage(model, layers, {});
    for (const int tp : degrees) {
      for (const bool sequence_parallel : {false, true}) {
        for (const BackwardKind backward : {BackwardKind::fused, BackwardKind::split}) {
          const std::string what =
              fmt::format("tp {}, sequence_parallel {}, {}, {}", tp, sequence_parallel,
                          layers.has_head ? "model" : "middle", backward == BackwardKind::fused ? "fused" : "split");
          expect_same(run_stage(model, layers, {tp, sequence_parallel, backward}), expected, what);
        }
      }
    }
  }
}

TEST(TensorParallel, LlamaWithSharedKvHeads) { expect_layouts_agree(small_llama(), {2, 4}); }

// The latents are whole on every rank, and the heads of four do not divide by three.
TEST(TensorParallel, LatentAttention) {
  expect_layouts_agree(small_latents(), {2, 3, 4});
  expect_layouts_agree(small_latents_of_keys(), {3});
}

TEST(TensorParallel, QwenWithBiasesAndNormsOfSharedKvHeads) { expect_layouts_agree(small_qwen(), {2, 4}); }

TEST(TensorParallel, MixturesOfExperts) {
  expect_layouts_agree(small_mixture(), {2, 4});
  expect_layouts_agree(small_groups_of_experts(), {2, 4});
}

// Each rank routes its own tokens, and has features of some experts.
TEST(TensorParallel, ExpertsAndTheirFeatures) {
  ModelSpec model = small_mixture();
  model.mixture.num_experts = 8;
  for (const StageLayers& layers : {whole_model, middle}) {
    const WholeTensors expected = run_stage(model, layers, {});
    for (const auto& [ep, etp] : {std::pair{2, 2}, {4, 1}, {1, 4}})
      for (const BackwardKind backward : {BackwardKind::fused, BackwardKind::split})
        expect_same(run_stage(model, layers, {4, true, backward, ep, etp}), expected,
                    fmt::format("ep {}, etp {}", ep, etp));
  }
}

TEST(TensorParallel, Gpt2) { expect_layouts_agree(small_gpt2(), {2, 3, 4}); }

TEST(TensorParallel, UnevenKvHeads) {
  ModelSpec model = small_qwen();
  model.num_attention_heads = 10;
  model.num_key_value_heads = 5;
  expect_layouts_agree(model, {2, 3});
}

TEST(TensorParallel, UnevenQueryHeadsOfASharedKvHead) {
  ModelSpec model = small_qwen();
  model.num_attention_heads = 6;
  model.num_key_value_heads = 2;
  expect_layouts_agree(model, {4});
}

TEST(TensorParallel, VocabularyThatLeavesARankPaddingOnly) {
  ModelSpec model = small_llama();
  model.vocab_size = 5;
  expect_layouts_agree(model, {4});
}

// What a rank sends for one decoder block, in units of (n - 1) / n of the activations.
TEST(TensorParallel, TrafficOfABlock) {
  const ModelSpec model = small_llama();
  for (const int tp : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      TraceMesh mesh(tp_shape(tp), 0);
      LayerOptions options = one_rank(model, 2, 8);
      options.tp = tp;
      options.sequence_parallel = sequence_parallel;
      Stage stage(options, {.num_layers = 1});
      const auto sent_in_units = [&] {
        const std::int64_t unit = options.num_tokens() * model.hidden_size * size_of(options.dtype) * (tp - 1) / tp;
        const std::int64_t sent = mesh.sent_bytes()[tp_group];
        EXPECT_EQ(sent % unit, 0);
        return sent / unit;
      };
      const auto count = [&](CommKind kind) {
        return std::count_if(mesh.records().begin(), mesh.records().end(),
                             [&](const CommRecord& record) { return record.kind == kind; });
      };
      (void)measure(passes_of(stage), options, mesh, BackwardKind::fused);
      // Forward 4 and backward 4 (two all-reduces each), or with sequence parallelism 4 and 6, since x is gathered
      // again.
      EXPECT_EQ(sent_in_units(), sequence_parallel ? 10 : 8);
      EXPECT_EQ(count(CommKind::all_reduce), sequence_parallel ? 0 : 4);
      EXPECT_EQ(count(CommKind::all_gather), sequence_parallel ? 6 : 0);
      EXPECT_EQ(count(CommKind::reduce_scatter), sequence_parallel ? 4 : 0);
      mesh.clear();
      (void)measure(passes_of(stage), options, mesh, BackwardKind::split);
      EXPECT_EQ(sent_in_units(), sequence_parallel ? 10 : 8) << "the halves communicate what the whole does";
    }
  }
}

}  // namespace
}  // namespace echelon::test
