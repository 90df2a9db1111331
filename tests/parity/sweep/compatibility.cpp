#include "parity/sweep/compatibility.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon::testing {
namespace {

std::string in_words(const std::string& axis) { return axis.find('.') == std::string::npos ? axis : "`" + axis + "`"; }

std::string settings_of(const SweepAxis& axis, const std::vector<std::size_t>& settings) {
  std::string text;
  for (const std::size_t setting : settings) text += (text.empty() ? "" : " \\| ") + axis.settings[setting].name;
  return text;
}

std::string axes_in_rows(const SweepTable& table) {
  std::string text = "| | axis | settings |\n|---|---|---|\n";
  for (std::size_t axis = 0; axis < table.axes.size(); ++axis) {
    std::vector<std::size_t> all;
    for (std::size_t setting = 0; setting < table.axes[axis].settings.size(); ++setting) all.push_back(setting);
    text += fmt::format("| {} | {} | {} |\n", axis + 1, in_words(table.axes[axis].name),
                        settings_of(table.axes[axis], all));
  }
  return text;
}

std::string letter_of(std::size_t rule) { return std::string(1, static_cast<char>('a' + rule)); }

bool speaks_of(const Rule& rule, std::size_t axis) {
  return std::ranges::find(rule.terms, axis, &Rule::Term::axis) != rule.terms.end();
}

std::string pair_in_a_cell(const SweepTable& table, std::size_t a, std::size_t b) {
  if (b >= a) return "";
  std::string letters;
  for (std::size_t rule = 0; rule < table.rules.size(); ++rule)
    if (speaks_of(table.rules[rule], a) && speaks_of(table.rules[rule], b))
      letters += (letters.empty() ? "" : " ") + letter_of(rule);
  return letters.empty() ? "+" : letters;
}

std::string pairs_in_a_square(const SweepTable& table) {
  std::string head = "| |", line = "|---|", rows;
  for (std::size_t b = 0; b + 1 < table.axes.size(); ++b) {
    head += fmt::format(" {} |", b + 1);
    line += "---|";
  }
  for (std::size_t a = 1; a < table.axes.size(); ++a) {
    rows += fmt::format("| {} |", a + 1);
    for (std::size_t b = 0; b + 1 < table.axes.size(); ++b) rows += fmt::format(" {} |", pair_in_a_cell(table, a, b));
    rows += "\n";
  }
  return head + "\n" + line + "\n" + rows;
}

std::string refusals_in_rows(const SweepTable& table) {
  std::string text = "| | refused together | because |\n|---|---|---|\n";
  for (std::size_t rule = 0; rule < table.rules.size(); ++rule) {
    std::string together;
    for (const Rule::Term& term : table.rules[rule].terms)
      together += fmt::format("{}{} = {}", together.empty() ? "" : ", ", in_words(table.axes[term.axis].name),
                              settings_of(table.axes[term.axis], term.settings));
    text += fmt::format("| {} | {} | {} |\n", letter_of(rule), together, table.rules[rule].why);
  }
  return text;
}

}  // namespace

std::string compatibility(const SweepTable& table) {
  return fmt::format(
      "{}\nEach axis with each other, by their numbers: `+` all settings go together, a letter all but those named "
      "under it.\n\n{}\n{}",
      axes_in_rows(table), pairs_in_a_square(table), refusals_in_rows(table));
}

}  // namespace echelon::testing
