#include "parity/sweep/sweep.h"

#include "parity/layout.h"

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace echelon::testing {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return value == nullptr ? "" : value;
}

}  // namespace

unsigned sweep_seed() {
  const std::string seed(variable("ECHELON_SWEEP_SEED"));
  return seed.empty() ? usual_seed : static_cast<unsigned>(std::stoul(seed));
}

bool is_long_sweep() { return variable("ECHELON_SWEEP") == "long"; }

const std::vector<SweepRow>& all_rows(const SweepTable& table) {
  static std::map<std::string, std::vector<SweepRow>> rows;
  if (!rows.contains(table.name)) rows[table.name] = draw_rows(table, sweep_seed(), times_each_pair);
  return rows[table.name];
}

SweepRun run_of(const SweepTable& table, const SweepRow& row) {
  return run_of(table, row, ECHELON_BINARY_DIR "/sweep");
}

RunConfig baseline_of(const RunConfig& config) {
  RunConfig one = one_rank(config);
  one.training.micro_batch_size = one.training.global_batch_size;
  one.training.mlp_chunk_tokens = 0;
  one.training.recompute = {};
  one.training.recompute_method = RecomputeMethod::uniform;
  one.moe.dispatch_bound = MoeConfig().dispatch_bound;
  return one;
}

}  // namespace echelon::testing
