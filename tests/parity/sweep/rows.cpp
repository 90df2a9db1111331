#include "parity/sweep/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace echelon::testing {
namespace {

std::vector<Pair> pairs_of(const Settings& settings) {
  std::vector<Pair> pairs;
  for (std::size_t b = 0; b < settings.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) pairs.push_back({{a, settings[a]}, {b, settings[b]}});
  return pairs;
}

class Drawing {
 public:
  Drawing(const SweepTable& table, unsigned seed, int times) : table_(table), random_(seed) {
    for (const Pair& pair : allowed_pairs(table)) missing_[pair] = times;
  }

  std::vector<SweepRow> rows() {
    while (const std::optional<Pair> pair = most_missing()) {
      const std::optional<Settings> best = best_row_with(*pair);
      if (!best) {
        missing_.erase(*pair);  // no row has it: the sweep says so
        continue;
      }
      for (const Pair& covered : pairs_of(*best)) take(covered);
      rows_.push_back({*best, world_of(*best)});
    }
    for (int world = 1; world <= largest_world; ++world)
      if (worlds_[world] == 0) add_row_on(world);
    return rows_;
  }

 private:
  static constexpr int num_attempts = 6;

  void take(const Pair& pair) {
    const auto found = missing_.find(pair);
    if (found != missing_.end() && --found->second == 0) missing_.erase(found);
  }

  std::size_t below(std::size_t count) { return random_() % count; }  // the same numbers with every library

  std::optional<Pair> most_missing() {
    int most = 0;
    std::vector<Pair> pairs;
    for (const auto& [pair, times] : missing_) {
      if (times > most) pairs.clear();
      most = std::max(most, times);
      if (times == most) pairs.push_back(pair);
    }
    return pairs.empty() ? std::nullopt : std::optional(pairs[below(pairs.size())]);
  }

  std::optional<Settings> best_row_with(const Pair& pair) {
    const auto is_not_too_large = [&](const Settings& row) { return least_world(table_, row) <= largest_world; };
    std::optional<Settings> best;
    std::size_t most = 0;
    for (int attempt = 0; attempt < num_attempts || (!best && attempt < 50 * num_attempts); ++attempt) {
      const std::optional<Settings> settings = row_with(pair, is_not_too_large);
      if (!settings) continue;
      const std::size_t gain = gain_of(*settings);
      if (!best || gain > most) best = settings, most = gain;
    }
    return best;
  }

  std::size_t gain_of(const Settings& settings) const {
    const std::vector<Pair> pairs = pairs_of(settings);
    return static_cast<std::size_t>(
        std::ranges::count_if(pairs, [&](const Pair& pair) { return missing_.contains(pair); }));
  }

  void add_row_on(int world) {
    const std::vector<Pair> pairs = allowed_pairs(table_);
    const auto leads_there = [&](const Settings& settings) { return may_have_world(table_, settings, world); };
    for (int attempt = 0; attempt < 10000; ++attempt) {
      const std::optional<Settings> settings = row_with(pairs[below(pairs.size())], leads_there);
      if (settings && can_have_world(table_, *settings, world)) return rows_.push_back({*settings, world});
    }
  }

  // Axis by axis in a random order, each time the setting that brings most of what is missing, among those with which
  // the row is still wanted.
  template <class IsWanted>
  std::optional<Settings> row_with(const Pair& pair, const IsWanted& is_wanted) {
    Settings settings(table_.axes.size(), not_set);
    settings[pair.first.axis] = pair.first.setting;
    settings[pair.second.axis] = pair.second.setting;
    std::vector<std::size_t> order(settings.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
    for (const std::size_t axis : order) {
      if (settings[axis] != not_set) continue;
      std::vector<std::size_t> best;
      std::size_t most = 0;
      for (std::size_t setting = 0; setting < table_.axes[axis].settings.size(); ++setting) {
        settings[axis] = setting;
        if (is_refused(table_, settings) || !is_wanted(settings)) continue;
        const std::size_t gain = gain_at(settings, axis);
        if (gain > most) best.clear();
        most = std::max(most, gain);
        if (gain == most) best.push_back(setting);
      }
      if (best.empty()) return std::nullopt;
      settings[axis] = best[below(best.size())];
    }
    return settings;
  }

  std::size_t gain_at(const Settings& settings, std::size_t axis) const {
    std::size_t gain = 0;
    for (std::size_t other = 0; other < settings.size(); ++other) {
      if (other == axis || settings[other] == not_set) continue;
      const Place here = {axis, settings[axis]}, there = {other, settings[other]};
      gain += missing_.contains(axis < other ? Pair{here, there} : Pair{there, here}) ? 1 : 0;
    }
    return gain;
  }

  // Where a degree is open, the size of the world that has come least often.
  int world_of(const Settings& settings) {
    const int least = least_world(table_, settings);
    int world = least;
    for (int candidate = least; candidate <= largest_world; ++candidate)
      if (can_have_world(table_, settings, candidate) && worlds_[candidate] < worlds_[world]) world = candidate;
    ++worlds_[world];
    return world;
  }

  const SweepTable& table_;
  std::mt19937 random_;
  std::map<Pair, int> missing_;
  std::map<int, int> worlds_;
  std::vector<SweepRow> rows_;
};

}  // namespace

std::vector<Pair> allowed_pairs(const SweepTable& table) {
  std::vector<Pair> pairs;
  Settings settings(table.axes.size(), not_set);
  for (std::size_t b = 0; b < table.axes.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      for (std::size_t of_a = 0; of_a < table.axes[a].settings.size(); ++of_a)
        for (std::size_t of_b = 0; of_b < table.axes[b].settings.size(); ++of_b) {
          settings.assign(table.axes.size(), not_set);
          settings[a] = of_a;
          settings[b] = of_b;
          if (!is_refused(table, settings)) pairs.push_back({{a, of_a}, {b, of_b}});
        }
  return pairs;
}

std::string name_of(const SweepTable& table, const Pair& pair) {
  const auto name = [&](const Place& place) {
    return fmt::format("{} = {}", table.axes[place.axis].name, table.axes[place.axis].settings[place.setting].name);
  };
  return name(pair.first) + " with " + name(pair.second);
}

std::map<Pair, int> occurrences(const std::vector<SweepRow>& rows) {
  std::map<Pair, int> times;
  for (const SweepRow& row : rows)
    for (const Pair& pair : pairs_of(row.settings)) ++times[pair];
  return times;
}

std::vector<SweepRow> draw_rows(const SweepTable& table, unsigned seed, int times) {
  return Drawing(table, seed, times).rows();
}

std::vector<std::size_t> rows_with_every_setting(const SweepTable& table, const std::vector<SweepRow>& rows) {
  std::set<Place> missing;
  for (std::size_t axis = 0; axis < table.axes.size(); ++axis)
    for (std::size_t setting = 0; setting < table.axes[axis].settings.size(); ++setting)
      missing.insert({axis, setting});
  const auto gain = [&](const SweepRow& row) {
    std::size_t count = 0;
    for (std::size_t axis = 0; axis < row.settings.size(); ++axis) count += missing.count({axis, row.settings[axis]});
    return count;
  };
  std::vector<std::size_t> chosen;
  while (!missing.empty()) {
    const auto best = std::ranges::max_element(rows, {}, gain);
    if (best == rows.end() || gain(*best) == 0) break;  // a setting that no row has
    for (std::size_t axis = 0; axis < best->settings.size(); ++axis) missing.erase({axis, best->settings[axis]});
    chosen.push_back(static_cast<std::size_t>(best - rows.begin()));
  }
  return chosen;
}

std::optional<Settings> plainest_with(const SweepTable& table, Settings settings) {
  const auto axis = static_cast<std::size_t>(std::ranges::find(settings, not_set) - settings.begin());
  if (axis == settings.size()) return settings;
  for (std::size_t setting = 0; setting < table.axes[axis].settings.size(); ++setting) {
    settings[axis] = setting;
    if (is_refused(table, settings)) continue;
    if (std::optional<Settings> whole = plainest_with(table, settings)) return whole;
  }
  return std::nullopt;
}

}  // namespace echelon::testing
