// A page about a run or a prediction: one self-contained HTML file with styles and script, which loads nothing from the
// network. Empty sections are omitted, so that one generator serves `train`, `simulate` and `plan`.
//
// Drawings are our own: bars are HTML, curves SVG, both readable without a script, and a pipeline's timeline is a
// canvas, since it can have tens of thousands of bars. docs/guides/report.md describes each section.
#pragma once

#include "report/html/html_text.h"
#include "report/html/html_timeline.h"
#include "report/output_file.h"

#include <string>
#include <vector>

namespace echelon {

/// One figure in large type: "step time", "1.23 s", "of 20 steps".
struct HtmlTile {
  std::string label = {}, value = {}, note = {};
};

struct HtmlFact {
  std::string key = {}, value = {};
};

/// A prediction and the measurement of a run.
struct HtmlComparison {
  std::string what = {};
  HtmlUnit unit = HtmlUnit::seconds;
  double predicted = 0, measured = 0;
};

/// Rows of bars with segments: a stage's memory by category, its traffic by axis, a step's time by what it went into.
struct HtmlBars {
  struct Segment {
    std::string name = {};
    double amount = 0;
    bool is_wait = false;  // shown as a gap, and no part of the row's sum
  };
  struct Row {
    std::string label = {};
    std::vector<Segment> segments = {};
    double limit = 0;  // a mark on the row's bar, for instance the memory of the stage's device; 0: none
  };
  std::string title = {}, note = {};
  HtmlUnit unit = HtmlUnit::bytes;
  std::vector<Row> rows = {};
  std::string limit_name = {};  // "the device's memory"
};

struct HtmlCurve {
  struct Series {
    std::string name = {};
    std::vector<double> x = {}, y = {};  // equally long, x ascending; a y that is not finite leaves a gap
  };
  std::string title = {};
  std::string x_name = "step";
  HtmlUnit unit = HtmlUnit::number;
  std::vector<Series> series = {};
  bool is_log_x = false;  // 1..N GPUs
};

struct HtmlTable {
  struct Column {
    std::string name = {};
    bool is_number = false;
  };
  struct Row {
    std::vector<std::string> cells = {};  // one for each column
    std::string remark = {};              // below the row: the reason for a plan's rank
    bool is_best = false;
  };
  std::string title = {}, note = {};
  std::vector<Column> columns = {};
  std::vector<Row> rows = {};
};

struct HtmlReport {
  std::string title = {};    // also the title of the browser's tab
  std::string summary = {};  // a sentence or two
  std::vector<HtmlTile> tiles = {};
  std::vector<HtmlTable> tables = {};
  std::vector<HtmlCurve> curves = {};
  std::vector<HtmlComparison> comparisons = {};
  std::vector<HtmlTimeline> timelines = {};  // they zoom together and have a common start
  std::vector<HtmlBars> bars = {};
  std::vector<HtmlTable> details = {};
  std::vector<HtmlFact> facts = {};
  std::vector<std::string> notes = {};
  std::string config = {};  // the whole config file, collapsed
};

/// The page, in the order of the fields above. All text is escaped.
[[nodiscard]] std::string to_html(const HtmlReport& report);

/// The file that --html names.
class HtmlFile {
 public:
  /// Throws Error with a sentence about --html if the file cannot be written.
  explicit HtmlFile(std::string path) : file_("--html", std::move(path), "report.html") {}

  /// Throws Failure if the disk is full.
  void write(const HtmlReport& report) const { file_.write(to_html(report)); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace echelon
