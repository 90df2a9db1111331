#include "report/html/html_report.h"

#include "report/html/html_sections.h"
#include "report/html/page_sources.h"

#include <fmt/format.h>

namespace echelon {
namespace {

std::string notes_to_html(const std::vector<std::string>& notes) {
  if (notes.empty()) return {};
  std::string html = "<section id=\"notes\"><h2>Notes</h2>\n<ul class=\"notes\">\n";
  for (const std::string& note : notes) html += fmt::format("<li>{}</li>\n", escaped(note));
  return html + "</ul></section>\n";
}

std::string curves_to_html(const std::vector<HtmlCurve>& curves) {
  std::string html;
  for (const HtmlCurve& curve : curves) html += to_html(curve);
  return html.empty() ? html
                      : "<section id=\"curves\"><h2>Curves</h2>\n<div class=\"grid\">\n" + html + "</div></section>\n";
}

std::string timelines_to_html(const std::vector<HtmlTimeline>& timelines) {
  std::string html;
  for (const HtmlTimeline& timeline : timelines)
    if (!timeline.bars.empty()) html += to_html(timeline, static_cast<int>(&timeline - timelines.data()));
  if (html.empty()) return {};
  return "<section id=\"timelines\"><h2>Pipeline timeline</h2>\n<noscript><p class=\"note\">Timelines are drawn by the "
         "page's script, which is switched "
         "off.</p></noscript>\n" +
         html + "</section>\n";
}

std::string body_of(const HtmlReport& report) {
  std::string html = fmt::format("<header><h1>{}</h1>\n", escaped(report.title));
  if (!report.summary.empty()) html += fmt::format("<p>{}</p>\n", escaped(report.summary));
  html += "</header>\n" + tiles_to_html(report.tiles);
  for (const HtmlTable& table : report.tables) html += to_html(table);
  html += curves_to_html(report.curves) + comparisons_to_html(report.comparisons) + timelines_to_html(report.timelines);
  for (const HtmlBars& bars : report.bars) html += to_html(bars);
  for (const HtmlTable& table : report.details) html += to_html(table);
  html += facts_to_html(report.facts) + notes_to_html(report.notes);
  if (report.config.empty()) return html;
  return html + fmt::format(
                    "<section id=\"config\"><details><summary>The config</summary>\n<pre class=\"scroll\" "
                    "tabindex=\"0\">{}</pre></details></section>\n",
                    escaped(report.config));
}

}  // namespace

std::string to_html(const HtmlReport& report) {
  // The policy forbids loading anything, so a page that requested something would show an error.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"Echelon\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n"
      "<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}</main>\n"
      "<footer>Made by Echelon. This page holds all that it shows and loads "
      "nothing.</footer>\n<script>\n{}</script>\n</body>\n</html>\n",
      escaped(report.title), page_style, body_of(report), page_script);
}

}  // namespace echelon
