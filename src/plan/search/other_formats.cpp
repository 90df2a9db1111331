#include "plan/search/other_formats.h"

#include "base/error.h"
#include "plan/space/choices.h"
#include "spec/machine/fastest_format.h"

namespace echelon {

std::vector<Plan> in_other_formats(const Plan& plan, const PlanRequest& request) {
  std::vector<Plan> others;
  if (!request.chooses_dtype) return others;
  for (const DType dtype : formats_by_speed(request.machine)) {
    if (dtype == plan.config.training.dtype || dtype == DType::float64) continue;
    PlanRequest other = request;
    other.base.training.dtype = dtype;
    try {
      validate(config_of(other, plan.choice));
      others.push_back(evaluate(other, plan.choice));
    } catch (const Error&) {  // keys of the config that only go with the other format
    }
  }
  return others;
}

std::string format_sentence(const PlanResult& result, const PlanRequest& request) {
  if (!request.chooses_dtype) return "";
  std::string text = fmt::format("dtype {}, the fastest of '{}', since none is named",
                                 name_of(request.base.training.dtype), request.machine.name);
  for (const Plan& other : result.in_other_formats)
    text += fmt::format("; the first layout in {}: {:.4f} s{}", name_of(other.config.training.dtype),
                        other.outcome.step_seconds, other.outcome.fits() ? "" : ", and it does not fit");
  return text;
}

}  // namespace echelon
