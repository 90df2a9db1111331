// The kernels of a training step on one GPU, by operation, before and after what src/cuda fuses and joins; what a host
// calls; and the bytes of all operands. Counted from the blueprint, without a GPU. The configs are those of
// benchmarks/gpu/cases.py. usage: bench_gpu_kernels
#include "ops/gpu/gpu_kernels.h"
#include "data/unread_batches.h"

#include "comm/trace/trace_mesh.h"
#include "engine/layout_run.h"
#include "engine/rank_run.h"
#include "ops/description.h"
#include "spec/config/config_reader.h"
#include "tensor/memory_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace echelon {
namespace {

/// Computes nothing, and counts.
class CountedOps final : public Ops {
 public:
  using Counted = cuda::GpuKernelCount::Counted;
  void perform(const Operation& operation) override {
    if (const auto* matmul = operation.get_if<MatmulArgs>())
      add_alone(rounded_alone(*matmul));
    else
      add_alone(operation);
    count_.add(operation);
  }
  void upload(Tensor /*out*/, const void* /*host*/) override { transfer(); }
  void download(void* /*host*/, Tensor /*x*/) override { transfer(); }
  void publish() override { count_.flush(); }
  void finish() override { count_.flush(); }

  [[nodiscard]] Counted apart(OpKind kind) const { return apart_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] Counted joined(OpKind kind) const { return count_.of(kind); }
  [[nodiscard]] std::int64_t num_transfers() const { return num_transfers_; }

 private:
  void add_alone(const Operation& operation) {
    Counted& alone = apart_[static_cast<std::size_t>(operation.kind())];
    alone.kernels += cuda::num_gpu_kernels(operation);
    alone.bytes += cost(operation).bytes;
  }
  static MatmulArgs rounded_alone(MatmulArgs args) {
    args.a = args.a.without_amax();
    args.b = args.b.without_amax();
    args.a_rounded = {.order = args.a_order()};
    args.b_rounded = {.order = args.b_order()};
    return args;
  }
  void transfer() {
    count_.flush();
    ++num_transfers_;
  }
  std::array<Counted, num_op_kinds> apart_ = {};
  cuda::GpuKernelCount count_;
  std::int64_t num_transfers_ = 0;
};

struct Model {
  const char* name;
  std::vector<std::string> keys;
};

std::vector<std::string> llama(std::int64_t width, std::int64_t layers, std::int64_t inner) {
  return {fmt::format("--model.hidden_size={}", width),
          fmt::format("--model.num_hidden_layers={}", layers),
          fmt::format("--model.intermediate_size={}", inner),
          "--model.model_type=llama",
          "--model.num_attention_heads=32",
          "--model.num_key_value_heads=8",
          "--model.vocab_size=128256",
          "--model.max_position_embeddings=4096",
          "--training.seq_len=4096"};
}

std::vector<std::string> with(std::vector<std::string> keys, const std::vector<std::string>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<std::string> llama_1b() {
  return with(llama(2048, 16, 8192),
              {"--model.tie_word_embeddings=true", "--training.global_batch_size=4", "--training.micro_batch_size=4"});
}

const Model models[] = {
    {"GPT-2 124M",
     {"--model.model_type=gpt2", "--model.hidden_size=768", "--model.num_hidden_layers=12",
      "--model.num_attention_heads=12", "--model.num_key_value_heads=12", "--model.intermediate_size=3072",
      "--model.vocab_size=50257", "--model.max_position_embeddings=4096", "--model.tie_word_embeddings=true",
      "--training.seq_len=1024", "--training.global_batch_size=32", "--training.micro_batch_size=32"}},
    {"Llama 1.2B", llama_1b()},
    {"Llama 8B",
     with(llama(4096, 32, 14336),
          {"--model.tie_word_embeddings=false", "--training.global_batch_size=2", "--training.micro_batch_size=2",
           "--optimizer.store_param_remainders=true", "--optimizer.moments_dtype=bfloat16"})}};
const Model models_in_float8[] = {{"Llama 1.2B", with(llama_1b(), {"--training.linear_dtype=float8"})}};

CountedOps counted(const Model& model) {
  const RunConfig config =
      read_run_config({.path = "",
                       .arguments = with(model.keys, {"--training.device=cuda", "--training.dtype=bfloat16",
                                                      "--training.max_norm=1", "--optimizer.weight_decay=0.1"}),
                       .read_model = {}});
  const Blueprint blueprint(config);
  TraceMesh mesh(blueprint.mesh(), 0);
  CountedOps none, ops;
  class Switch final : public Ops {  // RoPE's tables belong to no step
   public:
    explicit Switch(Ops& ops) : ops_(&ops) {}
    void to(Ops& ops) { ops_ = &ops; }
    void perform(const Operation& operation) override { ops_->perform(operation); }
    void upload(Tensor out, const void* host) override { ops_->upload(out, host); }
    void download(void* host, Tensor x) override { ops_->download(host, x); }
    void publish() override { ops_->publish(); }
    void finish() override { ops_->finish(); }

   private:
    Ops* ops_;
  } into(none);
  RankRun run(blueprint, mesh, into, bare_addresses(), nullptr, bare_addresses());
  into.to(ops);
  const UnreadBatches batches;
  run.step().run(ProgramKind::training, training_input(config, batches, 1, LossScaler(config)));
  ops.finish();
  return ops;
}

using Pair = std::pair<std::int64_t, std::int64_t>;  // each operation by itself, and all together

template <class Of>
void print_row(std::string_view name, const std::vector<CountedOps>& steps, Of&& of) {
  fmt::print("{:<19}", name);
  for (const CountedOps& step : steps) {
    const auto [apart, joined] = of(step);
    fmt::print(" {:>8} {:>8}", apart, joined);
  }
  fmt::print("\n");
}

std::vector<CountedOps> steps_of(std::string_view title, std::span<const Model> of) {
  std::vector<CountedOps> steps;
  fmt::print("{:<19}", title);
  for (const Model& model : of) {
    steps.push_back(counted(model));
    fmt::print(" {:>17}", model.name);
  }
  fmt::print("\n");
  return steps;
}

Pair kernels_of(const CountedOps& step, OpKind kind) { return {step.apart(kind).kernels, step.joined(kind).kernels}; }

void print_kinds(const std::vector<CountedOps>& steps) {
  std::vector<OpKind> unchanged;
  for (int i = 0; i < num_op_kinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    const auto kernels = [&](const CountedOps& step) { return kernels_of(step, kind); };
    if (std::all_of(steps.begin(), steps.end(),
                    [&](const auto& step) { return kernels(step).first == kernels(step).second; }))
      unchanged.push_back(kind);
    else
      print_row(name_of(kind), steps, kernels);
  }
  print_row("others", steps, [&](const CountedOps& step) {
    std::int64_t kernels = 0;
    for (const OpKind kind : unchanged) kernels += step.apart(kind).kernels;
    return Pair(kernels, kernels);
  });
}

enum class HostCalls : bool { left_out, printed };

void print_sums(const std::vector<CountedOps>& steps, HostCalls host_calls) {
  const auto sum = [](const CountedOps& step, std::int64_t CountedOps::Counted::*what) {
    Pair pair;
    for (int i = 0; i < num_op_kinds; ++i) {
      pair.first += step.apart(static_cast<OpKind>(i)).*what;
      pair.second += step.joined(static_cast<OpKind>(i)).*what;
    }
    return pair;
  };
  const auto kernels = [&](const CountedOps& step) { return sum(step, &CountedOps::Counted::kernels); };
  print_row("all kernels", steps, kernels);
  if (host_calls == HostCalls::printed)
    print_row("host calls", steps, [&](const CountedOps& step) {
      const auto [apart, joined] = kernels(step);
      return Pair(apart + step.num_transfers(), joined + step.num_transfers());
    });
  print_row("GB of operands", steps, [&](const CountedOps& step) {
    const auto [apart, joined] = sum(step, &CountedOps::Counted::bytes);
    const auto giga = [](std::int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e9); };
    return std::pair(giga(apart), giga(joined));
  });
}

}  // namespace
}  // namespace echelon

int main() {
  using namespace echelon;
  const std::vector<CountedOps> steps = steps_of("kernels of a step", models);
  print_kinds(steps);
  print_sums(steps, HostCalls::printed);
  const std::vector<CountedOps> in_float8 = steps_of("in float8", models_in_float8);
  print_row("matmul", in_float8, [](const CountedOps& step) { return kernels_of(step, OpKind::matmul); });
  print_sums(in_float8, HostCalls::left_out);
}
