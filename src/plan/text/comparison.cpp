#include "plan/text/comparison.h"

#include "base/error.h"
#include "plan/search/config_plan.h"
#include "plan/search/search.h"
#include "plan/search/tune.h"
#include "plan/text/explanation.h"
#include "plan/text/fields.h"
#include "predict/published/promise.h"
#include "spec/config/key_words.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <sstream>

namespace echelon {
namespace {

constexpr std::pair<std::string_view, std::string_view> short_names[] = {
    {"tp", "parallelism.tensor_parallel_degree"},
    {"pp", "parallelism.pipeline_parallel_degree"},
    {"cp", "parallelism.context_parallel_degree"},
    {"ep", "parallelism.expert_parallel_degree"},
    {"etp", "parallelism.expert_tensor_parallel_degree"},
    {"dispatch", "parallelism.expert_dispatch"},
    {"mbs", "training.micro_batch_size"},
    {"zero", "parallelism.zero_level"},
    {"recompute", "training.recompute"}};

/// "tp=8" -> "--parallelism.tensor_parallel_degree=8"
std::string setting_of(const std::string& choice, const std::string& layout) {
  const std::size_t equals = choice.find('=');
  require(equals != std::string::npos && equals > 0 && equals + 1 < choice.size(),
          "--compare={} is not a layout (example: --compare=tp=8,pp=4)", layout);
  std::string key = choice.substr(0, equals);
  require(key != "dp",
          "--compare={}: dp is the product of parallelism.data_parallel_replicate_degree and "
          "parallelism.data_parallel_shard_degree; use these",
          layout);
  for (const auto& [name, full] : short_names)
    if (key == name) key = full;
  require(key.find('.') != std::string::npos, "--compare={}: there is no choice '{}'{} ({} or a key)", layout, key,
          key.find('.') == std::string::npos ? hint_for_key(key) : "", fmt::join(short_names | std::views::keys, ", "));
  return fmt::format("--{}{}", key, choice.substr(equals));
}

ComparedLayout layout_of(const PlanRequest& request, const PlanQuestion& question, const std::string& layout) {
  if (is_config(layout)) return {layout, plan_of(read_asked_config(layout, question), request)};
  PlanRequest part = request;
  part.top = 1;
  std::istringstream choices(layout);
  std::set<std::string> keys;
  for (std::string choice; std::getline(choices, choice, ',');) {
    const std::string setting = setting_of(choice, layout), key = choice.substr(0, choice.find('='));
    require(keys.insert(setting.substr(0, setting.find('='))).second,
            "--compare={} has {} twice; for two layouts give --compare twice", layout, key);
    fix_choice(setting, part);
  }
  PlanResult result = find_plans(part);
  return {layout.empty() ? "best" : layout,
          result.plans.empty() ? std::move(*result.nearest) : std::move(result.plans.front()), result.within};
}

std::string sentence_of(const ComparedLayout& layout, const PlanRequest& request) {
  const Plan& plan = layout.plan;
  std::string text =
      fmt::format("{}: {}, {}", layout.name, layout_text(plan.config), name_of(plan.config.training.dtype));
  if (!plan.outcome.fits())
    text += is_config(layout.name) ? "; it does not fit"
                                   : "; it does not fit, and no layout with these choices that was tried does";
  if (layout.within > 0)
    text += fmt::format("; the search was ended, another may be {:.2g} % faster", 100 * layout.within);
  text += fmt::format("\n  {}\n", promise_text(plan.outcome, plan.config, request.machine, request.profile));
  const std::string warning = warning_of(plan.outcome, plan.config, request.machine);
  return warning.empty() ? text : text + "  " + warning + "\n";
}

/// What the second takes more, the largest part first.
std::vector<std::pair<std::string, double>> more_seconds(const PlanComparison& comparison) {
  std::map<std::string, double> more = seconds_by_part(comparison.second.plan);
  for (const auto& [part, seconds] : seconds_by_part(comparison.first.plan)) more[part] -= seconds;
  std::vector<std::pair<std::string, double>> sorted(more.begin(), more.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.second) > std::abs(b.second); });
  return sorted;
}

}  // namespace

bool is_config(const std::string& layout) { return layout.ends_with(".toml"); }

PlanComparison compare_plans(const PlanRequest& request, const PlanQuestion& question,
                             const std::vector<std::string>& layouts) {
  require(!layouts.empty() && layouts.size() <= 2, "--compare is given {} times, but two layouts are compared (use 2)",
          layouts.size());
  for (const std::string& layout : layouts)
    require(!layout.empty(), "--compare={} is not a layout (example: --compare=tp=8,pp=4)", layout);
  const auto compared = [&](const std::string& layout) { return layout_of(request, question, layout); };
  return layouts.size() == 1 ? PlanComparison{compared(""), compared(layouts.front())}
                             : PlanComparison{compared(layouts[0]), compared(layouts[1])};
}

std::string to_text(const PlanComparison& comparison, const PlanRequest& request) {
  const Plan &a = comparison.first.plan, &b = comparison.second.plan;
  const auto row = [](double first, double second, const std::string& part) {
    return fmt::format("{:>12.4f} {:>12.4f} {:>+12.4f}  {}\n", first, second, second - first, part);
  };
  std::string text = sentence_of(comparison.first, request) + sentence_of(comparison.second, request);
  text += fmt::format("{:>12} {:>12} {:>12}\n", "first", "second", "difference");
  text += row(a.outcome.step_seconds, b.outcome.step_seconds, "s, the step, of which");
  std::map<std::string, double> of_first = seconds_by_part(a), of_second = seconds_by_part(b);
  for (const auto& [part, more] : more_seconds(comparison)) text += row(of_first[part], of_second[part], "s, " + part);
  const double of_a = tokens_per_second(a), of_b = tokens_per_second(b);
  text += fmt::format("{:>12.0f} {:>12.0f} {:>+12.0f}  tokens/s\n", of_a, of_b, of_b - of_a);
  return text + row(peak_gib(a), peak_gib(b), "GiB, memory of the rank that uses most");
}

std::string to_json(const PlanComparison& comparison, const PlanRequest& request) {
  using Json = nlohmann::ordered_json;
  Json compared = Json::array(), parts = Json::object();
  for (const ComparedLayout* each : {&comparison.first, &comparison.second}) {
    compared.push_back({{"name", each->name}, {"within", each->within}});
    compared.back().update(fields_of(each->plan, request));
  }
  for (const auto& [part, seconds] : more_seconds(comparison)) parts[part] = seconds;
  const Simulation &a = comparison.first.plan.outcome, &b = comparison.second.plan.outcome;
  const Json differences = {{"predicted_seconds", b.step_seconds - a.step_seconds},
                            {"predicted_memory_bytes", b.peak_memory_bytes() - a.peak_memory_bytes()},
                            {"parts", parts}};
  Json json = {{"profile", request.profile.name},
               {"rates", rates_text(request.profile, request.machine)},
               {"compared", compared},
               {"differences", differences}};
  if (!request.note.empty()) json["note"] = request.note;
  return json.dump() + "\n";
}

}  // namespace echelon
