// What a layout can be set to: the axes of a sweep with their settings, and the combinations that are refused. There
// are two sweeps: of all models, and of mixtures of experts, which has more axes. docs/internals/parity.md shows this
// table.
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

/// Which layers of a mixture have experts.
enum class ExpertLayers : std::uint8_t { all, every_second, all_but_the_first };

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
  bool has_experts = false;
  int num_experts = 5, num_experts_per_tok = 2;  // per token 0: all of them
  ExpertLayers expert_layers = ExpertLayers::all;
  bool normalises = false;            // the weights of a token, where the family leaves it open
  bool divides_experts = false;       // expert_tensor_parallel_degree = tensor_parallel_degree
  bool receives_all_at_once = false;  // dispatch_bound = expert_parallel_degree
  bool has_nodes = false;             // ranks_per_node as small as two hops need
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
  std::function<bool(const Draft& draft)> when = {};  // of the settings of these axes; empty: always
  std::string why;
  std::string key;       // with which the sentence of refusal begins
  bool follows = false;  // from the other rules: no settings of the other axes go with these
};

/// A setting of every axis; `not_set` where none is chosen yet.
using Settings = std::vector<std::size_t>;
inline constexpr auto not_set = static_cast<std::size_t>(-1);

struct SweepTable {
  std::string name;
  std::vector<SweepAxis> axes;
  std::vector<Rule> rules;
};
[[nodiscard]] const SweepTable& sweep_table();
[[nodiscard]] const SweepTable& mixture_table();

[[nodiscard]] Draft draft_of(const SweepTable& table, const Settings& settings);
[[nodiscard]] bool applies(const SweepTable& table, const Rule& rule, const Settings& settings);
[[nodiscard]] bool is_refused(const SweepTable& table, const Settings& settings);

inline constexpr int largest_world = 16;
/// Whether groups of expert_parallel_degree ranks are boxes of tensor, context and shard ranks, innermost first; with
/// any shard degree from 4 on if it is open.
[[nodiscard]] bool has_expert_groups(const Draft& draft);
/// The same of ranks with features of the same experts, which are among as many such groups.
[[nodiscard]] bool has_feature_groups(const Draft& draft);
/// Whether there are both on at most largest_world ranks, with some degrees in place of those that are not `fixed`.
[[nodiscard]] bool have_expert_groups(const Draft& draft, const std::vector<std::int64_t ParallelConfig::*>& fixed);
/// How many these are.
[[nodiscard]] std::int64_t feature_ranks(const Draft& draft);
/// The world size divided by the shard degree.
[[nodiscard]] int ranks_per_shard(const ParallelConfig& p);
/// The fewest ranks that the settings take, and whether they can take so many.
[[nodiscard]] int least_world(const SweepTable& table, const Settings& settings);
[[nodiscard]] bool can_have_world(const SweepTable& table, const Settings& settings, int world_size);
/// Whether settings of the other axes may still lead there; true for some with which none do.
[[nodiscard]] bool may_have_world(const SweepTable& table, const Settings& settings, int world_size);

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
