#include "report/html/html_sections.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr std::size_t num_colours = 14, most_rows = 64;

double length_of(const HtmlBars::Row& row) {
  double length = 0;
  for (const auto& segment : row.segments) length += segment.amount;
  return length;
}

/// Without waits.
double total_of(const HtmlBars::Row& row) {
  double total = 0;
  for (const auto& segment : row.segments) total += segment.is_wait ? 0 : segment.amount;
  return total;
}

double amount_of(const HtmlBars::Row& row, const std::string& name) {
  double amount = 0;
  for (const auto& segment : row.segments) amount += segment.name == name ? segment.amount : 0;
  return amount;
}

/// The names of all segments with an amount in some row, in the order in which rows list them; those of waits, or the
/// others. The index of the others selects the colour.
std::vector<std::string> names_of(const HtmlBars& bars, bool are_waits) {
  std::vector<std::string> names;
  for (const auto& row : bars.rows)
    for (const auto& segment : row.segments)
      if (segment.is_wait == are_waits && std::find(names.begin(), names.end(), segment.name) == names.end())
        names.push_back(segment.name);
  std::erase_if(names, [&](const std::string& name) {
    return std::none_of(bars.rows.begin(), bars.rows.end(),
                        [&](const HtmlBars::Row& row) { return amount_of(row, name) > 0; });
  });
  return names;
}

/// "c3", or that of waits, which are not among the names.
std::string class_of(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? "wait"
                              : fmt::format("c{}", static_cast<std::size_t>(found - names.begin()) % num_colours);
}

/// The value of a bar of full width. A limit far above all bars would make them thin, so it is then only written as
/// text.
double full_width_of(const HtmlBars& bars) {
  constexpr double least_filled = 0.2;
  double longest = 0, furthest = 0;
  for (const auto& row : bars.rows)
    longest = std::max(longest, length_of(row)), furthest = std::max({furthest, length_of(row), row.limit});
  return longest >= least_filled * furthest ? furthest : longest;
}

std::string row_of(const HtmlBars& bars, const HtmlBars::Row& row, const std::vector<std::string>& names,
                   double full_width) {
  const double total = total_of(row);
  const auto percent = [&](double amount) { return full_width > 0 ? 100 * amount / full_width : 0; };
  std::string html = fmt::format("<li><span class=\"label\">{}</span><span class=\"bar\">", escaped(row.label));
  for (const auto& segment : row.segments) {
    if (!(segment.amount > 0)) continue;
    html += fmt::format("<i class=\"{}\" style=\"width:{:.3f}%\" title=\"{}: {}\"></i>", class_of(names, segment.name),
                        percent(segment.amount), escaped(segment.name), text_of(bars.unit, segment.amount));
  }
  if (row.limit > 0 && row.limit <= full_width)
    html += fmt::format("<b class=\"limit\" style=\"left:{:.3f}%\" title=\"{}: {}\"></b>", percent(row.limit),
                        escaped(bars.limit_name), text_of(bars.unit, row.limit));
  html += fmt::format("</span><span class=\"total\">{}", text_of(bars.unit, total));
  if (row.limit > 0)
    html += fmt::format(" <small{}>{} of {}</small>", total > row.limit ? " class=\"over\"" : "",
                        text_of(HtmlUnit::fraction, total / row.limit), text_of(bars.unit, row.limit));
  return html + "</span></li>\n";
}

/// Whether a segment is visible in some bar; the others are only in the table.
bool is_seen(const HtmlBars& bars, const std::string& name, double full_width) {
  constexpr double hair = 0.002;
  return std::any_of(bars.rows.begin(), bars.rows.end(), [&](const HtmlBars::Row& row) {
    return std::any_of(row.segments.begin(), row.segments.end(), [&](const auto& segment) {
      return segment.name == name && segment.amount >= hair * full_width;
    });
  });
}

std::string numbers_of(const HtmlBars& bars, const std::vector<std::string>& names,
                       const std::vector<std::string>& waits) {
  std::string html = fmt::format(
      "<details><summary>Values</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"values: "
      "{}\"><table>\n<thead><tr><th></th>",
      escaped(bars.title));
  const auto heads = [](const std::vector<std::string>& of) {
    std::string row;
    for (const std::string& name : of) row += fmt::format("<th class=\"number\">{}</th>", escaped(name));
    return row;
  };
  const auto cells = [&](const HtmlBars::Row& row, const std::vector<std::string>& of) {
    std::string text;
    for (const std::string& name : of)
      text += fmt::format("<td class=\"number\">{}</td>", text_of(bars.unit, amount_of(row, name)));
    return text;
  };
  html += heads(names) + "<th class=\"number\">sum</th>" + heads(waits) + "</tr></thead><tbody>\n";
  for (const auto& row : bars.rows) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(row.label));
    html += fmt::format("{}<td class=\"number\">{}</td>{}</tr>\n", cells(row, names), text_of(bars.unit, total_of(row)),
                        cells(row, waits));
  }
  return html + "</tbody></table></div></details>\n";
}

}  // namespace

std::string to_html(const HtmlBars& bars) {
  const std::vector<std::string> names = names_of(bars, false), waits = names_of(bars, true);
  if (names.empty()) return {};
  const double full_width = full_width_of(bars);
  const bool shows_limit = std::any_of(bars.rows.begin(), bars.rows.end(),
                                       [&](const auto& row) { return row.limit > 0 && row.limit <= full_width; });
  std::string html = fmt::format("<section class=\"bars\"><h2>{}</h2>\n", escaped(bars.title));
  if (!bars.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escaped(bars.note));
  html += "<ul class=\"legend\">";
  for (const auto* const each : {&names, &waits})
    for (const std::string& name : *each)
      if (is_seen(bars, name, full_width))
        html += fmt::format("<li><i class=\"{}\"></i>{}</li>", class_of(names, name), escaped(name));
  if (shows_limit) html += fmt::format("<li><i class=\"limit\"></i>{}</li>", escaped(bars.limit_name));
  html += "</ul>\n<ul class=\"rows\">\n";
  const std::size_t num_rows = bars.rows.size(), num_shown = std::min(num_rows, most_rows);
  for (std::size_t i = 0; i < num_shown; ++i)
    html += row_of(bars, bars.rows[num_shown < num_rows ? i * (num_rows - 1) / (num_shown - 1) : i], names, full_width);
  html += "</ul>\n";
  if (num_shown < num_rows)
    html += fmt::format("<p class=\"note more\">{} of {} rows are drawn, evenly chosen.</p>\n", num_shown, num_rows);
  return html + numbers_of(bars, names, waits) + "</section>\n";
}

}  // namespace echelon
