#include "plan/space/request.h"

#include "base/error.h"
#include "plan/space/space.h"
#include "predict/experts/read_expert_load.h"
#include "predict/machine/device_time.h"
#include "spec/choice.h"
#include "spec/config/config_ranges.h"
#include "spec/config/config_reader.h"
#include "spec/config/config_value.h"
#include "spec/config/key_words.h"
#include "spec/config/toml_file.h"
#include "spec/machine/fastest_format.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

namespace echelon {
namespace {

constexpr std::int64_t longest_default_sequence = 8192;

/// Keys whose default says that another key decides.
bool is_open_by_default(std::string_view key) {
  constexpr std::string_view all[] = {"parallelism.virtual_stages", "parallelism.context_parallel_ulysses_degree",
                                      "parallelism.hierarchical_context_parallel_sizes",
                                      "parallelism.expert_tensor_parallel_degree"};
  return std::find(std::begin(all), std::end(all), key) != std::end(all);
}

/// One setting a string, "--section.key=value".
std::vector<std::string> joined(const std::vector<std::string>& settings) {
  std::vector<std::string> all;
  for (const std::string& each : settings) {
    if (each.starts_with("--") || all.empty())
      all.push_back(each);
    else
      all.back() += "=" + each;
  }
  return all;
}

std::string key_of(const std::string& setting) {
  std::string key = setting.substr(std::min<std::size_t>(2, setting.size()),
                                   setting.find('=') - std::min<std::size_t>(2, setting.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// The value of a key that the planner would choose.
void fix(const std::string& setting, PlanRequest& request) {
  const std::string name = key_of(setting);
  const ConfigKey* key = find_config_key(name);
  require(key != nullptr, "command line: there is no key {}{}", name, key != nullptr ? "" : hint_for_key(name));
  require(has_value(*key), "command line: {} ({}) is not supported yet; omit it", name, key->doc);
  const std::size_t equals = setting.find('=');
  const std::string text = equals == std::string::npos ? "true" : setting.substr(equals + 1);
  assign({name, parse_text(*key, text), "command line"}, request.base);
  check_ranges(request.base);
  check_prefetch_depth(request.base);
  RunConfig defaults;
  if (is_open_by_default(name) && to_toml(value_of(*key, request.base)) == to_toml(value_of(*key, defaults)))
    request.fixed.erase(name);
  else
    request.fixed.insert(name);
}

/// What a file says about the choices is overruled by their defaults.
void add_defaults_of_choices(std::vector<std::string>& settings) {
  RunConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    if (!has_value(key) || !is_chosen(key.name)) continue;
    std::string value = to_toml(value_of(key, defaults));
    std::erase(value, '"');
    settings.push_back(fmt::format("--{}={}", key.name, value));
  }
}

bool says(const PlanQuestion& question, const std::vector<std::string>& settings, std::string_view key) {
  return question.model.ends_with(".toml") ||
         std::any_of(settings.begin(), settings.end(), [&](const auto& each) { return key_of(each) == key; });
}

bool names_dtype(const PlanQuestion& question, const std::vector<std::string>& settings) {
  constexpr std::string_view key = "training.dtype";
  if (!question.model.ends_with(".toml")) return says(question, settings, key);
  const std::vector<Setting> of_file = read_toml(question.model);
  return std::any_of(of_file.begin(), of_file.end(), [&](const Setting& each) { return each.name == key; }) ||
         std::any_of(settings.begin(), settings.end(), [&](const auto& each) { return key_of(each) == key; });
}

/// One thing is said once.
void require_one_value(const std::vector<std::string>& settings, std::string_view flag,
                       std::optional<std::int64_t> value, std::string_view key) {
  const auto same =
      std::find_if(settings.begin(), settings.end(), [&](const auto& each) { return key_of(each) == key; });
  require(!value || same == settings.end(), "{}={} and {} set the same value; omit one of them", flag,
          value.value_or(0), same == settings.end() ? "" : *same);
}

/// One token contradicts nothing but float8, whose blocks need more.
ModelSpec model_of(ConfigSource source) {
  std::erase_if(source.arguments, [](const std::string& each) { return key_of(each) == "training.linear_dtype"; });
  source.arguments.emplace_back("--training.seq_len=1");
  return read_run_config(source).model;
}

/// The model's longest, as far as that is usual.
std::int64_t default_seq_len(const ConfigSource& source) {
  return std::min(model_of(source).max_position_embeddings, longest_default_sequence);
}

/// RoPE has no last position: --seq-len raises a preset's, which no user wrote. What was raised, or nothing.
std::string raise_positions(const PlanQuestion& question, const std::vector<std::string>& settings,
                            ConfigSource& source) {
  constexpr std::string_view key = "model.max_position_embeddings";
  if (!question.seq_len || *question.seq_len > std::numeric_limits<std::int32_t>::max() ||
      says(question, settings, key) || std::filesystem::is_directory(question.model))
    return "";
  const ModelSpec model = model_of(source);
  if (model.position != PositionKind::rope || *question.seq_len <= model.max_position_embeddings) return "";
  source.arguments.push_back(fmt::format("--{}={}", key, *question.seq_len));
  return fmt::format("{} = {} of '{}' is raised to --seq-len={}", key, model.max_position_embeddings, question.model,
                     *question.seq_len);
}

/// With the flags and all settings that are no choices.
RunConfig base_config(const PlanQuestion& question, const std::vector<std::string>& settings, std::string& note) {
  ConfigSource source = {.path = {}, .arguments = {}, .read_model = question.read_model, .has_layout = false};
  if (question.model.ends_with(".toml")) {
    source.path = question.model;
    add_defaults_of_choices(source.arguments);
  } else if (!question.model.empty()) {
    const bool is_folder = std::filesystem::is_directory(question.model);
    source.arguments.push_back(fmt::format("--model.{}={}", is_folder ? "path" : "preset", question.model));
  }
  // One sequence in one microbatch contradicts nothing; the real sizes follow.
  for (const std::string& setting : settings)
    if (!is_chosen(key_of(setting))) source.arguments.push_back(setting);
  if (question.global_batch_size)
    source.arguments.push_back(fmt::format("--training.global_batch_size={}", *question.global_batch_size));
  note = raise_positions(question, settings, source);
  if (question.seq_len || !says(question, settings, "training.seq_len"))
    source.arguments.push_back(
        fmt::format("--training.seq_len={}", question.seq_len ? *question.seq_len : default_seq_len(source)));
  return read_run_config(source);
}

/// The fastest one, where none is named.
void choose_dtype(PlanRequest& request) {
  request.base.training.dtype = fastest_format(request.machine);
  request.chooses_dtype = true;
}

MachineSpec named_machine(const PlanQuestion& question, const std::string& of_config) {
  if (!question.machine.empty()) return read_machine(question.machine);
  if (!of_config.empty()) return read_machine(of_config);
  require(static_cast<bool>(question.this_machine),
          "--machine is missing: the name of a machine or a file (example: --machine=h100)");
  return question.this_machine();
}

void set_prices(const PlanQuestion& question, PlanRequest& request) {
  for (NodeSpec& node : request.machine.nodes) {
    if (question.price) node.price_per_device_hour = *question.price;
    require(request.objective != PlanObjective::cost || node.price_per_device_hour > 0,
            "--objective=cost needs a price, and the machine '{}' has none for '{}' (example: --price=2.5 per device "
            "and hour)",
            request.machine.name, node.name);
  }
}

/// What is not said: all devices of a cluster, a rank for each core of a host. There ranks are threads, of which there
/// may be more than cores.
std::int64_t num_devices_of(const PlanQuestion& question, const MachineSpec& machine) {
  if (machine.host) {
    const std::int64_t num_ranks = question.gpus.value_or(machine.host->num_cores);
    const std::int64_t most = machine.nodes.front().num_devices;
    require(num_ranks <= most, "--gpus={} is more than the {} threads of one process (use {})", num_ranks, most, most);
    return num_ranks;
  }
  const auto devices = machine.num_devices();
  require(question.gpus || devices,
          "--gpus is missing, and the machine '{}' has no fixed number of devices (example: --gpus=8)", machine.name);
  const std::int64_t wanted = question.gpus.value_or(devices.value_or(1));
  require(!devices || wanted <= *devices, "--gpus={} is more than the {} devices of the machine '{}' (use {})", wanted,
          devices.value_or(0), machine.name, devices.value_or(0));
  require(wanted <= most_devices, "--gpus={} is more than {} devices (use {})", wanted, most_devices, most_devices);
  return wanted;
}

}  // namespace

std::string_view name_of(PlanObjective objective) {
  switch (objective) {
    case PlanObjective::time: return "time";
    case PlanObjective::memory: return "memory";
    case PlanObjective::cost: return "cost";
  }
  return "?";
}

PlanObjective parse_plan_objective(std::string_view key, std::string_view name) {
  constexpr PlanObjective all[] = {PlanObjective::time, PlanObjective::memory, PlanObjective::cost};
  return parse_choice(key, name, all);
}

bool is_chosen(std::string_view key) {
  constexpr std::string_view others[] = {"training.micro_batch_size", "training.recompute", "training.recompute_method",
                                         "training.recompute_num_layers", "moe.dispatch_bound"};
  return key.starts_with("parallelism.") || std::find(std::begin(others), std::end(others), key) != std::end(others);
}

void fix_choice(const std::string& setting, PlanRequest& request) {
  require(is_chosen(key_of(setting)), "{} is no choice of the planner (example: --parallelism.zero_level=3)", setting);
  fix(setting, request);
}

PlanRequest read_plan_request(const PlanQuestion& question) {
  const std::vector<std::string> settings = joined(question.settings);
  require(!question.model.empty(),
          "--model is missing: a preset, a Hugging Face folder or a config file with a [model] section (example: "
          "--model=llama3-8b)");
  require(!question.gpus || *question.gpus >= 1, "--gpus={} is not a number of devices (use 1)",
          question.gpus.value_or(0));
  require(question.top >= 1 && question.top <= 1000, "--top={} is not between 1 and 1000 (use {})", question.top,
          std::clamp<std::int64_t>(question.top, 1, 1000));
  require_one_value(settings, "--global-batch-size", question.global_batch_size, "training.global_batch_size");
  require_one_value(settings, "--seq-len", question.seq_len, "training.seq_len");
  require(!question.price || (*question.price > 0 && std::isfinite(*question.price)),
          "--price={} is not a price per device and hour (example: --price=2.5)", question.price.value_or(0));
  PlanRequest request;
  request.objective = parse_plan_objective("--objective", question.objective);
  request.top = static_cast<int>(question.top);
  require(question.within_percent >= 0 && question.within_percent <= 50,
          "--within={} is not between 0 and 50 percent (use {})", question.within_percent,
          question.within_percent > 50 ? 50 : 0);
  request.within = question.within_percent / 100;
  require(question.seconds >= 0 && std::isfinite(question.seconds),
          "--seconds={} is not a time limit for a search (use 0 for no limit)", question.seconds);
  require(question.work >= 0, "--work={} is not a limit of a search (use 0 for no limit)", question.work);
  request.work = question.work;
  request.seconds = question.seconds;
  request.long_training = read_training_request(question.training);
  request.base = base_config(question, settings, request.note);
  request.base.expert_load = read_expert_load(question.expert_load, request.base);
  require(question.global_batch_size || says(question, settings, "training.global_batch_size"),
          "--global-batch-size is missing: sequences per step over all devices (example: --global-batch-size=1024)");
  for (const std::string& setting : settings)
    if (is_chosen(key_of(setting))) fix(setting, request);

  request.profile = rates_of_profile(software_profile(question.profile));
  request.machine = calibrated(request.profile, named_machine(question, request.base.metrics.machine));
  require_checkpoint_seconds(request.long_training, request.machine);
  set_prices(question, request);
  request.num_devices = num_devices_of(question, request.machine);
  request.machine = request.machine.reached_by(request.num_devices);
  request.fewest_devices = question.fewest_gpus.value_or(1);
  if (!request.machine.host && request.base.training.device == DeviceChoice::automatic)
    request.base.training.device = question.device;
  if (!names_dtype(question, settings))
    choose_dtype(request);
  else if (request.machine.nodes.size() > 1)
    require_format(request.machine, request.base.training.dtype);
  // So that bounds know it, as simulate() does.
  if (request.base.training.float32_matmul_precision == MatmulPrecision::high && !request.machine.host)
    request.machine = with_tensorfloat32(request.machine);
  return request;
}

}  // namespace echelon
