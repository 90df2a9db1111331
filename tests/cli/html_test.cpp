// --html through the real program: the page exists however a run ends, and a browser shows it without errors.
#include "cli/program.h"
#include "report/browser.h"
#include "report/html/html_report.h"
#include "report/html/html_text.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::Not;

class Html : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(scratch_folder()) /
              ("echelon-html-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    const Outcome outcome = run_echelon({"prepare", std::string(ECHELON_SOURCE_DIR) + "/src/base", "--output",
                                         (folder_ / "corpus").string(), "--vocab-size=300",
                                         "--training-sample-bytes=10000", "--validation-fraction=0.2"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }

  std::string path() const { return (folder_ / "report.html").string(); }
  std::vector<std::string> train(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train",
                                          "--model.preset=llama-1m",
                                          "--model.vocab_size=300",
                                          "--model.num_hidden_layers=2",
                                          "--training.steps=4",
                                          "--training.seq_len=32",
                                          "--training.global_batch_size=4",
                                          "--data.path=" + (folder_ / "corpus/train").string(),
                                          "--data.validation_path=" + (folder_ / "corpus/validation").string(),
                                          "--checkpoint.enable=false",
                                          "--output.dir=" + (folder_ / "out").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::string page() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

const std::vector<std::string> four_ranks = {"--parallelism.tensor_parallel_degree=2",
                                             "--parallelism.pipeline_parallel_degree=2"};

TEST_F(Html, ShowsATrainingRun) {
  std::vector<std::string> options = four_ranks;
  options.insert(options.end(), {"--metrics.trace=step 3", "--html=" + path()});
  const Outcome outcome = run_echelon(train(options));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("report: " + path()));
  EXPECT_LT(page().size(), 300'000U);
  const auto program = Browser::program();
  if (!program) GTEST_SKIP() << "there is no chromium here; scripts/install test installs it";
  Browser browser(*program, folder_ / "profile");
  browser.open(path(), {});
  EXPECT_THAT(browser.complaints(), testing::IsEmpty());
  EXPECT_THAT(browser.evaluate("document.querySelector('h1').textContent").get<std::string>(), HasSubstr("on 4 ranks"));
  EXPECT_EQ(browser.evaluate("[...document.querySelectorAll('figure.curve')].map(f => "
                             "JSON.parse(f.querySelector('script').textContent).series[0].x.length)"),
            nlohmann::json({4, 4, 4, 4}));
  const auto loss =
      browser.evaluate("JSON.parse(document.querySelector('figure.curve script').textContent).series.map(s => s.name)");
  EXPECT_EQ(loss, nlohmann::json({"training", "validation"}));
  // 1F1B of two stages and four microbatches of one sequence: eight passes on each, as predicted and as measured, and
  // both are zoomed together.
  const auto passes = browser.evaluate(
      "[...document.querySelectorAll('.timeline script')].map(s => readBars(JSON.parse(s.textContent)).map(row => "
      "row.bars.filter(bar => "
      "/forward|backward/.test(bar.group[0])).length))");
  EXPECT_EQ(passes, (nlohmann::json{{8, 8}, {8, 8}}));
  EXPECT_EQ(
      browser.evaluate("document.querySelector('[data-do=in]').click(), new Promise(done => requestAnimationFrame(() "
                       "=> requestAnimationFrame(() => "
                       "done(new Set([...document.querySelectorAll('.timeline')].map(t => t.dataset.to)).size))))"),
      1);
  EXPECT_EQ(browser.evaluate("[...document.querySelectorAll('#comparison tbody th')].map(t => t.textContent)"),
            nlohmann::json({"Step time, median", "Memory of rank 0"}));
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('#comparison tbody tr')[1].children[3].textContent"), "+0.0 %");
  // Memory of two stages, traffic of rank 0.
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('section.bars .rows').length"), 2);
  EXPECT_THAT(browser.evaluate("document.querySelector('section.bars .legend').textContent").get<std::string>(),
              HasSubstr("activations"));
  EXPECT_THAT(
      browser.evaluate("[...document.querySelectorAll('.legend')].map(l => l.textContent).join()").get<std::string>(),
      HasSubstr("tp"));
  EXPECT_THAT(browser.evaluate("document.querySelector('#config pre').textContent").get<std::string>(),
              HasSubstr("tensor_parallel_degree = 2"));
  browser.photograph(folder_ / "train.png");
}

// Counting tokens and the report are groups of one rank there: nothing is sent.
TEST_F(Html, TheTimelineOfOneRankHasNoCollective) {
  ASSERT_EQ(run_echelon(train({"--metrics.trace=step 3", "--html=" + path()})).status, 0);
  EXPECT_THAT(page(), HasSubstr("Step 3, measured"));
  EXPECT_THAT(page(), HasSubstr("kind backward"));
  EXPECT_THAT(page(), testing::Not(HasSubstr("kind collective\"")));
  std::vector<std::string> options = four_ranks;
  options.insert(options.end(), {"--metrics.trace=step 3", "--html=" + path()});
  ASSERT_EQ(run_echelon(train(options)).status, 0);
  EXPECT_THAT(page(), HasSubstr("kind collective\""));
}

// Of 32 tokens on four ranks the last contiguous chunk has 25 + ... + 32 = 228 pairs of 528.
TEST_F(Html, ShowsTheTokensOfContextParallelism) {
  const auto page_with = [&](std::vector<std::string> flags) {
    flags.push_back("--html=" + path());
    const Outcome outcome = run_echelon(train(flags));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return page();
  };
  const std::string degree = "--parallelism.context_parallel_degree=4";
  const std::string ring = page_with({degree});
  EXPECT_THAT(ring, HasSubstr("4 ranks of a ring, headtail: largest rank over the mean of pairs 1.000, of contiguous "
                              "chunks 1.727; in lock step"));
  EXPECT_THAT(ring, HasSubstr("Of a sequence that is one document."));
  EXPECT_THAT(ring, HasSubstr("Context parallelism: pairs (query, key) of attention"));
  EXPECT_THAT(ring, HasSubstr("Context parallelism: what is sent"));
  const std::string exchanged =
      page_with({degree, "--parallelism.context_parallel_method=ulysses", "--data.reset_attention_mask=true"});
  EXPECT_THAT(exchanged, HasSubstr("Of the first sequence of the data."));
  EXPECT_THAT(exchanged, HasSubstr("Context parallelism: heads after the exchange"));
  EXPECT_THAT(page_with({}), Not(HasSubstr("Context parallelism")));
}

// A schedule alone: four ranks with eight forwards and eight fused backwards each.
TEST_F(Html, ShowsASchedule) {
  const Outcome outcome =
      run_echelon({"draw", "--schedule=1F1B", "--stages=4", "--microbatches=8", "--html=" + path()});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 3"));
  EXPECT_THAT(page(), HasSubstr("data-bars=\"64\""));
  EXPECT_THAT(page(), HasSubstr("27.3 %"));  // (p - 1) / (m + p - 1)
}

TEST_F(Html, ShowsTheTokensOfASimulation) {
  std::vector<std::string> simulate = {"simulate",
                                       "--machine=h100",
                                       "--model.preset=llama-1m",
                                       "--training.seq_len=32",
                                       "--training.global_batch_size=16",
                                       "--parallelism.context_parallel_degree=4",
                                       "--html=" + path()};
  ASSERT_EQ(run_echelon(simulate).status, 0);
  EXPECT_THAT(page(), HasSubstr("largest rank over the mean of pairs 1.000, of contiguous chunks 1.727"));
  EXPECT_THAT(page(), HasSubstr("Of a sequence that is one document."));
  // Documents of 8 tokens: a contiguous chunk is one.
  simulate.insert(simulate.end(), {"--data.reset_attention_mask=true", "--documents=8:0"});
  const Outcome outcome = run_echelon(simulate);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(page(), HasSubstr("of contiguous chunks 1.000"));
  EXPECT_THAT(page(), HasSubstr("Of the first sequence of the documents."));
  EXPECT_THAT(page(), HasSubstr("document 3: 4"));
}

TEST_F(Html, ShowsASimulation) {
  const std::vector<std::string> simulate = {"simulate",
                                             "--machine=h100",
                                             "--model.preset=llama-1m",
                                             "--training.seq_len=32",
                                             "--training.global_batch_size=16",
                                             "--training.micro_batch_size=2",
                                             "--parallelism.pipeline_parallel_degree=2",
                                             "--parallelism.data_parallel_shard_degree=2"};
  std::vector<std::string> arguments = simulate;
  arguments.push_back("--html=" + path());
  const Outcome outcome = run_echelon(arguments);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  arguments = simulate;
  arguments.push_back("--json");
  const auto json = nlohmann::json::parse(run_echelon(arguments).out);
  const auto program = Browser::program();
  if (!program) GTEST_SKIP() << "there is no chromium here; scripts/install test installs it";
  Browser browser(*program, folder_ / "profile");
  browser.open(path(), {.width = 390, .height = 844, .is_phone = true});
  EXPECT_THAT(browser.complaints(), testing::IsEmpty());
  EXPECT_LE(browser.evaluate("document.documentElement.scrollWidth"), 390);
  EXPECT_EQ(browser.evaluate("[...document.querySelectorAll('section.bars h2')].map(h => h.textContent)"),
            nlohmann::json({"Where the time goes", "Memory", "Traffic"}));
  // 1F1B of two stages and four microbatches of two sequences on each of two replicas: every pass is drawn, and the
  // step ends with the last bar.
  const auto rows = browser.evaluate(
      "readBars(JSON.parse(document.querySelector('.timeline script').textContent)).map(row => row.bars)");
  ASSERT_EQ(rows.size(), 2U);
  double end = 0;
  for (const auto& row : rows) {
    std::map<std::string, std::set<int>> microbatches;
    for (const auto& bar : row) {
      microbatches[bar["group"][0]].insert(bar["number"].get<int>());
      end = std::max(end, bar["end"].get<double>());
    }
    for (const char* pass : {"forward", "backward"}) EXPECT_EQ(microbatches[pass], (std::set<int>{0, 1, 2, 3})) << pass;
  }
  EXPECT_NEAR(end, json["predicted_seconds"].get<double>(), 1e-5 * end);
  browser.photograph(folder_ / "simulate.png");
}

TEST_F(Html, ShowsPlans) {
  const std::vector<std::string> plan = {
      "plan",         "--model=llama-1m", "--machine=h100", "--gpus=2", "--global-batch-size=4",
      "--seq-len=64", "--html=" + path()};
  std::vector<std::string> arguments = plan;
  arguments.push_back("--json");
  const Outcome outcome = run_echelon(arguments);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  const auto program = Browser::program();
  if (!program) GTEST_SKIP() << "there is no chromium here; scripts/install test installs it";
  Browser browser(*program, folder_ / "profile");
  browser.open(path(), {});
  EXPECT_THAT(browser.complaints(), testing::IsEmpty());
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('section.table tbody tr:not(.remark)').length"),
            json["plans"].size());
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('tr.best').length"), 1);
  EXPECT_EQ(browser.evaluate("[...document.querySelectorAll('section.bars h2')].map(h => h.textContent)"),
            nlohmann::json({"Where the time goes", "Memory", "Traffic"}));
  EXPECT_EQ(browser.evaluate("document.querySelectorAll('.timeline').length"), 1);
  browser.photograph(folder_ / "plan.png");

  arguments = plan;
  arguments.push_back("--scaling");
  ASSERT_EQ(run_echelon(arguments).status, 0);
  browser.open(path(), {});
  EXPECT_THAT(browser.complaints(), testing::IsEmpty());
  EXPECT_EQ(browser.evaluate("JSON.parse(document.querySelector('.curve script').textContent).series[0].x"),
            nlohmann::json({1, 2}));
  browser.photograph(folder_ / "scaling.png");
}

// The page says of the best plan what the list says.
TEST_F(Html, ShowsThePlanOfDocuments) {
  const Outcome outcome =
      run_echelon({"plan", "--model=llama3-8b", "--machine=h100", "--gpus=8", "--global-batch-size=1",
                   "--seq-len=32768", "--model.max_position_embeddings=32768", "--data.reset_attention_mask=true",
                   "--documents=500:0", "--parallelism.context_parallel_degree=8",
                   "--parallelism.context_parallel_method=ring", "--top=1", "--html=" + path(), "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double seconds = nlohmann::json::parse(outcome.out)["plans"][0]["predicted_seconds"];
  const std::string written = text_of(HtmlUnit::seconds, seconds), all = page();
  std::size_t times = 0;
  for (std::size_t at = all.find(written); at != all.npos; at = all.find(written, at + 1)) ++times;
  EXPECT_GE(times, 2U) << "the list and the tile say " << written;
  EXPECT_THAT(all, HasSubstr("Of the first sequence of the documents."));
}

TEST_F(Html, IsThereAfterCtrlC) {
  const Outcome outcome = interrupt_echelon(train({"--training.steps=1000000", "--html=" + path()}), "step:  2");
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_THAT(page(), HasSubstr("Interrupted after step"));
  EXPECT_THAT(page(), HasSubstr("<figure class=\"curve\">"));
}

TEST_F(Html, IsThereAfterAFailure) {
  const Outcome outcome = run_echelon(
      train({"--optimizer.lr=1e30", "--lr_scheduler.decay=none", "--training.steps=50", "--html=" + path()}));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_THAT(page(), HasSubstr("The run failed: "));
  EXPECT_THAT(page(), HasSubstr("the run diverged"));
}

TEST_F(Html, IsWrittenOnceByProcesses) {
  if (!std::filesystem::exists(ECHELON_BINARY_DIR "/mpi_failures")) GTEST_SKIP() << "built without MPI";
  const std::vector<std::string> options = {"--parallelism.pipeline_parallel_degree=2", "--metrics.trace=step 3",
                                            "--html=" + path()};
  const Outcome outcome = run_echelon_processes(2, train(options));

  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(page(), HasSubstr("rank 1"));  // rank 0 has the measured step of the other process too
  EXPECT_EQ(outcome.out.find("report: "), outcome.out.rfind("report: "));
}

TEST_F(Html, IsRefusedBeforeTheRunWhereItCannotBeWritten) {
  const Outcome outcome = run_echelon(train({"--html=" + (folder_ / "none/report.html").string()}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, Not(HasSubstr("step:")));
  EXPECT_THAT(outcome.err, HasSubstr("there is no folder '" + (folder_ / "none").string() + "'"));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(run_echelon(train({"--html="})).status, 2);
}

}  // namespace
}  // namespace echelon
