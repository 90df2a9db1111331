#include "spec/axis.h"

#include "base/error.h"
#include "spec/choice.h"

#include <algorithm>
#include <cassert>

namespace echelon {
namespace {

constexpr std::array<std::string_view, num_axes> axis_names = {"cluster", "dp_replicate", "pp", "dp_shard", "cp", "tp"};

/// A word that an order may contain, and the axes that it names.
struct AxisWord {
  std::string_view name;
  std::vector<Axis> axes;
};

const std::vector<AxisWord>& axis_words() {
  static const std::vector<AxisWord> all = {{"tp", {Axis::tp}},
                                            {"cp", {Axis::cp}},
                                            {"ep", {}},
                                            {"dp", {Axis::dp_shard, Axis::dp_replicate}},
                                            {"pp", {Axis::pp}},
                                            {"dp_shard", {Axis::dp_shard}},
                                            {"dp_replicate", {Axis::dp_replicate}}};
  return all;
}

const AxisWord* find_axis_word(std::string_view name) {
  const auto found = std::find_if(axis_words().begin(), axis_words().end(),
                                  [&](const AxisWord& word) { return equal_but_for_case(word.name, name); });
  return found == axis_words().end() ? nullptr : &*found;
}

std::vector<std::string_view> split_at_dashes(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t dash = 0; dash != std::string_view::npos; text.remove_prefix(std::min(dash + 1, text.size()))) {
    dash = text.find('-');
    parts.push_back(text.substr(0, dash));
  }
  return parts;
}

bool has_any(const std::vector<Axis>& axes, const AxisWord& word) {
  return std::any_of(word.axes.begin(), word.axes.end(),
                     [&](Axis axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); });
}

/// The names that are understood, with the missing axes outside them.
AxisOrder closest_order(const std::vector<std::string_view>& names) {
  std::vector<std::string_view> known;
  for (const AxisWord& word : axis_words()) known.push_back(word.name);
  std::vector<Axis> axes;
  for (const std::string_view name : names) {
    const AxisWord* word = find_axis_word(name);
    if (word == nullptr && !name.empty()) word = find_axis_word(closest_name(name, known));
    if (word != nullptr && !has_any(axes, *word)) axes.insert(axes.end(), word->axes.begin(), word->axes.end());
  }
  const AxisOrder all;
  for (const Axis axis : all.axes())
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  return AxisOrder(axes);
}

}  // namespace

std::string_view name_of(Axis axis) { return axis_names[static_cast<std::size_t>(axis)]; }

AxisOrder::AxisOrder(std::span<const Axis> innermost_first) : axes_(), num_named_(innermost_first.size()) {
  assert(innermost_first.size() <= axes_.size());
  std::copy(innermost_first.begin(), innermost_first.end(), axes_.begin());
}

bool AxisOrder::names(Axis axis) const { return std::find(axes().begin(), axes().end(), axis) != axes().end(); }

std::string name_of(const AxisOrder& order) {
  const std::span<const Axis> axes = order.axes();
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool is_pair = axes[i] == Axis::dp_shard && i + 1 < axes.size() && axes[i + 1] == Axis::dp_replicate;
    text += (text.empty() ? "" : "-") + std::string(is_pair ? "dp" : name_of(axes[i]));
    if (is_pair) ++i;
  }
  return text;
}

AxisOrder parse_axis_order(std::string_view key, const std::vector<std::string>& names) {
  const std::string text = fmt::format("{}", fmt::join(names, "-"));
  const std::vector<std::string_view> parts = split_at_dashes(text);
  std::vector<Axis> axes;
  for (const std::string_view part : parts) {
    const AxisWord* word = find_axis_word(part);
    require(word != nullptr, "{} = '{}': '{}' is not one of tp, cp, ep, dp, pp, dp_shard, dp_replicate (use '{}')", key,
            text, part, name_of(closest_order(parts)));
    require(!has_any(axes, *word), "{} = '{}' names {} twice (use '{}')", key, text, part,
            name_of(closest_order(parts)));
    axes.insert(axes.end(), word->axes.begin(), word->axes.end());
  }
  return AxisOrder(axes);
}

}  // namespace echelon
