// "Why not tp 8?": two layouts, part by part. Each is the best one with some choices made by the asker, or that of a
// config.
#pragma once

#include "plan/search/plan.h"

#include <string>
#include <vector>

namespace echelon {

struct ComparedLayout {
  std::string name;   // as it was asked for
  Plan plan;          // of the config; or the best one, and where none fits, the one that needs least memory
  double within = 0;  // as in PlanResult
};

struct PlanComparison {
  ComparedLayout first, second;
};

/// Whether a layout to compare is a config file.
[[nodiscard]] bool is_config(const std::string& layout);

/// Of one layout with the best of all, or of two. A layout is "tp=8,pp=4": short names (tp, pp, cp, ep, etp, dispatch,
/// mbs, zero, recompute) or keys of the config; or it is a config file, read with the question's settings. Throws Error
/// for what is no layout, and where no layout with these choices is legal.
[[nodiscard]] PlanComparison compare_plans(const PlanRequest& request, const PlanQuestion& question,
                                           const std::vector<std::string>& layouts);

[[nodiscard]] std::string to_text(const PlanComparison& comparison, const PlanRequest& request);
/// Both plans as in to_json(PlanResult), and what the second takes more than the first.
[[nodiscard]] std::string to_json(const PlanComparison& comparison, const PlanRequest& request);

}  // namespace echelon
