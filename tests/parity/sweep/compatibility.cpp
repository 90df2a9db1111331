#include "parity/sweep/compatibility.h"

#include <fmt/format.h>

#include <numeric>

namespace echelon::testing {
namespace {

std::string in_words(const std::string& axis) { return axis.find('.') == std::string::npos ? axis : "`" + axis + "`"; }

std::string settings_of(const SweepAxis& axis, const std::vector<std::size_t>& settings) {
  std::string text;
  for (const std::size_t setting : settings) text += (text.empty() ? "" : " \\| ") + axis.settings[setting].name;
  return text;
}

std::string axes_in_rows(const SweepTable& table) {
  std::string text = "| axis | settings |\n|---|---|\n";
  for (const SweepAxis& axis : table.axes) {
    std::vector<std::size_t> all(axis.settings.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    text += fmt::format("| {} | {} |\n", in_words(axis.name), settings_of(axis, all));
  }
  return text;
}

std::string refusals_in_rows(const SweepTable& table) {
  std::string text = "| rejected combination | reason |\n|---|---|\n";
  for (const Rule& rule : table.rules) {
    std::string together;
    for (const Rule::Term& term : rule.terms) {
      const SweepAxis& axis = table.axes[term.axis];
      together += (together.empty() ? "" : ", ") + in_words(axis.name);
      if (!rule.when) together += " = " + settings_of(axis, term.settings);
    }
    text += fmt::format("| {} | {} |\n", together, rule.why);
  }
  return text;
}

}  // namespace

std::string compatibility(const SweepTable& table) {
  return fmt::format("{}\nAll settings of all axes can be combined, except:\n\n{}", axes_in_rows(table),
                     refusals_in_rows(table));
}

}  // namespace echelon::testing
