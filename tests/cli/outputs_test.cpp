// What a user has is kept: no file that is read is written, and nothing half written stays.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace echelon {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(scratch_folder()) /
              ("echelon-outputs-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    const Outcome outcome = run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/spec", "--output",
                                         path("corpus"), "--vocab-size=300", "--training-sample-bytes=20000"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::ofstream(path("run.toml")) << config();
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string config() const {
    return "[model]\npreset = 'llama-1m'\nvocab_size = 300\nnum_hidden_layers = 1\n"
           "[training]\nsteps = 3\nseq_len = 32\nglobal_batch_size = 4\n"
           "[data]\npath = '" +
           path("corpus/train") + "'\n[output]\ndir = '" + path("out") + "'\n";
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] Outcome train(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"train", path("run.toml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_echelon(arguments);
  }
  /// The last line of a run with --json.
  [[nodiscard]] static nlohmann::json result_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::size_t end = outcome.out.find_last_not_of('\n');
    return nlohmann::json::parse(outcome.out.substr(outcome.out.rfind('\n', end) + 1));
  }

  fs::path folder_;
};

TEST_F(Outputs, ReplaceNoFileThatIsRead) {
  fs::create_symlink("run.toml", path("link"));
  fs::create_hard_link(path("run.toml"), path("same"));
  const std::string run = path("run.toml"), machine = "--machine=h100";
  const std::vector<std::string> commands[] = {
      {"train", run, "--html=" + run},
      {"train", run, "--html=" + path("link")},
      {"simulate", run, machine, "--svg=" + path("same")},
      {"simulate", run, machine, "--trace=" + folder_.string() + "/./run.toml"},
      {"simulate", run, machine, "--metrics.machine=" + path("corpus/train.idx"), "--html=" + path("corpus/train.idx")},
      {"plan", run, machine, "--output=" + run},
      {"draw", "--schedule-csv=" + run, "--output", run}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = run_echelon(command);
    EXPECT_EQ(outcome.status, 2) << command.back() << outcome.out;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(command.back().substr(0, 6)), HasSubstr(", which is read"))) << command[0];
    EXPECT_EQ(text_of("run.toml"), config()) << command.back();
  }
  const Outcome twice = run_echelon({"draw", "--html=" + path("page"), "--output=" + path("page")});
  EXPECT_THAT(twice.err, HasSubstr("is also the file of --html; use different files"));
  EXPECT_FALSE(fs::exists(path("page")));
}

TEST_F(Outputs, OfAFinishedRunStayAndSayNothingOfSteps) {
  const std::string html = "--html=" + path("report.html");
  ASSERT_EQ(train({html}).status, 0);
  const std::string report = text_of("report.html");
  EXPECT_THAT(report, HasSubstr("<figure class=\"curve\">"));
  const Outcome again = train({html});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("report.html stays as it is, since no step was made"));
  EXPECT_EQ(text_of("report.html"), report);
  EXPECT_EQ(train({"--html=" + path("other.html")}).status, 0);
  EXPECT_THAT(text_of("other.html"), Not(HasSubstr("Memory of rank 0")));

  const nlohmann::json result = result_of(train({"--json"}));
  EXPECT_EQ(result["steps"], 3);
  EXPECT_TRUE(result["loss"].is_null());
  EXPECT_TRUE(result["measured_memory_bytes"].is_null());
}

TEST_F(Outputs, AModelThatCannotBeReadIsWrittenAgain) {
  ASSERT_EQ(train().status, 0);
  const std::string whole = text_of("out/model/model.safetensors");
  for (const std::uintmax_t size : {std::uintmax_t{100}, std::uintmax_t{whole.size() - 1}}) {
    fs::resize_file(path("out/model/model.safetensors"), size);
    const Outcome again = train();
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("the model is written again"));
    EXPECT_EQ(text_of("out/model/model.safetensors"), whole);
  }
  EXPECT_THAT(train().out, Not(HasSubstr("written again")));
}

TEST_F(Outputs, ThatCannotReplaceWhatIsThereAreRefusedBeforeTheFirstStep) {
  const auto expect_refused = [&](const std::string& planted) {
    const Outcome outcome = train();
    EXPECT_EQ(outcome.status, 2) << planted << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(path("out/" + planted.substr(0, planted.find('/'))) + " ")) << planted;
    EXPECT_THAT(outcome.out, Not(HasSubstr("step:"))) << planted;
    EXPECT_EQ(text_of("out/" + planted), "the user's own");
    fs::remove_all(path("out"));
  };
  for (const std::string planted : {"model", "model/own.txt", "model.tmp/own.txt", "model.old/own.txt"}) {
    fs::create_directories(fs::path(path("out/" + planted)).parent_path());
    std::ofstream(path("out/" + planted)) << "the user's own";
    expect_refused(planted);
  }
  fs::create_directories(path("out"));
  std::ofstream(path("own.txt")) << "the user's own";
  fs::create_symlink(path("own.txt"), path("out/model"));
  expect_refused("model");
}

TEST_F(Outputs, OfAFolderWithoutPermissionAreRefusedBeforeTheFirstStep) {
  fs::create_directories(path("out/checkpoint"));
  fs::permissions(path("out/checkpoint"), fs::perms::owner_read | fs::perms::owner_exec);
  std::vector<std::string> command = {std::string(ECHELON_BINARY_DIR) + "/echelon", "train", path("run.toml")};
  if (geteuid() == 0) command.insert(command.begin(), {"setpriv", "--bounding-set=-dac_override"});
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("checkpoint: Permission denied"), HasSubstr("(use another output.dir)")));
}

// Bytes that are not UTF-8 can be in a path, but not in the TOML and JSON that describe a run.
TEST_F(Outputs, OfAPathThatIsNotUtf8AreRefusedBeforeTheFirstStep) {
  const std::string strange = path("\xff");
  for (const std::string key : {"--output.dir=", "--data.path=", "--checkpoint.initial_load_path="}) {
    const Outcome outcome = train({key + strange, "--json"});
    EXPECT_EQ(outcome.status, 2) << key << outcome.err;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(key), HasSubstr("\\xff' is not UTF-8")));
  }
  EXPECT_EQ(run_echelon({"verify", path("run.toml"), "--data.path", strange, "--json"}).status, 2);
  EXPECT_FALSE(fs::exists(strange));
}

// A shell's `ulimit -f`, in blocks of 1,024 bytes.
TEST_F(Outputs, AtTheLimitOfAFilesSizeLeaveNothingHalfWritten) {
  ASSERT_EQ(train().status, 0);
  const auto limited = [&](const std::string& arguments) {
    return run_command(
        {"bash", "-c", "ulimit -f 10; exec " + std::string(ECHELON_BINARY_DIR) + "/echelon " + arguments});
  };
  for (const std::string& arguments :
       {"convert " + path("out/model") + " " + path("new"), "draw --microbatches=64 --html=" + path("new"),
        "draw --microbatches=64 --format=svg --output=" + path("new"),
        "simulate " + path("run.toml") + " --machine=h100 --html=" + path("new")}) {
    const Outcome outcome = limited(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_FALSE(fs::exists(path("new")) || fs::exists(path("new.tmp"))) << arguments;
  }
}

// The shell can open the pipe to write when the program has opened it to read.
TEST_F(Outputs, ASignalEndsARunThatStillReadsItsConfig) {
  const std::string echelon = std::string(ECHELON_BINARY_DIR) + "/echelon";
  for (const auto& [signal, status] : {std::pair{"TERM", 75}, {"HUP", 75}, {"USR1", 75}, {"INT", 130}}) {
    const std::string pipe = path(std::string("pipe-") + signal);
    const Outcome outcome =
        run_command({"bash", "-c",
                     "set -m; mkfifo " + pipe + "; " + echelon + " train " + pipe + " & child=$!; exec 3>" + pipe +
                         "; kill -" + signal + " $child; exec 3>&-; wait $child"});
    EXPECT_EQ(outcome.status, status) << signal << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("echelon: "))) << signal;
  }
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
// The address space of an AddressSanitizer is terabytes.
TEST_F(Outputs, OpenBlasWithoutMemoryForItsBufferIsAnError) {
  ASSERT_EQ(train({"--checkpoint.tokenizer=" + path("corpus/tokenizer.json")}).status, 0);
  const Outcome outcome =
      run_command({"bash", "-c",
                   "ulimit -v 200000; exec timeout -s KILL 60 " + std::string(ECHELON_BINARY_DIR) +
                       "/echelon generate " + path("out/model") + " --prompt a --max-new-tokens 3"});
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no memory for OpenBLAS's buffers"));
}
#endif

}  // namespace
}  // namespace echelon
