#include "plan/search/draws.h"

#include "predict/software/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr int num_draws = 12;

std::size_t index_of_least(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin());
}

}  // namespace

std::optional<PlanDraws> draws_of(const std::vector<Plan>& plans, const PlanRequest& request) {
  if (plans.size() < 2 || request.objective != PlanObjective::time ||
      !has_borrowed_rates(request.profile, request.machine))
    return std::nullopt;
  std::vector<MachineSpec> machines;
  for (int draw = 0; draw < num_draws; ++draw) machines.push_back(drawn(request.machine, draw));
  std::vector<std::vector<double>> seconds(num_draws);  // by draw, of each plan
  PlanDraws draws = {.wins = std::vector<int>(plans.size(), 0), .longest_seconds = {}};
  for (const Plan& plan : plans) {
    const Blueprint blueprint(plan.config);
    const SoftwareProfile profile =
        request.documents == nullptr ? SoftwareProfile() : request.documents->profile_of(plan.config);
    const std::vector<double> of_draws = step_seconds_on(machines, blueprint, profile);
    draws.longest_seconds.push_back(*std::ranges::max_element(of_draws));
    for (std::size_t draw = 0; draw < machines.size(); ++draw) seconds[draw].push_back(of_draws[draw]);
  }
  for (const std::vector<double>& of_draw : seconds) ++draws.wins[index_of_least(of_draw)];
  draws.safest = index_of_least(draws.longest_seconds);
  return draws;
}

std::string to_text(const PlanDraws& draws) {
  std::string text =
      fmt::format("the first layout is the fastest in {} of {} draws of the rates", draws.wins.front(), num_draws);
  for (std::size_t row = 1; row < draws.wins.size(); ++row)
    if (draws.wins[row] > 0) text += fmt::format(", row {} in {}", row + 1, draws.wins[row]);
  if (draws.safest == 0) return text + "; the first is the best in the worst of them";
  return text + fmt::format("; row {} is the best in the worst of them: {:.4f} s, the first {:.4f} s", draws.safest + 1,
                            draws.longest_seconds[draws.safest], draws.longest_seconds.front());
}

}  // namespace echelon
