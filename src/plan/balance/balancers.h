// How the tokens of a sequence are best distributed over the ranks of context parallelism. Of whole sequences headtail
// gives all ranks as many pairs (query, key), and no balancer sends fewer rows, so the search has no other. Documents
// and windows leave pairs out, and rows that no query sees; then the first plan is timed with every balancer. With the
// request's documents the search has already chosen.
#pragma once

#include "blueprint/documents/batch_documents.h"
#include "plan/search/plan.h"

namespace echelon {

/// `documents`: none where they are not known, or the request has them. Empty where no balancer can change the step.
/// The order is that of load_balancers.
[[nodiscard]] std::vector<BalancedStep> balanced_steps(const Plan& plan, const PlanRequest& request,
                                                       const DocumentsOf& documents);

/// Of result.balanced, which it sets, the quickest that fits, unless the key is fixed: in the config of the first plan.
void choose_balancer(PlanResult& result, const PlanRequest& request, const DocumentsOf& documents);

}  // namespace echelon
