// Rows of experts between two nodes of four thread ranks with a link that takes time and no core: directly, and in two
// hops. What crosses, compared with the closed form, and how much faster a step is, compared with what the saved bytes
// take on the link.
//
//     bench_expert_nodes [turns = 2] [megabytes per second = 1] [--section.key=value ...]
//
// Inside of a node bytes take no time (node_links.h). Every token chooses two experts of each node (k = 4 of 8). With
// rows of D float32, a token sends to the other node in a layer and step, where x and dy go, and y and dx come back:
//
//     directly       2 rows, with a weight each: 2 (4 * 4 D + 2 * 4)
//     in two hops    one row, with k weights, and k choices: 4 * 4 D + 2 * 4 k + 4 k
#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "engine/layout_run.h"
#include "node_links.h"
#include "parity/forced_router.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <cstdlib>

namespace echelon {
namespace {

constexpr int num_steps = 3;  // after one that does not count

std::vector<std::string> default_options() {
  return {"--model.model_type=qwen3_moe",
          "--model.hidden_size=256",
          "--model.num_hidden_layers=2",
          "--model.num_attention_heads=4",
          "--model.vocab_size=512",
          "--model.max_position_embeddings=128",
          "--model.intermediate_size=64",
          "--model.num_experts=8",
          "--model.num_experts_per_tok=4",
          "--model.moe_intermediate_size=64",
          "--training.seq_len=128",
          "--training.micro_batch_size=1",
          "--training.global_batch_size=8",
          "--training.num_threads=1",
          "--parallelism.data_parallel_shard_degree=8",
          "--parallelism.expert_parallel_degree=8",
          "--parallelism.ranks_per_node=4"};
}

class LinkedRank final : public RankInterposer {
 public:
  LinkedRank(Ops& ops, Mesh& mesh, Links& links, const Interpose& force)
      : mesh_(mesh, links), forced_(force(ops, mesh_)) {}
  [[nodiscard]] Ops& ops() override { return forced_->ops(); }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }

 private:
  LinkedMesh mesh_;
  std::unique_ptr<RankInterposer> forced_;
};

class StepEnds final : public RunObserver {
 public:
  void ended_step(const RankView& rank, std::int64_t /*step*/, const StepResult& /*result*/) override {
    if (rank.mesh.rank() == 0) ends.push_back(now_seconds());
  }
  std::vector<double> ends;
};

struct Measured {
  std::vector<double> step_seconds = {};
  std::int64_t bytes = 0;  // of a node and step
};

void measure(RunConfig config, ExpertDispatch dispatch, double bytes_per_second, Measured& measured) {
  config.parallelism.expert_dispatch = dispatch;
  const Blueprint blueprint(config);
  const SomeTokens batches(config.model.vocab_size);
  Links links(bytes_per_second);
  // Both experts of each node, whichever token it is.
  const Interpose force =
      testing::forced([](std::int64_t n, std::int64_t j) { return static_cast<std::int32_t>((n + 2 * j) % 8); },
                      config.training.seq_len);
  StepEnds times;
  run_layout({.blueprint = blueprint,
              .batches = batches,
              .num_steps = num_steps + 1,
              // A permit for each: who waits for a link keeps nobody from computing.
              .run_ranks = [](const MeshShape& shape,
                              const auto& body) { run_thread_ranks(shape, {.compute_permits = num_ranks}, body); },
              .interpose = [&](Ops& ops, Mesh& mesh) { return std::make_unique<LinkedRank>(ops, mesh, links, force); }},
             times);
  for (std::size_t i = 1; i < times.ends.size(); ++i)
    measured.step_seconds.push_back(times.ends[i] - times.ends[i - 1]);
  measured.bytes = links.bytes_of_first() / (num_steps + 1);
}

void compare(const RunConfig& config, int num_turns, double bytes_per_second) {
  Measured direct, hops;
  for (int turn = 0; turn < num_turns; ++turn) {
    measure(config, ExpertDispatch::direct, bytes_per_second, direct);
    measure(config, ExpertDispatch::hierarchical, bytes_per_second, hops);
  }
  const std::int64_t D = config.model.hidden_size, k = config.model.mixture.num_experts_per_tok,
                     tokens = ranks_per_node * config.training.seq_len * config.model.num_hidden_layers,
                     offsets = ranks_per_node * ranks_per_node * 4 * (config.model.mixture.num_experts + 1) *
                               config.model.num_hidden_layers;
  const auto print = [](const char* name, const Measured& of, std::int64_t formula) {
    fmt::print("{:<12} {:>8.3f} s a step, {} bytes, by the closed form {}\n", name, median(of.step_seconds), of.bytes,
               formula);
  };
  print("directly", direct, tokens * 2 * (16 * D + 8) + offsets);
  print("in two hops", hops, tokens * (16 * D + 8 * k + 4 * k));
  const double saved = static_cast<double>(direct.bytes - hops.bytes) / bytes_per_second,
               faster = median(direct.step_seconds) - median(hops.step_seconds);
  fmt::print("faster by {:.3f} s; the saved bytes take {:.3f} s ({:.3f})\n", faster, saved, faster / saved);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  using namespace echelon;
  try {
    const int num_turns = argc > 1 ? std::atoi(argv[1]) : 2;
    const double megabytes_per_second = argc > 2 ? std::atof(argv[2]) : 1;
    std::vector<std::string> options = default_options();
    if (argc > 3) options.insert(options.end(), argv + 3, argv + argc);
    compare(read_run_config({.path = {}, .arguments = options, .read_model = {}}), num_turns,
            1e6 * megabytes_per_second);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
