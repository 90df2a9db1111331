// echelon plan: the best layouts of a model on a cluster.
#include "plan/search/search.h"

#include "base/error.h"
#include "checkpoint/model_reader.h"
#include "cli/command.h"
#include "cli/documents/asked_documents.h"
#include "measure/this_machine.h"
#include "pages/plan_html.h"
#include "pages/scaling_svg.h"
#include "plan/balance/balancers.h"
#include "plan/search/config_plan.h"
#include "plan/search/draws.h"
#include "plan/search/improvement.h"
#include "plan/search/scaling.h"
#include "plan/space/device_range.h"
#include "plan/text/comparison.h"
#include "plan/text/text.h"
#include "predict/experts/read_expert_load.h"
#include "report/output_file.h"
#include "spec/config/config_reader.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace echelon {
namespace {

struct PlanArguments {
  PlanQuestion question;
  std::string gpus, output, svg, html, documents;
  std::vector<std::string> compared;
  bool has_html = false;
  bool json = false, scaling = false, improves = false;
};

/// A range of devices asks for their scaling.
void set_devices(PlanArguments& arguments) {
  if (arguments.gpus.empty()) return;
  const DeviceRange devices = parse_device_range(arguments.gpus);
  arguments.question.gpus = devices.most;
  arguments.question.fewest_gpus = devices.fewest;
  arguments.scaling = arguments.scaling || devices.fewest;
}

ExitStatus run_scaling(const PlanArguments& arguments, const PlanRequest& request, const HtmlFile* html) {
  require(arguments.output.empty(),
          "--output={} is for one plan, but --scaling and ranges of --gpus list many; omit one of them",
          arguments.output);
  const auto svg = OutputFile::unless_empty("--svg", arguments.svg, "scaling.svg");
  const Scaling scaling = scaling_of(request);
  if (svg) svg->write(to_svg(scaling));
  if (html != nullptr) html->write(scaling_page(scaling, request));
  fmt::print("{}", arguments.json ? to_json(scaling, request) : to_text(scaling, request));
  if (!arguments.json) fmt::print("timed at {}\n", rates_text(request.profile, request.machine));
  return scaling.points.empty() ? ExitStatus::failure : ExitStatus::success;
}

/// `answer` is given without a list of plans.
void require_no_list(const PlanArguments& arguments, std::string_view flag, std::string_view answer) {
  require(!arguments.scaling && !arguments.has_html && arguments.output.empty(),
          "{} prints {} and nothing else; omit --scaling, ranges of --gpus, --output and --html", flag, answer);
}

/// The first config to compare is the model where none is named, and says how many devices there are.
ExitStatus run_comparison(const PlanArguments& arguments) {
  require_no_list(arguments, fmt::format("--compare={}", arguments.compared.front()), "two layouts");
  PlanQuestion question = arguments.question;
  const auto config = std::find_if(arguments.compared.begin(), arguments.compared.end(), is_config);
  if (config != arguments.compared.end()) {
    if (question.model.empty()) question.model = *config;
    if (!question.gpus) question.gpus = read_asked_config(*config, question).mesh_shape().num_ranks();
  }
  const PlanRequest request = read_plan_request(question);
  const PlanComparison comparison = compare_plans(request, arguments.question, arguments.compared);
  fmt::print("{}", arguments.json ? to_json(comparison, request) : to_text(comparison, request));
  if (!arguments.json) fmt::print("timed at {}\n", rates_text(request.profile, request.machine));
  if (!arguments.json && !request.note.empty()) fmt::print("{}\n", request.note);
  return ExitStatus::success;
}

ExitStatus run_improvement(const PlanArguments& arguments) {
  require_no_list(arguments, "--improve", "changes of one config");
  require(arguments.compared.empty(), "--improve and --compare={} are two questions; omit one of them",
          arguments.compared.empty() ? "" : arguments.compared.front());
  PlanQuestion question = arguments.question;
  require(question.objective == name_of(PlanObjective::time),
          "--improve shortens the step, but --objective={} is given (use time)", question.objective);
  require(is_config(question.model),
          "--improve needs a config file, and '{}' is none (example: plan run.toml --improve)", question.model);
  const RunConfig config = read_asked_config(question.model, question);
  question.gpus = config.mesh_shape().num_ranks();
  const PlanRequest request = read_plan_request(question);
  const Improvement improvement = improve(config, request);
  fmt::print("{}", arguments.json ? to_json(improvement, request) : to_text(improvement, request));
  return ExitStatus::success;
}

/// None if no lengths are given.
DocumentsOf documents_of(const PlanArguments& arguments, const PlanRequest& request) {
  if (arguments.documents.empty()) return {};
  const RunConfig& config = request.base;
  require(config.data.reset_attention_mask,
          "--documents={} changes nothing where tokens attend across documents: data.reset_attention_mask = false (use "
          "true)",
          arguments.documents);
  constexpr std::int64_t num_sequences = 256;  // over and over in larger batches
  return asked_documents(arguments.documents, config, std::max(num_sequences, config.training.global_batch_size));
}

/// In which a search counts pairs and rows: a few million tokens.
std::int64_t num_counted_sequences(const PlanRequest& request) {
  constexpr std::int64_t num_tokens = std::int64_t{1} << 21, fewest = 4, most = 256;
  return std::clamp(num_tokens / request.base.training.seq_len, fewest, most);
}

ExitStatus run_plan(const PlanArguments& arguments) {
  require(arguments.svg.empty() || arguments.scaling, "--svg={} needs --scaling, whose list it draws", arguments.svg);
  require(arguments.documents.empty() || (!arguments.improves && arguments.compared.empty() && !arguments.scaling),
          "--documents={} is for a list of plans; omit --improve, --compare, --scaling and ranges of --gpus",
          arguments.documents);
  if (arguments.improves) return run_improvement(arguments);
  if (!arguments.compared.empty()) return run_comparison(arguments);
  std::optional<HtmlFile> html;
  if (arguments.has_html) html.emplace(arguments.html);
  PlanRequest request = read_plan_request(arguments.question);
  if (arguments.scaling) return run_scaling(arguments, request, html ? &*html : nullptr);
  const auto output = OutputFile::unless_empty("--output", arguments.output, "plan.toml");
  const DocumentsOf documents = documents_of(arguments, request);
  if (documents && !request.machine.host)
    request.documents = std::make_shared<DocumentLoads>(documents, num_counted_sequences(request));
  PlanResult result = find_plans(request);
  choose_balancer(result, request, documents);
  result.draws = draws_of(result.plans, request);
  if (output && !result.plans.empty()) output->write(to_toml(result.plans.front().config));
  if (html) html->write(plan_page(result, request));
  fmt::print("{}", arguments.json ? to_json(result, request) : to_text(result, request));
  return result.plans.empty() ? ExitStatus::failure : ExitStatus::success;
}

void add_training_options(CLI::App& app, TrainingQuestion& training) {
  app.add_option("--tokens", training.tokens, "of a whole training, such as 15T: its steps, days and price");
  app.add_option("--hours", training.hours,
                 "of training: their tokens; with --tokens, whether, and on how few devices, they suffice");
  app.add_option("--mtbf", training.mtbf,
                 "hours between failures: 50000 of a device, 6000/node or 3/job, for --tokens");
  app.add_option("--failures", training.failures, "instead of --mtbf, such as Llama 3's 419,54,16384")
      ->type_name("N,DAYS,DEVICES");
  app.add_option("--checkpoint-seconds", training.checkpoint_seconds,
                 "in which a checkpoint stops training; default: as predicted, with a measured disk, which no shipped "
                 "machine has");
  app.add_option(
      "--restart-seconds", training.restart_seconds,
      "from a failure until training resumes; default: 600 on GPUs (MegaScale), and the reading of a checkpoint");
}

}  // namespace

CommandAction declare_plan(CLI::App& app, const std::vector<std::string>& config_arguments) {
  const auto arguments = std::make_shared<PlanArguments>();  // CLI11's options write to what the action reads
  PlanQuestion& question = arguments->question;
  app.add_option(
      "--model,model", question.model,
      "a preset, a Hugging Face folder, or a config (TOML), whose parallelism is ignored, but for --improve");
  app.add_option(
      "--machine", question.machine,
      "a machine by name, or its file; default: the config's metrics.machine, or this machine, measured once");
  app.add_option("--profile", question.profile,
                 "whose rates time the layouts, as in `echelon simulate`; echelon: what all software has in common")
      ->capture_default_str();
  app.add_option("--gpus", arguments->gpus,
                 "devices (1048576 at most), or ranks on a host, or a range of them such as 8..64, for --scaling; "
                 "default: all that the machine has")
      ->type_name("N|A..B");
  app.add_option("--global-batch-size", question.global_batch_size, "sequences per step, over all devices");
  app.add_option("--seq-len", question.seq_len, "tokens per sequence; default: the model's longest, 8192 at most");
  app.add_option("--expert-load", question.expert_load, expert_load_help)->type_name("LOAD");
  app.add_option("--documents", arguments->documents, documents_help)->type_name("FILE|MEAN:SPREAD");
  app.add_option("--objective", question.objective, "what to minimise: time | memory | cost")->capture_default_str();
  app.add_option("--top", question.top, "plans that are listed")->capture_default_str();
  app.add_option("--within", question.within_percent,
                 "stop when no layout can be better by more percent than this; 0: the best one")
      ->capture_default_str();
  app.add_option("--work", question.work,
                 "limit of the search in units of its work, the same on any machine; 0: no limit")
      ->capture_default_str();
  app.add_option("--seconds", question.seconds,
                 "time limit of the search, which then bounds how much better other plans can be; 0: no limit")
      ->capture_default_str();
  app.add_option("--output", arguments->output, "write the best plan as a config for echelon train");
  app.add_option("--price", question.price, "per device and hour, for the price of tokens; default: the machine's");
  add_training_options(app, question.training);
  app.add_flag(
      "--scaling", arguments->scaling,
      "the best step over 1, 2, 4, ... devices instead, or from A to B, with all whole nodes if they are 16 at most");
  app.add_option("--compare", arguments->compared,
                 "a layout, such as tp=8,pp=4, or a config, next to the best one, part by part; or give it twice")
      ->type_name("LAYOUT")
      ->allow_extra_args(false);
  app.add_flag("--improve", arguments->improves,
               "what to change in the config: the three keys, changed alone, that help most");
  app.add_option("--svg", arguments->svg, "draw the result of --scaling into this file");
  auto* const html = app.add_option("--html", arguments->html, "write an HTML page of the result");
  app.add_flag("--json", arguments->json, "the result as JSON");
  return [arguments, config_arguments, html] {
    arguments->has_html = html->count() > 0;
    set_devices(*arguments);
    arguments->question.settings = config_arguments;
    arguments->question.read_model = read_model_spec;
    arguments->question.this_machine = this_machine;
    return run_plan(*arguments);
  };
}

}  // namespace echelon
