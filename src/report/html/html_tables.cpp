#include "report/html/html_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

// A wide table scrolls inside its box, also by keyboard. The page itself is never wider than the screen.
constexpr std::string_view table_begin =
    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n";

std::string row_of(const HtmlTable& table, const HtmlTable::Row& row) {
  std::string html = row.is_best ? "<tr class=\"best\">" : "<tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    html += fmt::format("<td{}>{}</td>", table.columns[i].is_number ? " class=\"number\"" : "",
                        i < row.cells.size() ? escaped(row.cells[i]) : "");
  html += "</tr>\n";
  if (!row.remark.empty())
    html += fmt::format("<tr class=\"remark\"><td colspan=\"{}\"><span>{}</span></td></tr>\n", table.columns.size(),
                        escaped(row.remark));
  return html;
}

std::string pair_of_bars(const HtmlComparison& comparison) {
  const double longest = std::max({comparison.predicted, comparison.measured, 1e-300});
  return fmt::format(
      "<td class=\"pair\" aria-hidden=\"true\"><i class=\"predicted\" style=\"width:{:.2f}%\"></i><i "
      "class=\"measured\" style=\"width:{:.2f}%\"></i></td>",
      100 * std::max(0.0, comparison.predicted) / longest, 100 * std::max(0.0, comparison.measured) / longest);
}

}  // namespace

std::string tiles_to_html(const std::vector<HtmlTile>& tiles) {
  if (tiles.empty()) return {};
  std::string html = "<dl class=\"tiles\">\n";
  for (const HtmlTile& tile : tiles)
    html += fmt::format("<div><dt>{}</dt><dd><b>{}</b><small>{}</small></dd></div>\n", escaped(tile.label),
                        escaped(tile.value), escaped(tile.note));
  return html + "</dl>\n";
}

std::string facts_to_html(const std::vector<HtmlFact>& facts) {
  if (facts.empty()) return {};
  std::string html = "<section id=\"facts\"><h2>The run</h2>\n<dl class=\"facts\">\n";
  for (const HtmlFact& fact : facts)
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(fact.key), escaped(fact.value));
  return html + "</dl></section>\n";
}

std::string comparisons_to_html(const std::vector<HtmlComparison>& comparisons) {
  if (comparisons.empty()) return {};
  std::string html = "<section id=\"comparison\"><h2>Predicted and measured</h2>\n";
  html += fmt::format(table_begin, "predicted and measured");
  html +=
      "<thead><tr><th></th><th class=\"number\"><i class=\"swatch predicted\"></i>predicted</th><th "
      "class=\"number\"><i class=\"swatch "
      "measured\"></i>measured</th>"
      "<th class=\"number\">error</th><th></th></tr></thead><tbody>\n";
  for (const HtmlComparison& comparison : comparisons) {
    const double error = comparison.predicted / comparison.measured - 1;
    html += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td "
        "class=\"number\">{}</td>{}</tr>\n",
        escaped(comparison.what), text_of(comparison.unit, comparison.predicted),
        text_of(comparison.unit, comparison.measured),
        std::isfinite(error) ? fmt::format("{:+.1f} %", 100 * error) : "–", pair_of_bars(comparison));
  }
  return html + "</tbody></table></div></section>\n";
}

std::string to_html(const HtmlTable& table) {
  if (table.rows.empty()) return {};
  std::string html = fmt::format("<section class=\"table\"><h2>{}</h2>\n", escaped(table.title));
  if (!table.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escaped(table.note));
  html += fmt::format(table_begin, escaped(table.title)) + "<thead><tr>";
  for (const HtmlTable::Column& column : table.columns)
    html += fmt::format("<th{}>{}</th>", column.is_number ? " class=\"number\"" : "", escaped(column.name));
  html += "</tr></thead><tbody>\n";
  for (const HtmlTable::Row& row : table.rows) html += row_of(table, row);
  return html + "</tbody></table></div></section>\n";
}

}  // namespace echelon
