// What was planned, for people and for programs.
#pragma once

#include "plan/search/plan.h"

namespace echelon {

/// The parts of a plan in a word or two each. A pipeline that ends in "*" needs the footnote.
[[nodiscard]] std::string pipeline_text(const PlanChoice& choice);
inline constexpr std::string_view pipeline_footnote =
    "*: the embedding and the head count as a layer each where layers are spread over stages";
[[nodiscard]] std::string data_text(const PlanChoice& choice);
/// Ranks with the experts of a layer: "4x2" with features of each over 2; "64 in 2 hops"; "8 to all" where all tokens
/// go to all ranks; "8 by 0.6" with another bound than the usual one.
[[nodiscard]] std::string expert_text(const RunConfig& config);
[[nodiscard]] std::string recompute_text(const PlanRecompute& recompute);

/// What a million tokens of `other` cost more than those of `best`, and why it may not be wanted.
[[nodiscard]] std::string price_difference(const Plan& best, const Plan& other, const PlanRequest& request);

[[nodiscard]] std::string to_text(const PlanResult& result, const PlanRequest& request);
/// One object: configurations, evaluated, seconds, plans; and the closest plan (field `nearest`) where nothing fits.
[[nodiscard]] std::string to_json(const PlanResult& result, const PlanRequest& request);

}  // namespace echelon
