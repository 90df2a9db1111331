#include "parity/sweep/compatibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace echelon::testing {
namespace {

std::string in_words(const std::string& axis) { return axis.find('.') == std::string::npos ? axis : "`" + axis + "`"; }

std::string settings_of(const SweepAxis& axis, const std::vector<std::size_t>& settings) {
  std::string text;
  for (const std::size_t setting : settings) text += (text.empty() ? "" : " \\| ") + axis.settings[setting].name;
  return text;
}

std::string rows_of(const std::vector<SweepAxis>& axes) {
  std::string text = "|axis|settings|\n|---|---|\n";
  for (const SweepAxis& axis : axes) {
    std::vector<std::size_t> all(axis.settings.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    text += fmt::format("|{}|{}|\n", in_words(axis.name), settings_of(axis, all));
  }
  return text;
}

std::string refusals_in_rows(const SweepTable& table) {
  std::string text = "|rejected combination|reason|\n|---|---|\n";
  for (const Rule& rule : table.rules) {
    std::string together;
    for (const Rule::Term& term : rule.terms) {
      const SweepAxis& axis = table.axes[term.axis];
      together += (together.empty() ? "" : ", ") + in_words(axis.name);
      if (!rule.when) together += " = " + settings_of(axis, term.settings);
    }
    text += fmt::format("|{}|{}|\n", together, rule.why);
  }
  return text;
}

bool has(const SweepTable& table, const SweepAxis& axis) {
  return std::ranges::any_of(table.axes, [&](const SweepAxis& other) {
    return other.name == axis.name &&
           std::ranges::equal(other.settings, axis.settings, {}, &AxisSetting::name, &AxisSetting::name);
  });
}

}  // namespace

std::string compatibility(const SweepTable& table) {
  return fmt::format("{}\nAll settings of all axes can be combined, except:\n\n{}", rows_of(table.axes),
                     refusals_in_rows(table));
}

std::string axes_beyond(const SweepTable& other, const SweepTable& table) {
  std::vector<SweepAxis> axes = table.axes;
  std::erase_if(axes, [&](const SweepAxis& axis) { return has(other, axis); });
  return rows_of(axes);
}

}  // namespace echelon::testing
