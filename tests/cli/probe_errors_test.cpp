// A machine file whose peak is too low, through the real program.
#include "cli/program.h"
#include "scratch_folder.h"
#include "spec/machine/host_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace echelon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ProbeErrorsOfARun : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder() + "/probe-errors";
    std::filesystem::remove_all(folder_);
    const Outcome outcome = run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output",
                                         folder_ + "/corpus", "--vocab-size=300", "--training-sample-bytes=20000"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }

  Outcome train_with_peak(double flops) const {
    HostSpec host = {.processor = "any", .num_cores = 1};
    host.core = host.device = {.float32_flops = flops, .read_bandwidth = 1e15};
    std::ofstream(folder_ + "/machine.toml") << to_toml(host);
    return run_echelon({"train", "--model.preset=llama-1m", "--model.vocab_size=300", "--model.num_hidden_layers=1",
                        "--training.steps=3", "--training.seq_len=32", "--training.global_batch_size=2",
                        "--data.path=" + folder_ + "/corpus/train", "--output.dir=" + folder_ + "/out",
                        "--metrics.machine=" + folder_ + "/machine.toml", "--metrics.trace=steps 2-3",
                        "--html=" + folder_ + "/report.html"});
  }
  std::string page() const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/report.html").rdbuf();
    return text.str();
  }

  std::string folder_;
};

// A run says when it is faster than the peak in its machine file.
TEST_F(ProbeErrorsOfARun, AreSaidOnceAndOnItsPage) {
  const Outcome outcome = train_with_peak(1e6);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("warning: mfu is"), HasSubstr("the floor of matmul is"),
                                 HasSubstr("the floor of the step is"), HasSubstr("so the probe is wrong")));
  EXPECT_EQ(outcome.out.find("warning: mfu is"), outcome.out.rfind("warning: mfu is"));
  EXPECT_THAT(page(), AllOf(HasSubstr("mfu is"), HasSubstr("the floor of the step is")));
}

TEST_F(ProbeErrorsOfARun, AreNotSaidWithAHighPeak) {
  const Outcome outcome = train_with_peak(1e15);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("so the probe is wrong")));
  EXPECT_THAT(page(), Not(HasSubstr("so the probe is wrong")));
}

}  // namespace
}  // namespace echelon
