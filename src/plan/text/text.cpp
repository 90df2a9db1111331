#include "plan/text/text.h"

#include "base/text/counted.h"
#include "base/text/written_number.h"
#include "base/units.h"
#include "plan/search/cost.h"
#include "plan/search/draws.h"
#include "plan/search/long_run.h"
#include "plan/search/other_formats.h"
#include "plan/text/explanation.h"
#include "predict/experts/read_expert_load.h"
#include "predict/published/promise.h"
#include "predict/saving/predicted_save.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {

std::string data_text(const PlanChoice& choice) {
  const PlanData& data = choice.data;
  if (num_shards(choice.shape, data) == 1) return fmt::format("replicate {}", data.replicate);
  std::string text =
      fmt::format("{}shard {}{} ZeRO-{}", data.replicate > 1 ? fmt::format("replicate {} x ", data.replicate) : "",
                  data.shard, choice.shape.cp > 1 ? fmt::format(" x cp {}", choice.shape.cp) : "", data.zero_level);
  if (data.zero_level == 3) text += fmt::format(" ({})", name_of(data.reshard));
  return text;
}

std::string recompute_text(const PlanRecompute& recompute) {
  std::string text = fmt::format("{}", fmt::join(names_of(recompute.operations), "+"));
  if (recompute.num_blocks > 0) text += fmt::format(" of {}", recompute.num_blocks);
  return text;
}

std::string pipeline_text(const PlanChoice& choice) {
  if (choice.shape.pp == 1)  // no schedule of its own: several stages only spread what is done at once
    return choice.pipeline.num_virtual == 1 ? "-" : fmt::format("- ({} stages)", choice.pipeline.num_virtual);
  std::string text(name_of(choice.pipeline.schedule));
  if (choice.pipeline.num_virtual > 1) text += fmt::format(" v={}", choice.pipeline.num_virtual);
  if (!choice.pipeline.layout.empty()) text += "*";
  return text;
}

std::string expert_text(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::int64_t etp = config.model.has_experts() ? expert_tensor_degree(p) : 1;
  std::string text =
      etp > 1 ? fmt::format("{}x{}", p.expert_parallel_degree, etp) : fmt::format("{}", p.expert_parallel_degree);
  if (const int on_node = ep_on_node(config); on_node > 0) text += on_node > 1 ? " in 2 hops" : " to all";
  if (num_expert_ranks(p) > 1 && config.moe.dispatch_bound != MoeConfig().dispatch_bound)
    text += fmt::format(" by {}", config.moe.dispatch_bound);
  return text;
}

namespace {

std::string order_text(const AxisOrder& order) { return order == AxisOrder() ? "" : ", order " + name_of(order); }

/// A capacity changes what is learned, so no other is searched.
std::string capacity_line(const RunConfig& config) {
  if (capacity_factor_of(config) == 0) return "";
  return fmt::format("moe.capacity_factor = {} is kept: experts drop rows above it, which changes what is learned\n",
                     config.moe.capacity_factor);
}

using PlanRow = std::vector<std::string>;

const PlanRow plan_header = {"devices", "price/M", "s/step", "MFU %", "GiB",      "tp ",  "cp",       "ep",
                             "pp",      "dp",      "mbs",    "m",     "schedule", "data", "recompute"};
constexpr std::size_t device_column = 0, price_column = 1, context_column = 6, expert_column = 7;

PlanRow row(const Plan& plan, const PlanRequest& request) {
  const PlanShape& shape = plan.choice.shape;
  return {fmt::format("{}", plan.config.mesh_shape().num_ranks()),
          fmt::format("{:.4g}", 1e6 * price_per_token(plan, request)),
          fmt::format("{:.4f}", plan.outcome.step_seconds),
          fmt::format("{:.2f}", 100 * plan.outcome.mfu()),
          fmt::format("{:.2f}", static_cast<double>(plan.outcome.peak_memory_bytes()) / gib),
          fmt::format("{}{}", shape.tp, shape.sequence_parallel ? "s" : " "),
          context_text(shape),
          expert_text(plan.config),
          fmt::format("{}", shape.pp),
          fmt::format("{}", shape.dp),
          fmt::format("{}", shape.micro_batch_size),
          fmt::format("{}", shape.num_microbatches),
          pipeline_text(plan.choice),
          data_text(plan.choice),
          recompute_text(plan.choice.recompute) + order_text(plan.choice.order)};
}

/// Columns as wide as they need, figures to the right; without the context and the expert degree where all have 1, with
/// devices and the price of a million tokens where these are compared.
std::string plan_table(std::vector<PlanRow> rows, PlanObjective objective) {
  std::size_t num_numbers = 12;
  for (const std::size_t column : {expert_column, context_column, price_column, device_column}) {
    const bool is_of_cost = column == price_column || column == device_column;
    const bool is_told = is_of_cost ? objective == PlanObjective::cost
                                    : std::any_of(rows.begin() + 1, rows.end(),
                                                  [&](const PlanRow& each) { return each[column] != "1"; });
    if (is_told) continue;
    for (PlanRow& each : rows) each.erase(each.begin() + static_cast<std::ptrdiff_t>(column));
    --num_numbers;
  }
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const PlanRow& each : rows)
    for (std::size_t i = 0; i + 1 < each.size(); ++i) widths[i] = std::max(widths[i], each[i].size());
  std::string text;
  bool is_marked = false;
  for (const PlanRow& each : rows) {
    std::string line;
    for (std::size_t i = 0; i < each.size(); ++i)
      line +=
          i < num_numbers ? fmt::format("  {:>{}}", each[i], widths[i]) : fmt::format("  {:<{}}", each[i], widths[i]);
    text += line + "\n";
    is_marked = is_marked || each[num_numbers].ends_with('*');
  }
  return is_marked ? fmt::format("{}  {}\n", text, pipeline_footnote) : text;
}

std::string lines(const std::string& title, const std::vector<std::string>& sentences) {
  if (sentences.empty()) return "";
  std::string text = "\n" + title + "\n";
  for (const std::string& each : sentences) text += "  " + each + "\n";
  return text;
}

/// How full the first plan's devices are, if they are, and the next one that leaves them more room.
std::string fullness_line(const PlanResult& result) {
  constexpr double more_room = 2 * gib;
  const Simulation& best = result.plans.front().outcome;
  const std::string fullness = fullness_of(best);
  if (fullness.empty()) return "";
  const double room = static_cast<double>(best.least_room().room());
  const auto next = std::ranges::find_if(result.plans, [&](const Plan& plan) {
    return static_cast<double>(plan.outcome.least_room().room()) >= room + more_room;
  });
  if (next == result.plans.end()) return fullness + "; no row leaves 2 GiB more\n";
  return fmt::format("{}; row {} leaves {:.1f} GiB more, for {:.1f} % more time\n", fullness,
                     next - result.plans.begin() + 1,
                     (static_cast<double>(next->outcome.least_room().room()) - room) / gib,
                     100 * (next->outcome.step_seconds / best.step_seconds - 1));
}

/// What the first plan promises, whose rates it was timed at, a warning if that is more than was ever published, and
/// whether the ranking survives draws of the rates.
std::string promise_lines(const PlanResult& result, const PlanRequest& request) {
  const Plan& best = result.plans.front();
  std::string text = fmt::format("\nthe first one: {}\ntimed at {}\n",
                                 promise_text(best.outcome, best.config, request.machine, request.profile),
                                 rates_text(request.profile, request.machine));
  text += capacity_line(best.config) + expert_load_text(best.config);
  if (const std::string warning = warning_of(best.outcome, best.config, request.machine); !warning.empty())
    text += warning + "\n";
  text += fullness_line(result);
  return result.draws ? text + to_text(*result.draws) + "\n" : text;
}

/// The flag whose limit ends a search first, most likely.
const char* limit_of(const PlanRequest& request) { return request.seconds > 0 ? "--seconds" : "--work"; }

/// A search continues until it has found a layout.
std::string end_text(const PlanResult& result, const PlanRequest& request) {
  constexpr double overrun = 1.1;
  const bool is_one_search = request.objective != PlanObjective::cost;
  if (is_one_search && request.work > 0 &&
      static_cast<double>(result.work) > overrun * static_cast<double>(request.work))
    return fmt::format("--work={} is less than the first layout takes; use more", request.work);
  return fmt::format("{} gives it more", limit_of(request));
}

}  // namespace

std::string price_difference(const Plan& best, const Plan& other, const PlanRequest& request) {
  const double price = 1e6 * price_per_token(best, request), more = 1e6 * price_per_token(other, request) - price;
  return fmt::format("{:+.4g} ({:+.1f} %) for a million tokens on {}, with a step of {:.4f} s instead of {:.4f}{}",
                     more, 100 * more / price, counted(other.config.mesh_shape().num_ranks(), "device"),
                     other.outcome.step_seconds, best.outcome.step_seconds,
                     is_in_time(other, request)
                         ? ""
                         : fmt::format("; it takes more than --hours={}", request.long_training->hours.value_or(0)));
}

std::string to_text(const PlanResult& result, const PlanRequest& request) {
  std::string text =
      fmt::format("{} of {:.4g} B parameters ({}, {} of {} tokens) on {} of '{}': {} timed in {:.2f} s\n",
                  counted(result.num_configurations, "legal layout"),
                  static_cast<double>(request.base.model.num_parameters()) / 1e9, name_of(request.base.training.dtype),
                  counted(request.base.training.global_batch_size, "sequence"), request.base.training.seq_len,
                  counted(request.num_devices, "device"), request.machine.name, result.num_evaluated, result.seconds);
  std::vector<PlanRow> rows = {plan_header};
  for (const Plan& plan : result.plans) rows.push_back(row(plan, request));
  if (result.nearest) rows.push_back(row(*result.nearest, request));
  text += plan_table(rows, request.objective);
  for (const std::string& sentence : {format_sentence(result, request), request.note})
    if (!sentence.empty()) text += sentence + "\n";
  if (result.nearest) {
    const std::string nothing = fmt::format(
        "{}: above is what {} least memory.",
        result.is_complete ? "Nothing fits"
                           : fmt::format("Nothing that fits was found ({} gives the search more)", limit_of(request)),
        result.is_nearest_proven ? "needs" : "was found to need");
    return text + lines(nothing, misses(*result.nearest)) + lines("What would help", result.suggestions);
  }
  const Plan& best = result.plans.front();
  text += promise_lines(result, request);
  if (!result.is_complete)
    text += fmt::format("\nthe search was ended after {} units of work ({}): {} good layouts, maybe not the best",
                        result.work, end_text(result, request),
                        result.num_proven == 0 ? "these are" : "the first one is proven best, others are");
  if (result.within > 0)
    text += fmt::format("\nno layout is better than the first one by more than {:.2g} %\n", 100 * result.within);
  if (const double price = 1e6 * price_per_token(best, request); price > 0)
    text += fmt::format("\na million tokens cost {} on {}\n", written(price),
                        counted(best.config.mesh_shape().num_ranks(), "device"));
  if (request.long_training) text += "\n" + to_text(long_run(best, request), request);
  text += lines("Where the time of a step goes, on average over the ranks", time_parts(best));
  if (result.plans.size() > 1 && request.objective == PlanObjective::cost)
    text += lines("What the runner-up costs", {price_difference(best, result.plans[1], request)});
  else if (result.plans.size() > 1)
    text += lines("What the runner-up costs", differences(best, result.plans[1]));
  text += lines(fmt::format("Why {} ranks share each sequence (cp)", best.choice.shape.cp), context_reasons(result));
  text +=
      lines("How the tokens of a sequence are distributed (context_parallel_load_balancer)", balancer_reasons(result));
  if (result.in_default_order)
    text += lines(
        fmt::format("Why the ranks are in the order {}: what the default order would cost", name_of(best.choice.order)),
        order_reasons(best, *result.in_default_order, request.machine));
  text += lines("Memory of the rank that uses most", memory_parts(best));
  if (best.config.checkpoint.enable) text += "\n" + to_text(predicted_save(Blueprint(best.config), request.machine));
  return text + lines("Rules of thumb", rules_of_thumb(result, request));
}

}  // namespace echelon
