// What layers owe to asynchronous backends: publish before every communication, and wait for it before the next
// operation. And what they save, in closed form.
#include "base/error.h"
#include "nn/bench.h"
#include "nn/models.h"
#include "nn/tensor_parallel.h"
#include "ops/trace/trace_ops.h"

#include <gtest/gtest.h>

namespace echelon::test {
namespace {

// A trace that knows whether everything was published, and whether anybody computed while something was under way.
class StrictOps : public TraceOps {
 public:
  void publish() override { num_published_ = records().size(); }
  [[nodiscard]] bool all_is_published() const { return num_published_ == records().size(); }
  [[nodiscard]] std::size_t num_operations() const { return records().size(); }

 private:
  std::size_t num_published_ = 0;
};

class StrictComm : public Comm {
 public:
  explicit StrictComm(StrictOps& ops) : ops_(ops) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] Pending all_reduce(Tensor, ReduceOp) override { return start(); }
  [[nodiscard]] Pending all_gather(Tensor, Tensor) override { return start(); }
  [[nodiscard]] Pending reduce_scatter(Tensor, Tensor, ReduceOp) override { return start(); }
  [[nodiscard]] Pending broadcast(Tensor, int) override { return start(); }
  [[nodiscard]] Pending all_to_all(Tensor, Tensor) override { return start(); }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange&) override { return start(); }
  [[nodiscard]] Pending send(Tensor, int) override { return start(); }
  [[nodiscard]] Pending receive(Tensor, int) override { return start(); }
  [[nodiscard]] Pending barrier() override { return start(); }

  [[nodiscard]] int num_started() const { return num_started_; }
  [[nodiscard]] int num_waited() const { return num_waited_; }

 private:
  class Operation : public Pending::Operation {
   public:
    explicit Operation(StrictComm& comm) : comm_(comm), num_operations_(comm.ops_.num_operations()) {}
    void wait() override {
      EXPECT_EQ(comm_.ops_.num_operations(), num_operations_) << "computed before the wait";
      ++comm_.num_waited_;
    }
    bool poll() override { return false; }

   private:
    StrictComm& comm_;
    std::size_t num_operations_;
  };
  Pending start() {
    EXPECT_TRUE(ops_.all_is_published()) << "communication " << num_started_ << " was started before publish()";
    ++num_started_;
    return Pending(std::make_unique<Operation>(*this));
  }

  StrictOps& ops_;
  int num_started_ = 0, num_waited_ = 0;
};

class StrictMesh : public Mesh {
 public:
  explicit StrictMesh(StrictOps& ops) : Mesh(MeshShape(), 0), comm_(ops) {}
  [[nodiscard]] StrictComm& comm(const Group&) override { return comm_; }
  void poll() override {}
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return {}; }
  void abort(const std::string&) override {}

 private:
  StrictComm comm_;
};

TEST(Discipline, LayersPublishBeforeAndWaitAfterEveryCommunication) {
  for (const bool sequence_parallel : {false, true}) {
    LayerOptions options = one_rank(small_gpt2());
    options.tp = 2;
    options.sequence_parallel = sequence_parallel;
    Stage stage(options, {.num_layers = 2, .has_embedding = true, .has_head = true});
    for (const BackwardKind kind : {BackwardKind::fused, BackwardKind::split}) {
      StrictOps ops;
      StrictMesh mesh(ops);
      (void)measure(passes_of(stage), options, mesh, kind, ops);
      EXPECT_GT(mesh.comm({}).num_started(), 10);
      EXPECT_EQ(mesh.comm({}).num_started(), mesh.comm({}).num_waited());
    }
  }
}

// Per token a block of a Llama saves: the residual between the branches, q and its attention's result, k, v, gate and
// up. Under tensor parallelism what is inside the regions is divided by tp, under sequence parallelism the rest too.
TEST(Discipline, ABlockKeepsWhatTheFormulaSays) {
  ModelSpec model = small_llama();
  model.hidden_size = 64;
  model.head_dim = 16;
  model.intermediate_size = 128;
  for (const auto& [tp, sequence_parallel] : {std::pair{1, false}, std::pair{2, false}, std::pair{2, true}}) {
    LayerOptions options = one_rank(model, 2, 16);
    options.tp = tp;
    options.sequence_parallel = sequence_parallel;
    Stage stage(options, {.num_layers = 1});
    StrictOps ops;
    StrictMesh mesh(ops);
    const RegionBytes bytes = measure(passes_of(stage), options, mesh, BackwardKind::fused, ops);
    const std::int64_t N = options.num_tokens(), local = options.num_local_tokens();
    const std::int64_t q_width = model.num_attention_heads * model.head_dim,
                       kv_width = model.num_key_value_heads * model.head_dim;
    const std::int64_t inside = N * (2 * q_width + 2 * kv_width + 2 * model.intermediate_size) / tp;
    const std::int64_t outside = local * model.hidden_size;
    const std::int64_t statistics = 2 * local + N * model.num_attention_heads / tp;  // 1/rms of two norms, lse
    EXPECT_EQ(bytes.slot + bytes.input_slot, 8 * (inside + outside + statistics));
    EXPECT_EQ(bytes.input_slot, 8 * N * (q_width + 2 * kv_width + model.num_attention_heads) / tp) << "q, k, v, lse";
    EXPECT_EQ(bytes.gradient_slot, 0) << "a fused backward saves nothing";
  }
}

}  // namespace
}  // namespace echelon::test
