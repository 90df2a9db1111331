// Parts of a page from a config and its blueprint, shared by the commands that write one.
#pragma once

#include "blueprint/blueprint.h"
#include "report/html/html_report.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace echelon {

/// "llama of 10.2 M parameters"
[[nodiscard]] std::string page_model(const ModelSpec& model);

/// "llama of 10.2 M parameters on 8 ranks"
[[nodiscard]] std::string page_title(const RunConfig& config);

[[nodiscard]] std::vector<HtmlFact> page_facts(const RunConfig& config);

/// Peak memory of the ranks of a stage. `limit_bytes`: the memory of each; 0: unknown.
struct StageMemory {
  std::map<MemoryCategory, std::int64_t> bytes_at_peak;
  std::int64_t arena_bytes = 0;
  double limit_bytes = 0;
};
/// As planned by the engine.
[[nodiscard]] std::vector<StageMemory> stage_memory(const Blueprint& blueprint, double limit_bytes);
[[nodiscard]] HtmlBars page_memory(const std::vector<StageMemory>& stages, const std::string& limit_name);

}  // namespace echelon
