// A run that resumes multiplies with the kernels of its checkpoint, as far as the processor can.
#include "resume/small_run.h"

#include "checkpoint/state/publish.h"
#include "environment.h"
#include "files/file.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/processor_kind.h"
#include "spec/machine/host_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Products : public SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    unset_.emplace(std::map<std::string, std::string>{{"ECHELON_FLOAT32_PRODUCTS", ""}, {"OPENBLAS_CORETYPE", ""}});
  }
  /// In float32, and wide enough that the kernels' sums differ.
  RunConfig float32_config(const std::string& folder) const {
    RunConfig config = this->config(folder);
    config.training.dtype = DType::float32;
    return config;
  }
  RunConfig resuming_config(const std::string& folder, const std::filesystem::path& from) const {
    RunConfig config = float32_config(folder);
    config.checkpoint.load = from.string();
    return config;
  }
  static Steps run_with(const std::string& products, const RunConfig& config) {
    const Environment asks("ECHELON_FLOAT32_PRODUCTS", products);
    return run(config);
  }

 private:
  std::optional<Environment> unset_;
};

TEST_F(Products, ARunThatResumesHasTheBitsOfTheOneThatWasNotInterrupted) {
  std::map<std::string, Steps> all;
  for (const char* const products : {"own", "openblas"}) {
    SCOPED_TRACE(products);
    const Steps plain = all[products] = run_with(products, float32_config(products));
    const Manifest saved = read_manifest(checkpoint(products, 3));
    EXPECT_THAT(saved.products.at("float32"), ::testing::StartsWith(products));
    const std::string again = std::string(products) + "-again";
    ReportLog log;
    (void)run(resuming_config(again, checkpoint(products, 3)), log);
    EXPECT_EQ(steps_of(log), after(3, plain));
    EXPECT_THAT(log.warnings, IsEmpty());
    EXPECT_EQ(read_state(checkpoint(again, 8)), read_state(checkpoint(products, 8)));
    EXPECT_EQ(read_manifest(checkpoint(again, 8)).products, saved.products);
  }
  EXPECT_NE(all["own"], all["openblas"]) << "the kernels make no difference, so this test shows nothing";
}

TEST_F(Products, ThatThisProcessorLacksAreSaidAndReplaced) {
  const Steps plain = run(float32_config("plain"));
  const std::filesystem::path step = checkpoint("plain", 3);
  Manifest manifest = read_manifest(step);
  manifest.products["float32"] = "openblas/POWER9";
  write_text(step / find_manifest(step)->filename(), to_text(manifest));
  ReportLog log;
  (void)run(resuming_config("again", step), log);
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("the checkpoint's float32 matmuls were by 'openblas/POWER9', and the "
                                                  "run continues with '")));
  EXPECT_EQ(steps_of(log).losses.size(), 5U);
  for (const auto& [number, loss] : steps_of(log).losses) EXPECT_NEAR(loss, plain.losses.at(number), 1e-4) << number;
}

TEST_F(Products, OfTheMachinesFileAreWhatARunStartsWith) {
  const ProductChoice shipped = choose_products({}).choice;
  for (const ProductKernels kernels : {ProductKernels::own, ProductKernels::openblas}) {
    ProductChoice measured = shipped;
    measured.float32 = kernels;
    HostSpec host = {.processor = "this one", .num_cores = 2, .memory_bytes = 1 << 30};
    host.products = names_of(measured);
    host.products["kind"] = name_of(processor_kind());
    const std::string machine = (scratch_ / "machine.toml").string(), folder = "by-" + std::string(name_of(kernels));
    write_text(machine, to_toml(host));
    RunConfig config = float32_config(folder);
    config.metrics.machine = machine;
    ReportLog log;
    (void)run(config, log, 3);
    EXPECT_EQ(read_manifest(checkpoint(folder, 3)).products, names_of(measured));
    EXPECT_THAT(log.warnings, IsEmpty());
  }
}

}  // namespace
}  // namespace echelon::testing
