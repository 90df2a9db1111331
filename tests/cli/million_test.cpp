// The two examples of sequences of 2^20 tokens (examples/million), with 65,536: their commands run, and memory is what
// was planned.
#include "cli/program.h"
#include "files/file.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

const std::string example = ECHELON_SOURCE_DIR "/examples/million/";

/// The line of the only step.
nlohmann::json step_of(const std::string& config, const fs::path& folder, const std::string& data) {
  const Outcome outcome =
      run_echelon({"train", example + config, "--training.seq_len=65536", "--data.path=" + (folder / data).string(),
                   "--output.dir=" + (folder / "out").string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::ifstream lines(folder / "out/metrics.jsonl");
  return nlohmann::json::parse(lines);
}

/// Of eight equal ranks in one process.
void expect_planned_memory(const nlohmann::json& step) {
  EXPECT_EQ(step["world_size"], 8);
  EXPECT_EQ(step["memory_peak_bytes"], step["predicted_memory_bytes"]);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const double planned = 8 * step["predicted_memory_bytes"].get<double>(), besides = 256 << 20;
  EXPECT_NEAR(step["process_peak_bytes"].get<double>(), planned, std::max(0.05 * planned, besides));
#endif
}

TEST(Million, OneDocumentOnEightRanks) {
  const fs::path folder = fs::path(scratch_folder()) / "one-document";
  const Outcome prepared = run_echelon({"prepare", ECHELON_SOURCE_DIR "/src", "--glob", "*.cpp", "--glob", "*.h",
                                        "--output", (folder / "corpus").string(), "--vocab-size", "2048"});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  const nlohmann::json step = step_of("one_document.toml", folder, "corpus/train");
  expect_planned_memory(step);
  EXPECT_TRUE(step["pairs"].is_null());  // attention is not limited by documents
}

TEST(Million, DocumentsAreDrawnOfGoodNumbersAlone) {
  const auto error_of = [](const std::string& tokens, const std::string& seed) {
    const Outcome outcome = run_command({example + "draw_documents", tokens, seed});
    EXPECT_EQ(outcome.status, 2) << tokens << " " << seed;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  const std::string named = example + "draw_documents: ", no_seed = " is not a whole number from 1 to 2147483646\n",
                    no_tokens = " is not a whole number from 2 to 999999999999999\n";
  for (const std::string seed : {"-3", "0", "1.5", "", "2147483647", "99999999999999999999"})
    EXPECT_EQ(error_of("1000", seed), named + "SEED = " + seed + no_seed);
  for (const std::string tokens : {"abc", "1", "-5", "1e6"})
    EXPECT_EQ(error_of(tokens, "1"), named + "TOKENS = " + tokens + no_tokens);
}

TEST(Million, PackedDocumentsOnEightRanks) {
  const fs::path folder = fs::path(scratch_folder()) / "packed-documents";
  fs::create_directories(folder);
  const Outcome drawn = run_command({example + "draw_documents", "65536", "1"});
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  std::ofstream(folder / "documents.jsonl") << drawn.out;
  const Outcome prepared =
      run_echelon({"prepare", (folder / "documents.jsonl").string(), "--output", (folder / "packed").string(),
                   "--vocab-size", "4096", "--validation-fraction", "0"});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  const nlohmann::json step = step_of("packed.toml", folder, "packed/train");
  expect_planned_memory(step);
  EXPECT_LT(step["pairs"].get<double>(), 0.1 * step["planned_pairs"].get<double>());
  EXPECT_LT(step["cp_imbalance"].get<double>(), 1.02);  // the balance of `packed`
}

}  // namespace
}  // namespace echelon
