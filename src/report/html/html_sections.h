// The parts of a page. Each returns a heading with its content, or an empty string if there is no content.
#pragma once

#include "report/html/html_report.h"

#include <string>
#include <vector>

namespace echelon {

[[nodiscard]] std::string tiles_to_html(const std::vector<HtmlTile>& tiles);
[[nodiscard]] std::string facts_to_html(const std::vector<HtmlFact>& facts);
[[nodiscard]] std::string comparisons_to_html(const std::vector<HtmlComparison>& comparisons);
[[nodiscard]] std::string to_html(const HtmlTable& table);
/// A legend, a bar for each row, and the same values as a table that the reader can open.
[[nodiscard]] std::string to_html(const HtmlBars& bars);
/// An SVG of lines with at most 1,000 points each (minima and maxima of the stretches), and the points as data for the
/// page's script.
[[nodiscard]] std::string to_html(const HtmlCurve& curve);

}  // namespace echelon
