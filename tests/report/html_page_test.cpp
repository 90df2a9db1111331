// Pages in a real browser: their content, their look in light and dark mode and on a phone, and zooming a timeline.
#include "report/browser.h"
#include "report/example_page.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// Claim (reports): A report (`--html`) is one page that loads nothing, logs no error in Chromium and
//   zooms by wheel, drag, keys and fingers.
// Bound: light and dark, 390 pixels wide; contrast at least 4.5.
// Tests: Page|Html
class Page : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::path(scratch_folder()) / "echelon-pages";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void SetUp() override {
    const auto program = Browser::program();
    if (!program) GTEST_SKIP() << "there is no chromium here; scripts/install test installs it";
    browser_.emplace(*program, folder_ / testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  void open(const HtmlReport& report, const Screen& screen = {}) {
    const std::filesystem::path page = folder_ / "report.html";
    HtmlFile(page.string()).write(report);
    browser_->open(page, screen);
  }
  Json value(const std::string& expression) { return browser_->evaluate(expression); }
  double number(const std::string& expression) { return value(expression).get<double>(); }
  /// Waits until everything scheduled for the next frame is drawn.
  void settle() {
    (void)value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))");
  }

  void mouse(const std::string& type, double x, double y, Json more = Json::object()) {
    more.update({{"type", type}, {"x", x}, {"y", y}});
    browser_->call("Input.dispatchMouseEvent", more);
  }
  void press(const std::string& key) {
    for (const char* type : {"keyDown", "keyUp"})
      browser_->call("Input.dispatchKeyEvent", {{"type", type}, {"key", key}});
    settle();
  }
  void fingers(const std::string& type, const std::vector<std::pair<double, double>>& places) {
    Json points = Json::array();
    for (std::size_t i = 0; i < places.size(); ++i)
      points.push_back({{"x", places[i].first}, {"y", places[i].second}, {"id", i}});
    browser_->call("Input.dispatchTouchEvent", {{"type", type}, {"touchPoints", points}});
  }

  /// The visible time range, and the place of its canvas on the screen.
  double shown_seconds() {
    return number("document.querySelector('.timeline').dataset.to - document.querySelector('.timeline').dataset.from");
  }
  double shown_from() { return number("+document.querySelector('.timeline').dataset.from"); }
  std::array<double, 4> canvas() {
    const Json box = value(
        "(() => { const c = document.querySelector('canvas'); c.scrollIntoView(); const b = c.getBoundingClientRect(); "
        "return [b.left, b.top, b.width, b.height]; })()");
    return {box[0], box[1], box[2], box[3]};
  }

  /// Different colours among a picture's pixels, and the mean brightness, 0 to 255.
  std::pair<double, double> colours(const std::filesystem::path& picture) {
    browser_->photograph(picture);
    const Json answer = browser_->call("Page.captureScreenshot", {{"captureBeyondViewport", true}});
    const Json pair = value("(async () => { const image = new Image(); image.src = 'data:image/png;base64," +
                            answer.at("data").get<std::string>() +
                            "'; await image.decode(); const canvas = new OffscreenCanvas(image.width, image.height), "
                            "pen = canvas.getContext('2d'); "
                            "pen.drawImage(image, 0, 0); const data = new Uint32Array(pen.getImageData(0, 0, "
                            "image.width, image.height).data.buffer); "
                            "let sum = 0; for (const pixel of data) sum += pixel & 255; return [new Set(data).size, "
                            "sum / data.length]; })()");
    return {pair[0], pair[1]};
  }

  static inline std::filesystem::path folder_;
  std::optional<Browser> browser_;
};

TEST_F(Page, LooksRightByDayByNightAndOnAPhone) {
  const std::vector<std::tuple<std::string, Screen, bool>> looks = {
      {"light", {}, false},
      {"dark", {.is_dark = true}, true},
      {"phone", {.width = 390, .height = 844, .is_phone = true}, false},
      {"phone-dark", {.width = 390, .height = 844, .is_dark = true, .is_phone = true}, true}};
  for (const auto& [name, screen, is_dark] : looks) {
    open(example_page::page(), screen);
    EXPECT_EQ(value("document.title"), "Llama of 70 B parameters on 1,024 GPUs");
    EXPECT_EQ(number("document.querySelectorAll('section').length"), 8)
        << "plans, curves, comparison, timelines, memory, traffic, facts, notes";
    EXPECT_EQ(number("document.querySelectorAll('.rows li').length"), 4 + 1);
    EXPECT_EQ(number("document.querySelectorAll('.rows .bar i').length"), 4 * 5 + 3);
    EXPECT_EQ(number("document.querySelectorAll('.rows .bar .limit').length"), 4);
    EXPECT_EQ(number("document.querySelectorAll('.plot path.line').length"), 3);
    EXPECT_LE(number("document.documentElement.scrollWidth"), screen.width)
        << name << ": the page is scrolled sideways";
    EXPECT_LE(number("Math.max(...[...document.querySelectorAll('.remark span')].map(remark => "
                     "remark.getBoundingClientRect().right))"),
              screen.width)
        << name;
    const auto [num_colours, brightness] = colours(folder_ / (name + ".png"));
    EXPECT_GT(num_colours, 100) << name;
    EXPECT_TRUE(is_dark ? brightness < 80 : brightness > 200) << name << ": " << brightness;
    EXPECT_THAT(browser_->complaints(), IsEmpty()) << name;
  }
}

// Contrast after WCAG 2: at least 4.5 for text.
TEST_F(Page, CanBeReadByDayAndByNight) {
  for (const bool is_dark : {false, true}) {
    open(example_page::page(), {.is_dark = is_dark});
    (void)value(
        "globalThis.light = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255).map(c => c <= 0.04045 ? c "
        "/ 12.92 : ((c + 0.055) / 1.055) ** 2.4)"
        ".reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0); "
        "globalThis.contrast = element => { let behind = element; while (getComputedStyle(behind).backgroundColor === "
        "'rgba(0, 0, 0, 0)') behind = "
        "behind.parentElement; "
        "const both = [light(getComputedStyle(element).color), "
        "light(getComputedStyle(behind).backgroundColor)].sort((a, b) => a - b); "
        "return (both[1] + 0.05) / (both[0] + 0.05); }; 0");
    for (const char* text : {"h1", "header p", ".tiles dt", ".tiles b", "small", "thead th", "td", ".remark td",
                             ".legend li", ".plot .y", "summary", "footer", "button", ".note"})
      EXPECT_GE(number(std::string("contrast(document.querySelector('") + text + "'))"), 4.5)
          << text << (is_dark ? " by night" : " by day");
  }
}

TEST_F(Page, TellsEveryBarOfTheTimeline) {
  const auto [programs, timeline] = example_page::played(4, 8);
  const HtmlTimeline figure = html_timeline("Predicted", timeline, programs);
  open(example_page::page());
  EXPECT_EQ(value("document.querySelector('.timeline').dataset.bars"), std::to_string(figure.bars.size()));
  EXPECT_EQ(value("document.querySelector('.timeline').dataset.drawn"), std::to_string(figure.bars.size()));
  const Json rows =
      value("readBars(JSON.parse(document.querySelector('.timeline script').textContent)).map(row => row.bars)");
  ASSERT_EQ(rows.size(), 4U);
  std::vector<std::tuple<int, double, double, std::string, int, int>> expected, found;
  for (const TimelineBar& bar : figure.bars)
    expected.emplace_back(bar.row, bar.start, bar.end, name_of(bar.kind), bar.stage, bar.microbatch);
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (const Json& bar : rows[row])
      found.emplace_back(row, bar["start"], bar["end"], bar["group"][0], bar["group"][1], bar["number"]);
  ASSERT_EQ(found.size(), expected.size());
  const auto order = [](const auto& bar) {
    return std::tuple(std::get<0>(bar), std::get<3>(bar), std::get<4>(bar), std::get<5>(bar),
                      std::llround(1e4 * std::get<1>(bar)));
  };
  std::ranges::sort(expected, {}, order);
  std::ranges::sort(found, {}, order);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(order(found[i]), order(expected[i]));
    EXPECT_NEAR(std::get<2>(found[i]), std::get<2>(expected[i]), 1e-6);
  }
}

TEST_F(Page, ZoomsByWheelMouseKeysAndButtons) {
  open(example_page::page());
  const double whole = shown_seconds();
  const auto [left, top, width, height] = canvas();
  const double middle = left + width / 2, row = top + 10;
  mouse("mouseWheel", middle, row, {{"deltaX", 0}, {"deltaY", -120}});
  settle();
  EXPECT_DOUBLE_EQ(shown_seconds(), whole) << "a wheel that passes by scrolls the page";
  const auto [left2, top2, width2, height2] = canvas();
  mouse("mouseWheel", middle, top2 + 10, {{"deltaX", 0}, {"deltaY", -300}, {"modifiers", 2}});  // with Ctrl
  settle();
  const double zoomed = shown_seconds(), from = shown_from();
  EXPECT_LT(zoomed, 0.7 * whole);
  EXPECT_GT(from, 0);

  const Json button = {{"button", "left"}, {"buttons", 1}, {"clickCount", 1}};
  mouse("mousePressed", middle, top2 + 10, button);
  mouse("mouseMoved", middle - 50, top2 + 10, button);
  mouse("mouseMoved", middle - 100, top2 + 10, button);
  mouse("mouseReleased", middle - 100, top2 + 10, button);
  settle();
  EXPECT_NEAR(shown_from() - from, 100 / (width - 64) * zoomed, 0.01 * zoomed) << "dragged by 100 pixels";
  EXPECT_NEAR(shown_seconds(), zoomed, 1e-9);

  (void)value("document.querySelector('canvas').focus()");
  press("+");
  EXPECT_NEAR(shown_seconds(), zoomed / 2, 1e-9);
  press("-");
  EXPECT_NEAR(shown_seconds(), zoomed, 1e-9);
  (void)value("document.querySelector('[data-do=in]').click()");
  settle();
  EXPECT_NEAR(shown_seconds(), zoomed / 2, 1e-9);
  (void)value("document.querySelector('[data-do=reset]').click()");
  settle();
  EXPECT_DOUBLE_EQ(shown_seconds(), whole);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(Page, ZoomsByTwoFingers) {
  open(example_page::page(), {.width = 390, .height = 844, .is_phone = true});
  const double whole = shown_seconds();
  const auto [left, top, width, height] = canvas();
  const double y = top + 20;
  fingers("touchStart", {{left + 150, y}});
  fingers("touchStart", {{left + 150, y}, {left + 200, y}});
  for (const double apart : {60, 80, 100})
    fingers("touchMove", {{left + 175 - apart / 2, y}, {left + 175 + apart / 2, y}});
  fingers("touchEnd", {});
  settle();
  EXPECT_NEAR(shown_seconds(), whole / 2, 0.02 * whole) << "from 50 pixels apart to 100";
}

// Hovering and the arrow keys describe a bar: zero bubble starts with the forward of the first microbatch on rank 0.
TEST_F(Page, SaysWhatABarIs) {
  open(example_page::page());
  const auto [left, top, width, height] = canvas();
  mouse("mouseMoved", left + 75, top + 10);
  settle();
  EXPECT_THAT(value("document.querySelector('.timeline .tip').textContent").get<std::string>(),
              HasSubstr("rank 0: forward of microbatch 1, stage 0; 100 ms"));
  (void)value("document.querySelector('canvas').focus()");
  press("ArrowDown");
  EXPECT_THAT(value("document.querySelector('.readout').textContent").get<std::string>(), HasSubstr("rank 1: "));
  const Json before = value("document.querySelector('.readout').textContent");
  press("ArrowRight");
  EXPECT_NE(value("document.querySelector('.readout').textContent"), before);

  (void)value("document.querySelector('.plot').focus()");
  press("ArrowRight");
  // 3 + 5 e^(-1/300) + 0.15 sin 12.9898 = 8.04499.
  EXPECT_EQ(value("document.querySelector('.plot .tip').textContent"), "step 1\ntraining: 8.04");
}

TEST_F(Page, TakesNamesThatAreScripts) {
  const std::string bad = "<script>window.harm = 1</script></script><img src=x onerror='window.harm = 1'>\"&'";
  HtmlReport report = example_page::page();
  report.title = report.summary = report.tables[0].title = report.tables[0].rows[0].cells[1] =
      report.tables[0].rows[0].remark = bad;
  report.curves[0].title = report.curves[0].x_name = report.curves[0].series[0].name = bad;
  report.comparisons[0].what = report.timelines[0].title = report.timelines[0].rows[0] = report.timelines[0].note = bad;
  report.bars[0].title = report.bars[0].note = report.bars[0].limit_name = report.bars[0].rows[0].label =
      report.bars[0].rows[0].segments[0].name = bad;
  report.facts[0] = {bad, bad};
  report.notes = {bad};
  report.tiles[0] = {bad, bad, bad};
  open(report);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  EXPECT_EQ(value("typeof window.harm"), "undefined");
  EXPECT_EQ(value("document.title"), bad);
  EXPECT_EQ(value("document.querySelector('h1').textContent"), bad);
  EXPECT_EQ(value("document.querySelector('.facts dd').textContent"), bad);
  EXPECT_EQ(number("document.querySelectorAll('img').length"), 0);
  const auto [left, top, width, height] = canvas();
  mouse("mouseMoved", left + 75, top + 10);
  settle();
  EXPECT_THAT(value("document.querySelector('.timeline .tip').textContent").get<std::string>(), HasSubstr(bad));
}

TEST_F(Page, HoldsAHundredThousandBars) {
  const auto [programs, timeline] = example_page::played(64, 400);
  HtmlReport report = {.title = "Many"};
  report.timelines = {html_timeline("Predicted", timeline, programs)};
  ASSERT_GT(report.timelines[0].bars.size(), 100'000U);
  open(report);
  EXPECT_LE(number("+document.querySelector('.timeline').dataset.drawn"), 40'000);
  EXPECT_GT(number("+document.querySelector('.timeline').dataset.drawn"), 5'000);
  EXPECT_LT(std::filesystem::file_size(folder_ / "report.html"), 400'000U);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

}  // namespace
}  // namespace echelon
