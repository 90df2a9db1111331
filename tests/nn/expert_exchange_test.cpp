// Blocks whose experts are on several ranks, at work in exactly the memory that was planned: rows travel while the
// shared expert and further rounds are computed, so what is late, or written too early, shows in the bits.
#include "comm/delayed/delayed_mesh.h"
#include "comm/thread/thread_world.h"
#include "comm/trace/trace_mesh.h"
#include "nn/bench.h"
#include "nn/decoder/decoder_block.h"
#include "nn/models.h"
#include "ops/delayed/delayed_ops.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <array>
#include <cmath>

namespace echelon::test {
namespace {

constexpr int num_ranks = 4;

struct Recomputation {
  BlockOperations operations = {};
  bool in_chunks = false;
};

struct Setting {
  bool has_shared = true, gates_shared = false;
  int ranks_per_node = 0;
  double bound = 1.2;
  Recomputation recompute = {};
  BackwardKind backward = BackwardKind::fused;
};

LayerOptions options_of(const Setting& setting, int rank) {
  LayerOptions options;
  options.model = small_llama();
  options.model.mixture = {.num_experts = 8,
                           .num_experts_per_tok = 3,
                           .moe_intermediate_size = 7,
                           .norm_topk_prob = true,
                           .shared_expert_intermediate_size = setting.has_shared ? 5 : 0,
                           .gates_shared_expert = setting.gates_shared};
  options.dtype = options.grad_dtype = DType::float64;
  options.num_sequences = 3;
  options.seq_len = 7;
  options.has_experts = true;
  options.ep = num_ranks;
  options.ep_rank = rank;
  options.ep_on_node = setting.ranks_per_node;
  options.dispatch_bound = setting.bound;
  options.recompute.operations = setting.recompute.operations;
  if (setting.recompute.in_chunks) options.mlp_chunk.max_tokens = 5;
  return options;
}

/// By rank: y, dx and all gradients.
using Results = std::array<std::vector<double>, num_ranks>;

enum class Timing : std::uint8_t { prompt, late };

Results results_of(const Setting& setting, Timing timing) {
  Results results;
  const MeshShape shape({{Axis::dp_shard, num_ranks}});
  run_thread_ranks(shape, {}, [&](Mesh& inner) {
    const LayerOptions options = options_of(setting, inner.rank());
    const Tables tables(options);
    DecoderBlock block(options, 0, tables.rope);
    DelayedMesh delayed(inner, 3);
    TraceMesh trace(shape, inner.rank());
    std::unique_ptr<Ops> ops = make_reference_ops();
    if (timing == Timing::late) ops = std::make_unique<DelayedOps>(std::move(ops), 5);
    Bench bench(passes_of(block), options, timing == Timing::late ? static_cast<Mesh&>(delayed) : inner, trace,
                std::move(ops));
    std::vector<double> x = numbers_of(bench.x());  // other tokens on each rank
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = (1 + 0.1 * inner.rank()) * x[i] + (i % 3 == 0 ? 0.3 : 0) * inner.rank();
    set_numbers(bench.x(), x);
    EXPECT_EQ(bench.run(setting.backward), bench.measured(setting.backward));
    bench.ops().publish();
    std::vector<double>& own = results[static_cast<std::size_t>(inner.rank())];
    const auto add = [&](const Tensor& tensor) {
      const std::vector<double> numbers = numbers_of(tensor);
      own.insert(own.end(), numbers.begin(), numbers.end());
    };
    add(bench.y());
    add(bench.dx());
    for (const Param* param : bench.params()) add(param->grad);
  });
  return results;
}

double worst_difference(const Results& a, const Results& b) {
  double worst = 0;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(a[rank].size(), b[rank].size());
    for (std::size_t i = 0; i < a[rank].size(); ++i) {
      const double difference = std::abs(a[rank][i] - b[rank][i]) / (1 + std::abs(b[rank][i]));
      if (!(difference <= worst)) worst = difference;
    }
  }
  return worst;
}

TEST(ExpertExchange, RowsThatTravelMeanwhileChangeNoResult) {
  using enum BlockOperation;
  for (const auto& [has_shared, gates_shared] : {std::pair{false, false}, {true, false}, {true, true}})
    for (const Recomputation& recompute : {Recomputation{},
                                           {{mlp}},
                                           {{mlp}, true},
                                           {{router}},
                                           {{experts}},
                                           {{shared_expert}},
                                           {{router, shared_expert}}})
      for (const BackwardKind backward : {BackwardKind::fused, BackwardKind::split}) {
        const auto setting_of = [&, shared = has_shared, gates = gates_shared](int ranks_per_node, double bound) {
          return Setting{shared, gates, ranks_per_node, bound, recompute, backward};
        };
        const Results expected = results_of(setting_of(0, 100), Timing::prompt);
        for (const int ranks_per_node : {0, 1, 2})
          for (const double bound : {0.3, 1.2, 100.0}) {
            SCOPED_TRACE(fmt::format("shared {}, gated {}, recompute {}, {} passes, {} ranks on a node, bound {}",
                                     has_shared, gates_shared, fmt::join(names_of(recompute.operations), " "),
                                     backward == BackwardKind::fused ? "fused" : "split", ranks_per_node, bound));
            const Setting setting = setting_of(ranks_per_node, bound);
            const Results prompt = results_of(setting, Timing::prompt);
            EXPECT_LE(worst_difference(prompt, expected), 1e-12);
            EXPECT_TRUE(prompt == results_of(setting, Timing::late)) << "bits differ";
          }
      }
}

}  // namespace
}  // namespace echelon::test
