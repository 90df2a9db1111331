#include "report/html/html_report.h"

#include "base/error.h"
#include "report/example_page.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <regex>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HtmlText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(text_of(HtmlUnit::bytes, 0), "0 B");
  EXPECT_EQ(text_of(HtmlUnit::bytes, 1023), "1,023 B");
  EXPECT_EQ(text_of(HtmlUnit::bytes, 1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(text_of(HtmlUnit::bytes, 4096.0 * 1024 * 1024 * 1024 * 1024), "4,096 TiB");
  EXPECT_EQ(text_of(HtmlUnit::seconds, 0), "0 s");
  EXPECT_EQ(text_of(HtmlUnit::seconds, 0.0456), "45.6 ms");
  EXPECT_EQ(text_of(HtmlUnit::seconds, 0.9996), "1.00 s");
  EXPECT_EQ(text_of(HtmlUnit::seconds, 3e-6), "3.00 µs");
  EXPECT_EQ(text_of(HtmlUnit::seconds, -12.34), "-12.3 s");
  EXPECT_EQ(text_of(HtmlUnit::fraction, 0.4567), "45.7 %");
  EXPECT_EQ(text_of(HtmlUnit::number, 1234567), "1,234,567");
  EXPECT_EQ(text_of(HtmlUnit::number, -1234), "-1,234");
  EXPECT_EQ(text_of(HtmlUnit::number, 4), "4");
  EXPECT_EQ(text_of(HtmlUnit::number, 4.5), "4.50");
  EXPECT_EQ(text_of(HtmlUnit::seconds, std::numeric_limits<double>::quiet_NaN()), "–");
  EXPECT_EQ(text_of(HtmlUnit::bytes, std::numeric_limits<double>::infinity()), "–");
}

TEST(HtmlText, IsNeverMarkup) {
  EXPECT_EQ(escaped("<a b='\"&'>"), "&lt;a b=&#39;&quot;&amp;&#39;&gt;");
  EXPECT_EQ(escaped(std::string("a\0b\x1b", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(embedded(R"({"a": "</script>"})"), R"({"a": "\u003c/script>"})");
}

TEST(HtmlReport, LeavesOutWhatIsEmpty) {
  const std::string page = to_html(HtmlReport{.title = "Nothing"});
  EXPECT_THAT(page, HasSubstr("<h1>Nothing</h1>"));
  for (const char* part : {"<section", "<table", "<figure", "<dl", "<ul"}) EXPECT_THAT(page, Not(HasSubstr(part)));
}

TEST(HtmlReport, LoadsNothing) {
  const std::string page = to_html(example_page::page());
  EXPECT_FALSE(std::regex_search(page, std::regex(R"((https?:)?//\w+\.\w+|src=|@import|url\()")));
  EXPECT_LT(page.size(), 150'000U);
}

TEST(HtmlReport, WorksWithWhatHasNoSize) {
  HtmlReport report = {.title = "Zeros"};
  report.bars = {{.title = "Memory", .note = {}, .rows = {{"stage 0", {{"parameters", 0}}, 0}}, .limit_name = {}}};
  report.curves = {{.title = "Flat", .series = {{"loss", {1, 2}, {0, 0}}}},
                   {.title = "One", .series = {{"loss", {5}, {2.5}}}},
                   {.title = "None", .series = {{"loss", {1}, {std::numeric_limits<double>::quiet_NaN()}}}}};
  report.timelines = {{.title = "Empty", .note = {}, .rows = {"rank 0"}, .bars = {}}};
  report.comparisons = {{"Memory", HtmlUnit::bytes, 5, 0}};
  const std::string page = to_html(report);
  EXPECT_FALSE(std::regex_search(page, std::regex("\\b(nan|inf)\\b")));
  EXPECT_THAT(page, HasSubstr("<h3>Flat</h3>"));
  EXPECT_THAT(page, Not(HasSubstr("<h3>None</h3>")));
  EXPECT_THAT(page, Not(HasSubstr("<canvas")));
}

TEST(HtmlReport, DrawsSomeOfManyRowsAndTellsAll) {
  HtmlBars bars = {.title = "Memory"};
  for (int i = 0; i < 1000; ++i)
    bars.rows.push_back({.label = "stage " + std::to_string(i), .segments = {{"parameters", 1e9}}});
  const std::string page = to_html(HtmlReport{.title = "Many", .bars = {bars}});
  const auto count = [&](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = page.find(text, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("<span class=\"label\">"), 64U);
  EXPECT_EQ(count("<th scope=\"row\">"), 1000U);
  EXPECT_EQ(count("<span class=\"label\">stage 0<"), 1U);
  EXPECT_EQ(count("<span class=\"label\">stage 999<"), 1U);
  EXPECT_THAT(page, HasSubstr("64 of 1000 rows are drawn"));
}

TEST(HtmlReport, NamesInALegendWhatCanBeSeenAndAllAmongTheNumbers) {
  const HtmlBars bars = {.title = "Time",
                         .unit = HtmlUnit::seconds,
                         .rows = {{.label = "rank 0", .segments = {{"compute", 1}, {"clipping", 1e-3}}}}};
  const std::string page = to_html(HtmlReport{.title = "Legend", .bars = {bars}});
  EXPECT_THAT(page, HasSubstr("</i>compute</li>"));
  EXPECT_THAT(page, Not(HasSubstr("</i>clipping</li>")));
  EXPECT_THAT(page, HasSubstr("<th class=\"number\">clipping</th>"));
}

TEST(HtmlReport, TicksOfOneAxisAreWrittenAlike) {
  HtmlReport report{.title = "Ticks"};
  report.curves = {{.title = "Learning rate", .series = {{"lr", {1, 2}, {0, 0.002}}}}};
  const std::string page = to_html(report);
  for (const char* tick : {">0<", ">0.0005<", ">0.001<", ">0.0015<", ">0.002<"}) EXPECT_THAT(page, HasSubstr(tick));
}

TEST(HtmlTimeline, HasABarForEveryActionThatTakesTime) {
  const auto [programs, timeline] = example_page::played(4, 8);
  const HtmlTimeline figure = html_timeline("step", timeline, programs);
  std::size_t num_actions = 0;
  for (const Program& program : programs) num_actions += program.size();
  EXPECT_EQ(figure.bars.size(), num_actions);  // everything takes time there
  EXPECT_EQ(std::ranges::count(figure.bars, BarKind::forward, &TimelineBar::kind), 4 * 8);
  EXPECT_EQ(std::ranges::count(figure.bars, BarKind::backward_weight, &TimelineBar::kind), 4 * 8);
  // Both ends, both directions, three boundaries.
  EXPECT_EQ(std::ranges::count(figure.bars, BarKind::transfer, &TimelineBar::kind), 2 * 2 * 3 * 8);
  EXPECT_DOUBLE_EQ(std::ranges::min(figure.bars, {}, &TimelineBar::start).start, 0);
}

// Rows of experts are bars of their own, below the pass that they are inside of; what they are merged with is, too.
TEST(HtmlTimeline, HasABarForEveryExchangeOfExperts) {
  auto [programs, timeline] = example_page::played(2, 2);
  const Event pass = *std::ranges::find_if(timeline.events, [&programs = programs](const Event& event) {
    return programs[static_cast<std::size_t>(event.rank)][static_cast<std::size_t>(event.action_id)].kind ==
           ActionKind::forward;
  });
  const double middle = (pass.start + pass.end) / 2;
  timeline.exchanges = {{pass.rank, pass.action_id, "dispatch", pass.start, middle},
                        {pass.rank, pass.action_id, "combine", middle, pass.end}};
  const HtmlTimeline figure = html_timeline("step", timeline, programs);
  for (const BarKind kind : {BarKind::dispatch, BarKind::combine}) {
    const auto bar = std::ranges::find(figure.bars, kind, &TimelineBar::kind);
    ASSERT_NE(bar, figure.bars.end());
    EXPECT_EQ(bar->row, pass.rank);
    EXPECT_EQ(bar->microbatch, 0);
    EXPECT_DOUBLE_EQ(bar->end - bar->start, (pass.end - pass.start) / 2);
  }
  EXPECT_THAT(to_html(figure, 1), HasSubstr("dispatch</li>"));
  const HtmlTimeline fewer = reduced(figure, 5);
  for (const TimelineBar& bar : fewer.bars)
    if (bar.kind == BarKind::dispatch || bar.kind == BarKind::combine) {
      EXPECT_LE(bar.end - bar.start, pass.end - pass.start);
    }
}

double seconds_of(const std::vector<TimelineBar>& bars) {
  double sum = 0;
  for (const TimelineBar& bar : bars) sum += bar.end - bar.start;
  return sum;
}

// 300 rows of 500 bars of 1 ms: rows are selected, then neighbours merged. Nothing is lost between a row's first and
// last bar.
TEST(HtmlTimeline, IsReducedToWhatAnEyeCanSee) {
  HtmlTimeline many = {.title = "many", .note = {}, .rows = {}, .bars = {}};
  for (int row = 0; row < 300; ++row) {
    many.rows.push_back("rank " + std::to_string(row));
    for (int i = 0; i < 500; ++i)
      many.bars.push_back({.row = row,
                           .kind = BarKind::forward,
                           .stage = 0,
                           .microbatch = i,
                           .start = 1e-3 * i,
                           .end = 1e-3 * (i + 1)});
  }
  const HtmlTimeline rows = reduced(many, 1'000'000, 100);
  ASSERT_EQ(rows.rows.size(), 100U);
  EXPECT_EQ(rows.rows.front(), "rank 0");
  EXPECT_EQ(rows.rows.back(), "rank 299");
  EXPECT_EQ(rows.bars.size(), 100U * 500);
  EXPECT_THAT(rows.note, HasSubstr("100 of 300 rows"));

  const HtmlTimeline bars = reduced(rows, 10'000, 100);
  EXPECT_LE(bars.bars.size(), 10'000U);
  EXPECT_NEAR(seconds_of(bars.bars), 100 * 0.5, 1e-9);
  int num_actions = 0;
  for (const TimelineBar& bar : bars.bars) num_actions += bar.num_actions;
  EXPECT_EQ(num_actions, 100 * 500);
  EXPECT_THAT(bars.note, HasSubstr("50,000 actions exceed"));
}

TEST(HtmlTimeline, KeepsLongBarsWhenShortOnesAreJoined) {
  HtmlTimeline timeline = {.title = "mixed", .note = {}, .rows = {"rank 0"}, .bars = {}};
  for (int i = 0; i < 10; ++i) {
    timeline.bars.push_back(
        {.kind = BarKind::forward, .stage = 0, .microbatch = i, .start = 10.0 * i, .end = 10.0 * i + 8});
    for (int j = 0; j < 20; ++j)
      timeline.bars.push_back({.kind = BarKind::backward,
                               .stage = 0,
                               .microbatch = j,
                               .start = 10.0 * i + 8 + 0.1 * j,
                               .end = 10.0 * i + 8.1 + 0.1 * j});
  }
  const HtmlTimeline fewer = reduced(timeline, 20);
  EXPECT_EQ(std::ranges::count(fewer.bars, 1, &TimelineBar::num_actions), 10);
  EXPECT_EQ(std::ranges::count(fewer.bars, 20, &TimelineBar::num_actions), 10);
}

std::string refusal_of(const std::string& path) {
  try {
    const HtmlFile file(path);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(HtmlFile, SaysWhereItCannotWrite) {
  const std::filesystem::path folder = std::filesystem::path(scratch_folder()) / "echelon-html-file";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string there = (folder / "a.html").string();
  EXPECT_EQ(refusal_of(there), "");
  EXPECT_FALSE(std::filesystem::exists(there)) << "a run that fails leaves no empty page";
  EXPECT_THAT(refusal_of((folder / "none" / "a.html").string()),
              HasSubstr("there is no folder '" + (folder / "none").string() + "'"));
  EXPECT_THAT(refusal_of(folder.string()),
              HasSubstr("is a folder (use --html=" + (folder / "report.html").string() + ")"));
  EXPECT_THAT(refusal_of(""), HasSubstr("--html is empty"));
  EXPECT_THAT(refusal_of("/dev/null/a.html"), HasSubstr("there is no folder"));
  if (std::filesystem::exists("/dev/full")) {
    EXPECT_THROW(HtmlFile("/dev/full").write({.title = "lost"}), Failure);
  }
}

// A limit on the size of files simulates a full disk.
TEST(HtmlFile, LeavesNoPartOnAFullDisk) {
  const std::string path = scratch_folder() + "/echelon-full-disk.html";
  const HtmlFile file(path);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {100, limit.rlim_max};
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(file.write({.title = "lost"}), Failure);
  setrlimit(RLIMIT_FSIZE, &limit);
  static_cast<void>(std::signal(SIGXFSZ, before));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace echelon
