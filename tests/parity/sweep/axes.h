// What a layout can be set to: the axes of the sweep with their settings, and the combinations that are refused.
// docs/internals/parity.md shows this table.
#pragma once

#include "parity/training_run.h"
#include "spec/config/run_config.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace echelon::testing {

/// How many layers there are and how they lie on the stages.
enum class LayerSplit : std::uint8_t { even, remainder, counts, letters, thin };

/// A run as far as the axes say it; what follows from several of them together is filled in by run_of().
struct Draft {
  RunConfig config = {};
  Targets targets = Targets::all;
  int microbatches = 1;
  int num_kv_heads = 0;  // 0: as many as heads
  int window = 0, first_window_layer = 0;
  bool sizes_divide = true;
  bool fills_the_world = false;  // the shard degree is what is left of the world size
  bool reads_schedule = false;   // from a file
  LayerSplit split = LayerSplit::even;
};

struct AxisSetting {
  std::string name;
  std::function<void(Draft& draft)> set;
};

struct SweepAxis {
  std::string name;  // a key of the config, or words
  std::vector<AxisSetting> settings;
};

/// Settings of several axes that are refused together.
struct Rule {
  struct Term {
    std::size_t axis = 0;
    std::vector<std::size_t> settings;  // any of them
  };
  std::vector<Term> terms;
  std::string why;
  std::string key;  // with which the sentence of refusal begins
};

/// A setting of every axis; `not_set` where none is chosen yet.
using Settings = std::vector<std::size_t>;
inline constexpr auto not_set = static_cast<std::size_t>(-1);

struct SweepTable {
  std::vector<SweepAxis> axes;
  std::vector<Rule> rules;
};
[[nodiscard]] const SweepTable& sweep_table();

[[nodiscard]] bool applies(const Rule& rule, const Settings& settings);
[[nodiscard]] bool is_refused(const SweepTable& table, const Settings& settings);

inline constexpr int largest_world = 16;
/// The fewest ranks that the settings take, and whether they can take so many.
[[nodiscard]] int least_world(const SweepTable& table, const Settings& settings);
[[nodiscard]] bool can_have_world(const SweepTable& table, const Settings& settings, int world_size);

struct SweepRow {
  Settings settings;
  int world_size = 1;
};

struct SweepRun {
  RunConfig config;
  Targets targets = Targets::all;
};

/// Three steps in float64 of a tiny model. A schedule that is read from a file is written to `folder` first.
[[nodiscard]] SweepRun run_of(const SweepTable& table, const SweepRow& row, const std::string& folder);

/// "axis = setting" of every axis, one a line.
[[nodiscard]] std::string describe(const SweepTable& table, const SweepRow& row);

}  // namespace echelon::testing
