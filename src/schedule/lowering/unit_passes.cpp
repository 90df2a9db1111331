#include "schedule/lowering/unit_passes.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

bool sums_replicas(const StageShape& shape) {
  return std::find(shape.unit_sums_replicas.begin(), shape.unit_sums_replicas.end(), true) !=
         shape.unit_sums_replicas.end();
}

bool is_first_unit_in_order(const Action& pass, int num_units, bool forwards) {
  return pass.unit == (forwards ? 0 : num_units - 1);
}

}  // namespace

std::vector<UnitKey> units_of(const Action& pass, const LoweringOptions& options) {
  const StageShape& shape = options.stages[pass.stage];
  const int last_stage = static_cast<int>(options.stages.size()) - 1;
  std::vector<UnitKey> units;
  if (pass.unit != whole_stage && pass.unit < shape.num_units) units.push_back({pass.stage, pass.unit});
  for (int unit = 0; pass.unit == whole_stage && unit < shape.num_units; ++unit) units.push_back({pass.stage, unit});
  // The embedding is the first unit of the first stage, the head the last one of the last.
  const bool has_embedding = pass.stage == 0 && (pass.unit == whole_stage || pass.unit == 0);
  const bool has_head = pass.stage == last_stage && (pass.unit == whole_stage || pass.unit == shape.num_units - 1);
  if (!has_embedding && !has_head) return units;
  if (shape.has_tied_weight) units.push_back({pass.stage, shape.num_units});
  if (shape.borrows_tied_weight) units.push_back({0, options.stages[0].num_units});
  return units;
}

UnitPasses by_units(const ComputeOrder& order, const LoweringOptions& options) {
  std::map<int, std::size_t> last_gradient;  // of each stage: its position
  for (std::size_t i = 0; i < order.size(); ++i)
    if (computes_weight_gradients(order[i].kind)) last_gradient[order[i].stage] = i;
  UnitPasses passes;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Action& pass = order[i];
    const StageShape& shape = options.stages[pass.stage];
    const bool forms = computes_weight_gradients(pass.kind);
    const bool is_reduced =
        forms && (options.shards_gradients ||
                  ((options.reduces_gradients || sums_replicas(shape)) && last_gradient[pass.stage] == i));
    Action unit_pass{.kind = pass.kind, .stage = pass.stage, .microbatch = pass.microbatch};
    if (!options.shards_parameters && !is_reduced) {
      passes.push_back(unit_pass);
      continue;
    }
    for (int n = 0; n < shape.num_units; ++n) {
      unit_pass.unit = pass.kind == ActionKind::forward ? n : shape.num_units - 1 - n;
      passes.push_back(unit_pass);
    }
  }
  return passes;
}

bool begins_pass(const Action& pass, const LoweringOptions& options) {
  return pass.unit == whole_stage ||
         is_first_unit_in_order(pass, options.stages[pass.stage].num_units, pass.kind == ActionKind::forward);
}

bool ends_pass(const Action& pass, const LoweringOptions& options) {
  return pass.unit == whole_stage ||
         is_first_unit_in_order(pass, options.stages[pass.stage].num_units, pass.kind != ActionKind::forward);
}

}  // namespace echelon
