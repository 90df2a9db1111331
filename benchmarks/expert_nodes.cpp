// Rows of experts between two nodes of four thread ranks with a link that takes time and no core: directly, and in two
// hops. What crosses, compared with the closed form, and how much faster a step is, compared with what the saved bytes
// take on the link.
//
//     bench_expert_nodes [turns = 2] [megabytes per second = 1] [--section.key=value ...]
//
// All ranks of a node share its link, on which bytes go one after the other; inside of a node they take no time. Only
// what experts need is charged. Every token chooses two experts of each node (k = 4 of 8). With rows of D float32, a
// token sends to the other node in a layer and step, where x and dy go, and y and dx come back:
//
//     directly       2 rows, with a weight each: 2 (4 * 4 D + 2 * 4)
//     in two hops    one row, with k weights, and k choices: 4 * 4 D + 2 * 4 k + 4 k
#include "base/clock.h"
#include "base/median.h"
#include "comm/thread/thread_world.h"
#include "engine/layout_run.h"
#include "parity/forced_router.h"
#include "some_tokens.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace echelon {
namespace {

constexpr int num_ranks = 8, num_nodes = 2, ranks_per_node = num_ranks / num_nodes, num_steps = 3;

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

/// From each node to the other one.
class Links {
 public:
  /// Of a communicator of all ranks, or of those at one place of nodes: the ranks have the same ones in the same order.
  struct Exchange {
    int place = 0, index = 0;
    auto operator<=>(const Exchange&) const = default;
  };

  explicit Links(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  void send(int node, std::int64_t num_bytes, const Exchange& exchange) {
    const std::scoped_lock lock(mutex_);
    double& free = free_.at(static_cast<std::size_t>(node));
    free = std::max(free, now_seconds()) + static_cast<double>(num_bytes) / bytes_per_second_;
    bytes_.at(static_cast<std::size_t>(node)) += num_bytes;
    ends_[exchange] = std::max(ends_[exchange], free);
  }
  /// Until all has come that its ranks have sent.
  void wait(const Exchange& exchange) const {
    const double end = [&] {
      const std::scoped_lock lock(mutex_);
      return ends_.at(exchange);
    }();
    std::this_thread::sleep_for(std::chrono::duration<double>(end - now_seconds()));
  }
  [[nodiscard]] std::int64_t bytes_of_first() const { return bytes_.front(); }

 private:
  double bytes_per_second_;
  mutable std::mutex mutex_;
  std::array<double, num_nodes> free_ = {};
  std::array<std::int64_t, num_nodes> bytes_ = {};
  std::map<Exchange, double> ends_;
};

class LinkedWait final : public Pending::Operation {
 public:
  LinkedWait(Pending inner, const Links& links, const Links::Exchange& exchange)
      : inner_(std::move(inner)), links_(links), exchange_(exchange) {}
  void wait() override {
    inner_.wait();
    links_.wait(exchange_);
  }
  bool poll() override { return false; }

 private:
  Pending inner_;
  const Links& links_;
  Links::Exchange exchange_;
};

/// A group of one rank on each node, or of all ranks.
class LinkedComm final : public Comm {
 public:
  LinkedComm(Comm& inner, int rank_of_all, Links& links)
      : inner_(inner),
        node_(rank_of_all / ranks_per_node),
        links_(links),
        next_{.place = inner.size() == num_ranks ? ranks_per_node : rank_of_all % ranks_per_node} {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }

  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    std::int64_t rows = 0;
    for (int peer = 0; peer < size(); ++peer)
      if (is_across(peer)) rows += exchange.sent_parts[static_cast<std::size_t>(peer)].count;
    return linked(rows * exchange.sent.size(1) * size_of(exchange.sent.dtype),
                  [&] { return inner_.all_to_all_rows(exchange); });
  }
  /// Of counts and choices, int32; weights are gathered otherwise.
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    if (shard.dtype != DType::int32) return inner_.all_gather(full, shard);
    const std::int64_t num_across = size() - size() / num_nodes;
    return linked(num_across * shard.num_bytes(), [&] { return inner_.all_gather(full, shard); });
  }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override { return inner_.all_reduce(x, op); }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return inner_.reduce_scatter(shard, full, op);
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override { return inner_.broadcast(x, root); }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override { return inner_.all_to_all(received, sent); }
  [[nodiscard]] Pending send(Tensor x, int peer) override { return inner_.send(x, peer); }
  [[nodiscard]] Pending receive(Tensor x, int peer) override { return inner_.receive(x, peer); }
  [[nodiscard]] Pending barrier() override { return inner_.barrier(); }

 private:
  [[nodiscard]] bool is_across(int peer) const { return peer * num_nodes / size() != node_; }
  // Who has waited for the others knows that they have sent.
  template <class Start>
  [[nodiscard]] Pending linked(std::int64_t num_bytes, const Start& start) {
    const Links::Exchange exchange = next_;
    ++next_.index;
    links_.send(node_, num_bytes, exchange);
    return Pending(std::make_unique<LinkedWait>(start(), links_, exchange));
  }

  Comm& inner_;
  int node_;
  Links& links_;
  Links::Exchange next_;
};

class LinkedMesh final : public Mesh {
 public:
  LinkedMesh(Mesh& inner, Links& links) : Mesh(inner.shape(), inner.rank()), inner_(inner), links_(links) {}
  [[nodiscard]] Comm& comm(const Group& group) override {
    if (group != expert_group(num_ranks) && group != expert_across_group(num_ranks, ranks_per_node))
      return inner_.comm(group);
    auto& comm = comms_[group];
    if (!comm) comm = std::make_unique<LinkedComm>(inner_.comm(group), rank(), links_);
    return *comm;
  }
  void poll() override { inner_.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return inner_.sent_bytes(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  Mesh& inner_;
  Links& links_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

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
