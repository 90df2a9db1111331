// Linear layers in float8: layouts equal one rank as far as numbers that are tiny beside the largest of a rank's part
// let them, and losses follow float32's. What matmuls share of rounded operands, and what other operations leave of
// their largest magnitudes, is never stale.
#include "ops/float8.h"
#include "ops/description.h"
#include "ops/forwarding_ops.h"
#include "parity/layout.h"
#include "parity/locks.h"
#include "parity/training_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

namespace echelon::testing {
namespace {

RunConfig float8_config(const Layout& layout) { return in_float8(config_of(layout)); }

const Layout float8_layouts[] = {
    {.shard = 2, .pp = 2, .microbatches = 3, .zero = 3},
    {.tp = 2},
    {.tp = 4, .sequence_parallel = true, .family = Family::gpt2, .tied = true},
    {.shard = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3},
    // A rank has 6 or 4 tokens, in 8 rows: two sequences of them are a block of 16.
    {.tp = 1, .cp = 3},
    {.tp = 1, .cp = 3, .balancer = LoadBalancer::striped, .method = ContextMethod::all_gather},
    {.tp = 1, .cp = 4, .method = ContextMethod::ulysses},
    {.tp = 1, .documents = true, .cp = 4, .method = ContextMethod::ulysses_ring, .ulysses = 2},
    {.tp = 2, .sequence_parallel = true, .cp = 2},
    {.pp = 2, .microbatches = 2, .documents = true, .cp = 2}};

/// One rank with the same microbatches: a scale is that of a microbatch's tokens.
RunConfig alone(const RunConfig& config) {
  RunConfig one = one_rank(config);
  one.training.micro_batch_size = config.training.micro_batch_size;
  return one;
}

double largest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / b[i]);
  return largest;
}

TEST(Float8, LayoutsEqualOneRank) {
  for (const Layout& layout : float8_layouts) {
    SCOPED_TRACE(name_of(layout));
    RunConfig config = float8_config(layout);
    config.training.steps = 3;
    const auto actual = run_training(config, {.at_end = [&](const RankView& rank) {
                                       expect_locks_hold(rank, {.training = config.training.steps, .evaluation = 1});
                                     }});
    const auto expected = run_training(alone(config));
    // Tensor and context parallelism cut what has one scale: tiny numbers are rounded otherwise, and now and then a
    // larger one behind them to its other neighbour.
    const double tolerance = layout.tp == 1 && layout.cp == 1 ? 1e-11 : 1e-6;
    EXPECT_NEAR(actual->losses[0], expected->losses[0], tolerance * expected->losses[0]);
    EXPECT_NEAR(actual->grad_norms[0], expected->grad_norms[0], tolerance * expected->grad_norms[0]);
    config.training.linear_dtype.reset();
    const auto plain = run_training(alone(config));
    EXPECT_GT(std::abs(plain->losses[0] - expected->losses[0]), 1e-4 * plain->losses[0]) << "something is rounded";
  }
}

/// What the matmuls of all ranks reuse, and where an operand or its memory was written since it was rounded.
struct Reuse {
  std::mutex mutex;
  std::int64_t num_made = 0, num_reused = 0;
  // Of the operands that are made, their largest magnitudes: read, left for later matmuls, or found for one alone.
  std::int64_t num_known = 0, num_left = 0, num_found = 0;
  std::vector<std::string> faults;
};

/// Compares the bytes of an operand with what they were when it was rounded, whatever may have written them. Processors
/// leave the memory of a rounded operand alone, so this marks it.
class ReuseWatch final : public RankInterposer, public ForwardingOps {
 public:
  ReuseWatch(Ops& inner, Mesh* mesh, Reuse& reuse) : ForwardingOps(inner), mesh_(mesh), reuse_(reuse) {}
  [[nodiscard]] Ops& ops() override { return *this; }
  [[nodiscard]] Mesh& mesh() override { return *mesh_; }

  void perform(const Operation& operation) override {
    if (const auto* args = operation.get_if<MatmulArgs>(); args != nullptr && args->is_float8()) {
      inner().publish();
      const std::lock_guard lock(reuse_.mutex);
      look(args->a, args->a_format, args->a_rounded);
      look(args->b, args->b_format, args->b_rounded);
    }
    inner().perform(operation);
    for (const Tensor& written : operation.visit([](const auto& args) { return operands_of(args); }).overwrites)
      if (written.has_amax) {
        inner().publish();
        const std::lock_guard lock(reuse_.mutex);
        amaxes_[written.amax] = float8_rounding_of(written, OperandFormat::float8_e4m3).exponent;
      }
  }

 private:
  struct Made {
    Tensor x, memory;
    OperandFormat format;
    std::vector<std::byte> values, mark;
  };
  static std::vector<std::byte> values_of(const Tensor& x) { return {x.data, x.data + x.num_bytes()}; }

  /// Processors leave the memory of a largest magnitude alone: this knows the scale that it gives.
  void look_at_amax(const Tensor& x, const RoundedOperand& rounded) {
    const int exponent = float8_rounding_of(x, OperandFormat::float8_e4m3).exponent;
    if (rounded.finds_amax) amaxes_[x.amax] = exponent;
    if (needs_amax(x, rounded)) return void(++(rounded.finds_amax ? reuse_.num_left : reuse_.num_found));
    ++reuse_.num_known;
    const auto found = amaxes_.find(x.amax);
    if (found == amaxes_.end())
      reuse_.faults.push_back("nothing has left its largest magnitude");
    else if (found->second != exponent)
      reuse_.faults.push_back("its largest magnitude is another one");
  }

  void look(const Tensor& x, OperandFormat format, const RoundedOperand& rounded) {
    const Tensor& memory = rounded.memory;
    if (!rounded.is_made) {
      look_at_amax(x, rounded);
      const std::int64_t number = ++reuse_.num_made;
      for (std::int64_t i = 0; i < memory.num_elements(); ++i)
        memory.as<std::int32_t>()[i] = static_cast<std::int32_t>(number * 7919 + i);
      made_[memory.data] = {x, memory, format, values_of(x), values_of(memory)};
      return;
    }
    ++reuse_.num_reused;
    const auto found = made_.find(memory.data);
    if (found == made_.end()) return reuse_.faults.push_back("nothing was rounded there");
    const Made& made = found->second;
    if (made.x.data != x.data || made.x.sizes != x.sizes || made.format != format || made.memory.sizes != memory.sizes)
      reuse_.faults.push_back("another operand was rounded there");
    else if (made.values != values_of(x))
      reuse_.faults.push_back("the operand was written");
    else if (made.mark != values_of(memory))
      reuse_.faults.push_back("the memory was written");
  }

  Mesh* mesh_;
  Reuse& reuse_;
  std::map<const std::byte*, Made> made_;
  std::map<const std::byte*, int> amaxes_;  // the exponents of the scales
};

TEST(Float8, NoRoundedOperandIsStale) {
  std::vector<Layout> layouts(std::begin(float8_layouts), std::end(float8_layouts));
  layouts.push_back({.pp = 2, .schedule = PipelineSchedule::zb_h1, .microbatches = 3});
  layouts.push_back({.shard = 2, .tp = 2, .zero = 3, .recompute = whole_block});
  layouts.push_back({.family = Family::gpt2, .recompute = {BlockOperation::mlp}});
  for (const Layout& layout : layouts)
    for (const std::int64_t chunk : {0, 16}) {
      RunConfig config = float8_config(layout);
      if (chunk > 0 && !layout.recompute.contain(BlockOperation::mlp)) continue;
      SCOPED_TRACE(fmt::format("{} {}", name_of(layout), chunk));
      config.training.recompute = layout.recompute;
      config.training.mlp_chunk_tokens = chunk;
      config.training.steps = 3;
      Reuse reuse;
      const auto watch = [&](Ops& ops, Mesh& mesh) { return std::make_unique<ReuseWatch>(ops, &mesh, reuse); };
      const auto actual = run_training(config, {.interpose = watch});
      EXPECT_THAT(reuse.faults, ::testing::IsEmpty());
      EXPECT_GT(reuse.num_reused, reuse.num_made / 8);
      EXPECT_EQ(actual->losses, run_training(config)->losses);
    }
}

// In each pass of a layer two norms and the activation are measured where they are written, and backward also the
// gradients of gate, up, q, k and of what attention adds. Forward leaves the largest magnitudes of seven weights and of
// attention's result to backward. Found for one matmul alone are dv and the gradient from the layer above.
TEST(Float8, LargestMagnitudesAreFoundOnce) {
  RunConfig config = float8_config({.layers = 2});
  config.training.steps = 3;
  Reuse reuse;
  const auto watch = [&](Ops& ops, Mesh& mesh) { return std::make_unique<ReuseWatch>(ops, &mesh, reuse); };
  (void)run_training(config, {.interpose = watch});
  EXPECT_THAT(reuse.faults, ::testing::IsEmpty());
  // Passes of layers; evaluations have none backward.
  const std::int64_t forward = reuse.num_left / 8, backward = 2 * config.training.steps * config.num_microbatches();
  EXPECT_GE(forward, backward);
  EXPECT_EQ(reuse.num_left, 8 * forward);
  EXPECT_EQ(reuse.num_found, 2 * backward);
  EXPECT_EQ(reuse.num_known, 3 * forward + (3 + 5 + 8) * backward);
}

// The watch sees what would be a wrong gradient on a GPU.
TEST(Float8, TheWatchSeesStaleOperands) {
  std::vector<float> values(3 * 256, 1.0F);
  std::vector<std::int32_t> room(2 * static_cast<std::size_t>(float8_size(256, Float8Order::as_is)));
  const auto matrix = [&](std::size_t i) {
    return Tensor(reinterpret_cast<std::byte*>(values.data() + 256 * i), DType::float32, {16, 16});
  };
  const Tensor memory(reinterpret_cast<std::byte*>(room.data()), DType::int32, {std::ssize(room)});
  class NoOps final : public Ops {
    void perform(const Operation&) override {}
    void upload(Tensor, const void*) override {}
    void download(void*, Tensor) override {}
    void publish() override {}
  } none;
  Reuse reuse;
  ReuseWatch watch(none, nullptr, reuse);
  MatmulArgs args = rounded_in({.a = matrix(0),
                                .b = matrix(1),
                                .c = matrix(2),
                                .transpose_b = true,
                                .a_format = OperandFormat::float8_e4m3,
                                .b_format = OperandFormat::float8_e4m3},
                               memory);
  watch.matmul(args);
  args.a_rounded.is_made = args.b_rounded.is_made = true;
  watch.matmul(args);
  EXPECT_THAT(reuse.faults, ::testing::IsEmpty());
  values[255] = 2;
  watch.matmul(args);
  room.back() = 0;
  watch.matmul(args);
  args.b.data += 4;
  watch.matmul(args);
  EXPECT_THAT(reuse.faults,
              ::testing::ElementsAre("the operand was written", "the operand was written", "the memory was written",
                                     "the operand was written", "another operand was rounded there"));
}

TEST(Float8, LossesFollowFloat32) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    RunConfig config = float8_config({.tp = 2});
    config.training.dtype = dtype;
    config.training.steps = 30;
    config.model.initializer_range = 0.02;
    config.optimizer.lr = 3e-3;
    const auto actual = run_training(config);
    config.training.dtype = DType::float32;
    config.training.linear_dtype.reset();
    const auto expected = run_training(alone(config));
    EXPECT_LT(largest_distance(actual->losses, expected->losses), 0.01) << name_of(dtype);
  }
}

}  // namespace
}  // namespace echelon::testing
