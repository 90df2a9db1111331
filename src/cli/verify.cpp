// echelon verify: a config's layout against one rank, tensor by tensor.
#include "verify/verify.h"

#include "base/text/counted.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "ops/cpu/gemm_choice.h"
#include "spec/config/config_reader.h"
#include "verify/setup.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct VerifyArguments {
  std::string config;
  VerifyRequest request;
  std::string dtype{name_of(VerifyRequest().dtype)};
  bool json = false;
};

/// Those that were compared: of a model without experts no router.
std::vector<Quantity> quantities_of(const Verdict& verdict) {
  std::vector<Quantity> quantities = {Quantity::loss, Quantity::router, Quantity::gradient, Quantity::norm,
                                      Quantity::weight};
  std::erase_if(quantities, [&](Quantity each) { return verdict.worst[static_cast<std::size_t>(each)].error < 0; });
  return quantities;
}

std::string layout_of(const RunConfig& config) {
  const ParallelConfig& p = config.parallelism;
  const std::string context =
      p.context_parallel_degree > 1 ? fmt::format("context {} x ", p.context_parallel_degree) : "";
  return fmt::format("replicate {} x pipeline {} x shard {} x {}tensor {} = {}, {}", p.data_parallel_replicate_degree,
                     p.pipeline_parallel_degree, p.data_parallel_shard_degree, context, p.tensor_parallel_degree,
                     counted(config.mesh_shape().num_ranks(), "rank"),
                     counted(config.num_microbatches(), "microbatch"));
}

/// Before the run, which may take minutes.
void print_heading(const VerifySetup& setup, const VerifyRequest& request) {
  fmt::print("layout: {}, against one rank: {} in {}\n", layout_of(setup.config), counted(request.num_steps, "step"),
             name_of(request.dtype));
  if (setup.config.training.device != DeviceChoice::cuda)
    fmt::print("{}\n", describe_products(choose_products({.dtype = setup.config.training.dtype})));
  for (const std::string& note : setup.notes) fmt::print("{}\n", note);
  std::fflush(stdout);
}

void print_choices(const ChoiceComparison& choices) {
  if (choices.num_ties + choices.num_wrong == 0)
    fmt::print("choices: each of {} is that of one rank\n", choices.num_choices);
  if (choices.num_ties > 0)
    fmt::print("choices: {} of {} are others, between scores that are closer than rounding; one rank replays them\n",
               choices.num_ties, choices.num_choices);
  if (choices.num_row_ties > 0)
    fmt::print(
        "choices: at their capacity, experts keep {} in place of others, whose weights are closer than "
        "rounding; one rank replays them\n",
        counted(choices.num_row_ties, "row"));
  if (choices.num_wrong > 0)
    fmt::print("choices: {} of {} are wrong: {}\n", choices.num_wrong, choices.num_choices, choices.sentence);
}

void print_text(const Verdict& verdict) {
  if (verdict.choices) print_choices(*verdict.choices);
  fmt::print("{:<10}{:>14}{:>12}  {}\n", "", "worst error", "tolerance", "where");
  for (const Quantity quantity : quantities_of(verdict)) {
    const WorstError& worst = verdict.worst[static_cast<std::size_t>(quantity)];
    fmt::print("{:<10}{:>14.2e}{:>12.0e}  step {}, rank {}{}{}\n", name_of(quantity), worst.error,
               verdict.tolerances[static_cast<std::size_t>(quantity)], worst.step, worst.rank,
               worst.tensor.empty() ? "" : ": ", worst.tensor);
  }
  if (verdict.is_equal()) {
    fmt::print("equal: the layout computes what one rank computes\n");
    return;
  }
  if (!verdict.first) {
    fmt::print("different: the choices alone\n");
    return;
  }
  const Difference& first = *verdict.first;
  fmt::print("different: first the {} of step {}{}{} {}\n", name_of(first.quantity), first.step,
             first.tensor.empty() ? "" : " of ", first.tensor, verdict.place);
  fmt::print("diagnosis: {}\n", verdict.diagnosis->sentence());
}

nlohmann::ordered_json to_json(const Diagnosis& diagnosis) {
  return {{"fault", name_of(diagnosis.finding.kind)}, {"axis", diagnosis.finding.axis},
          {"tensor", diagnosis.finding.tensor},       {"where", diagnosis.finding.where},
          {"evidence", diagnosis.finding.evidence},   {"gone_without", diagnosis.gone_without},
          {"stays_without", diagnosis.stays_without}, {"fails_without", diagnosis.fails_without},
          {"sentence", diagnosis.sentence()}};
}

void print_json(const VerifySetup& setup, const VerifyRequest& request, const Verdict& verdict) {
  nlohmann::ordered_json json = {
      {"equal", verdict.is_equal()},       {"world_size", setup.config.mesh_shape().num_ranks()},
      {"layout", layout_of(setup.config)}, {"steps", request.num_steps},
      {"dtype", name_of(request.dtype)},   {"notes", setup.notes}};
  for (const Quantity quantity : quantities_of(verdict)) {
    const auto index = static_cast<std::size_t>(quantity);
    const WorstError& worst = verdict.worst[index];
    json["worst"][std::string(name_of(quantity))] = {{"error", worst.error},
                                                     {"tolerance", verdict.tolerances[index]},
                                                     {"tensor", worst.tensor},
                                                     {"step", worst.step},
                                                     {"rank", worst.rank}};
  }
  if (verdict.choices)
    json["choices"] = {{"compared", verdict.choices->num_choices},
                       {"ties", verdict.choices->num_ties},
                       {"row_ties", verdict.choices->num_row_ties},
                       {"wrong", verdict.choices->num_wrong},
                       {"first_wrong", verdict.choices->sentence}};
  if (verdict.first) {
    const Difference& first = *verdict.first;
    json["first_difference"] = {{"quantity", name_of(first.quantity)},
                                {"step", first.step},
                                {"tensor", first.tensor},
                                {"error", first.error},
                                {"place", verdict.place}};
    auto ranks = nlohmann::ordered_json::array();
    for (const RankDifference& rank : first.ranks)
      ranks.push_back({{"rank", rank.rank},
                       {"error", rank.error},
                       {"first_element", rank.first},
                       {"last_element", rank.last},
                       {"elements", rank.count}});
    json["first_difference"]["ranks"] = ranks;
    json["diagnosis"] = to_json(*verdict.diagnosis);
  }
  fmt::print("{}\n", json.dump());
}

ExitStatus run_verification(const VerifyArguments& arguments, const std::vector<std::string>& config_arguments) {
  const RunConfig config = read_run_config(source_of_model(arguments.config, config_arguments));
  VerifyRequest request = arguments.request;
  request.dtype = parse_verified_dtype(arguments.dtype);
  const VerifySetup setup = set_up_verification(config, request);
  if (!arguments.json) print_heading(setup, request);
  const Verdict verdict = verify(setup.config, setup.batches(), {.num_steps = request.num_steps});
  arguments.json ? print_json(setup, request, verdict) : print_text(verdict);
  return verdict.is_equal() ? ExitStatus::success : ExitStatus::failure;
}

}  // namespace

CommandAction declare_verify(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<VerifyArguments>();  // CLI11's options write to what the action reads
  app.add_option("model", arguments->config, model_argument_help);
  app.add_option("--steps", arguments->request.num_steps, "steps to compare")->capture_default_str();
  app.add_option("--dtype", arguments->dtype, "float64 or float32, whatever training.dtype says")
      ->capture_default_str();
  app.add_option("--layers", arguments->request.num_layers, "decoder layers of a smaller model; 0: the config's")
      ->check(in_range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--hidden", arguments->request.hidden_size, "width of a smaller model; 0: the config's")
      ->check(in_range(0, 2147483647))
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "the verdict as JSON");
  return [arguments, config_arguments] { return run_verification(*arguments, config_arguments); };
}

}  // namespace echelon
