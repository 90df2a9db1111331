// What a config and its blueprint say, as parts of a page: shared by the verbs that write one.
#pragma once

#include "blueprint/blueprint.h"
#include "report/html_report.h"

#include <string>
#include <vector>

namespace echelon {

/// "llama of 10.2 M parameters on 8 ranks"
[[nodiscard]] std::string page_title(const RunConfig& config);

[[nodiscard]] std::vector<HtmlFact> page_facts(const RunConfig& config);

/// A row for each pipeline rank: what it holds at the moment when most is held. `limit_bytes`: what each may hold; 0: unknown.
[[nodiscard]] HtmlBars page_memory(const Blueprint& blueprint, double limit_bytes, const std::string& limit_name);

}  // namespace echelon
