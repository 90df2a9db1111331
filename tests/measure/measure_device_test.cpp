// The requests of echelon bench to a device, recorded by a device that only writes them down.
#include "measure/measure_device.h"

#include "comm/mesh.h"
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace echelon {
namespace {

struct Asked {
  std::vector<RankOptions> options;
  std::vector<AttentionBackwardArgs> gradients;
  std::vector<MatmulArgs> in_float8;
};

class NotingOps final : public Ops {
 public:
  explicit NotingOps(Asked& asked) : asked_(asked) {}
  void perform(const Operation& operation) override {
    if (const auto* args = operation.get_if<AttentionBackwardArgs>()) asked_.gradients.push_back(*args);
    if (const auto* args = operation.get_if<MatmulArgs>(); args != nullptr && args->is_float8())
      asked_.in_float8.push_back(*args);
  }
  void upload(Tensor, const void*) override {}
  void download(void*, Tensor) override {}
  [[nodiscard]] bool computes_values() const override { return false; }
  void publish() override {}

 private:
  Asked& asked_;
};

class NotingDevice final : public RankDevice {
 public:
  NotingDevice(Mesh& mesh, Asked& asked) : mesh_(mesh), ops_(asked) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  [[nodiscard]] MemorySpace& memory() override { return bare_addresses(); }
  [[nodiscard]] std::string description() const override { return "a device that writes down"; }
  [[nodiscard]] DeviceFacts facts() const override { return {.name = "noting", .multiplies_float8 = true}; }

 private:
  Mesh& mesh_;
  NotingOps ops_;
};

class NotingBackend final : public Backend {
 public:
  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::cuda; }
  [[nodiscard]] int num_devices() const override { return 1; }
  [[nodiscard]] std::unique_ptr<RankDevice> open(Mesh& host, const RankOptions& options) override {
    asked.options.push_back(options);
    return std::make_unique<NotingDevice>(host, asked);
  }
  Asked asked;
};

TEST(MeasuredDevice, IsOneThatNeedNotBeDeterministicWithScratchForGradientsOfAttention) {
  NotingBackend backend;
  const MeasuredDevice measured = measure_device(backend, {.largest_size = 32, .sample_seconds = 0, .num_rounds = 1});
  ASSERT_FALSE(backend.asked.options.empty());
  for (const RankOptions& options : backend.asked.options) EXPECT_FALSE(options.deterministic);
  EXPECT_EQ(measured.attention.size(), 3U);
  ASSERT_FALSE(backend.asked.gradients.empty());
  for (const AttentionBackwardArgs& args : backend.asked.gradients) {
    EXPECT_EQ(args.scratch.exists(), args.q.dtype == DType::bfloat16) << name_of(args.q.dtype);
    if (!args.scratch.exists()) continue;
    EXPECT_EQ(args.scratch.num_elements(), attention_scratch_size(args.q, args.k));
  }
}

// The time of rounding is predicted from its bytes.
TEST(MeasuredDevice, MultipliesInFloat8WhatIsRoundedBefore) {
  NotingBackend backend;
  (void)measure_device(backend, {.largest_size = 32, .sample_seconds = 0, .num_rounds = 1});
  const std::vector<MatmulArgs>& all = backend.asked.in_float8;
  const MatmulArgs* made = nullptr;
  int num_timed = 0;
  for (const MatmulArgs& args : all) {
    EXPECT_EQ(args.a_rounded.is_made, args.b_rounded.is_made);
    if (!args.a_rounded.is_made) {
      made = &args;
      continue;
    }
    ++num_timed;
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(args.a_rounded.memory.data, made->a_rounded.memory.data);
    EXPECT_EQ(args.b_rounded.memory.data, made->b_rounded.memory.data);
  }
  EXPECT_GT(num_timed, 0);
}

}  // namespace
}  // namespace echelon
