#include "train/train.h"

#include "base/error.h"
#include "blueprint/blueprint.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/folder_swap.h"
#include "checkpoint/state/step_folders.h"
#include "engine/device/rank_cores.h"
#include "engine/run_device.h"
#include "engine/types/layout_types.h"
#include "files/file.h"
#include "measure/host_rates.h"
#include "report/system_memory.h"
#include "spec/groups.h"
#include "train/data/data_fingerprint.h"
#include "train/data/open_data.h"
#include "train/export_model.h"
#include "train/run_claim.h"
#include "train/run_start.h"
#include "train/trainer.h"
#include "train/validation.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

/// For how many steps the model or the adapters of the folder were trained; 0: unknown, or there are none.
std::int64_t steps_of_written(const std::filesystem::path& folder, const RunConfig& config) {
  if (config.lora.exists()) return is_adapter_folder(folder) ? read_adapter_config(folder, config.model).steps : 0;
  return is_model_folder(folder) ? read_training_note(folder).steps : 0;
}

/// Nothing is left to do: the run has made its steps and written its model.
std::optional<TrainResult> finished_result(const RunConfig& config, const Resume& resume, RunObserver& observer) {
  if (!resume.is_finished()) return std::nullopt;
  const std::int64_t step = resume.candidates().front().scalars().step;
  const std::filesystem::path model = model_folder(config);
  if (config.checkpoint.enable && steps_of_written(model, config) != step) return std::nullopt;
  observer.described(fmt::format("this run has made its {} steps; more are made with a larger training.steps", step));
  TrainResult result;
  result.last_step.step = step;
  result.checkpoint = resume.candidates().front().reader->folder();
  if (config.checkpoint.enable) result.model_folder = model;
  result.was_finished = true;
  return result;
}

/// A run writes below output.dir alone, which may itself be a link.
void require_own_folders(const RunConfig& config) {
  const std::filesystem::path dir = config.output.dir;
  std::filesystem::path below;
  std::vector<std::filesystem::path> folders = {"export", "trace"};
  for (const std::filesystem::path& part : std::filesystem::path(config.checkpoint.folder))
    folders.push_back(below /= part);
  for (const std::filesystem::path& folder : folders)
    require(kind_of(dir / folder) != NameKind::other,
            "{} is a link, but a run writes nothing outside of output.dir = '{}' (use output.dir for another place)",
            (dir / folder).string(), config.output.dir);
}

/// Refuses output.dir if f, which prepares it, fails.
template <class F>
void prepare_output(const RunConfig& config, F&& f) {
  try {
    f();
  } catch (const Failure& failure) {
    throw Error(fmt::format("output.dir = '{}' cannot be written to: {} (use another output.dir)", config.output.dir,
                            failure.what()));
  }
}

void remove_litter_or_warn(const RunConfig& config, RunObserver& observer) {
  try {
    remove_litter(checkpoint_folder(config));
  } catch (const Failure& error) {
    observer.warned(fmt::format("what an earlier attempt left could not be removed: {}", error.what()));
  }
}

// A batch beyond the data would be mostly padding.
RunConfig with_batch_within(RunConfig config, std::int64_t num_sequences) {
  const std::int64_t round = config.data_parallel_degree() * config.training.micro_batch_size;
  const std::int64_t enough = (num_sequences + round - 1) / round * round;
  config.training.global_batch_size = std::min(config.training.global_batch_size, enough);
  return config;
}

/// Collective: what was asked of any rank to end the run. `own` is null on ranks that are not asked.
RunRequest agreed_end(Comm& all, const RunRequests* own) {
  double sum = own != nullptr ? summand_of(own->end) : 0;
  all.all_reduce({&sum, DType::float64, {1}}, ReduceOp::sum).wait();
  return highest_request(sum);
}

std::optional<ModelReader> initial_weights(const RunConfig& config) {
  if (config.checkpoint.initial_load_path.empty()) return std::nullopt;
  ModelReader reader(config.checkpoint.initial_load_path);
  ModelSpec expected = config.model, found = reader.spec();
  expected.initializer_range = found.initializer_range;  // irrelevant for loaded weights
  require(expected == found,
          "checkpoint.initial_load_path = '{}' has a different model than [model] describes; use model.path = '{}'",
          config.checkpoint.initial_load_path, config.checkpoint.initial_load_path);
  return reader;
}

/// Those that a run with adapters starts with, unless it draws them.
std::optional<AdapterReader> initial_adapters(const RunConfig& config, const std::optional<Digest>& base) {
  const LoraConfig& lora = config.lora;
  if (lora.initial_load_path.empty()) return std::nullopt;
  AdapterReader reader(lora.initial_load_path, config.model);
  const AdapterConfig& found = reader.config();
  const auto require_same = [&](std::string_view key, const auto& wanted, const auto& is) {
    require(wanted == is, "lora.initial_load_path = '{}' has lora.{} = {}, not {} (use {})", lora.initial_load_path,
            key, is, wanted, is);
  };
  require_same("rank", lora.rank, found.lora.rank);
  require_same("alpha", lora.alpha, found.lora.alpha);
  require_same("use_rslora", lora.use_rslora, found.lora.use_rslora);
  const auto modules = [&](const LoraConfig& of) {
    return fmt::format("{}", fmt::join(targets_of(adapted_modules(of, config.model), config.model), ","));
  };
  require_same("target_modules", modules(lora), modules(found.lora));
  if (whole_parameters(config.model, lora) != whole_parameters(config.model, found.lora))
    require_same("modules_to_save", fmt::format("{}", fmt::join(lora.modules_to_save, ",")),
                 fmt::format("{}", fmt::join(found.lora.modules_to_save, ",")));
  require(!found.base_digest || found.base_digest == base,
          "lora.initial_load_path = '{}' has adapters of another base than checkpoint.initial_load_path = '{}' (use "
          "'{}')",
          lora.initial_load_path, config.checkpoint.initial_load_path, found.base);
  return reader;
}

std::string describe_pipeline(const Schedule& schedule, const ParallelConfig& p) {
  const auto num_ranks = static_cast<int>(schedule.ranks.size());
  if (num_ranks == 1 && schedule.num_stages == 1) return "1";
  const std::string name = p.pipeline_parallel_schedule_csv.empty() ? std::string(name_of(p.pipeline_parallel_schedule))
                                                                    : p.pipeline_parallel_schedule_csv;
  return fmt::format("{} ({}{})", num_ranks, name,
                     schedule.num_stages > num_ranks ? fmt::format(", {} stages", schedule.num_stages) : "");
}

std::string describe_adapters(const RunConfig& config) {
  if (!config.lora.exists()) return "";
  const auto millions = [](const std::vector<NamedShape>& parameters) {
    double sum = 0;
    for (const NamedShape& each : parameters) sum += static_cast<double>(each.sizes.num_elements());
    return sum / 1e6;
  };
  const std::vector<NamedShape> whole = whole_parameters(config.model, config.lora);
  return fmt::format(", {:.3f} M in adapters of rank {}{} alone are trained",
                     millions(adapter_parameters(config.model, config.lora)), config.lora.rank,
                     whole.empty() ? "" : fmt::format(" and {:.3f} M in modules to save", millions(whole)));
}

std::string describe(const Blueprint& blueprint, const RankPlacement& placement) {
  const RunConfig& config = blueprint.config();
  const ParallelConfig& p = config.parallelism;
  return fmt::format(
      "model: {} of {:.2f} M parameters{}{}; mesh: replicate {} x pipeline {} x shard {} x {}tensor {} = {} ranks as "
      "{}; "
      "{} microbatches of {} x {} tokens per rank and step",
      name_of(config.model.family), static_cast<double>(config.model.num_parameters()) / 1e6,
      config.model.mixture.exists()
          ? fmt::format(", {:.2f} M active", static_cast<double>(config.model.num_active_parameters()) / 1e6)
          : "",
      describe_adapters(config), p.data_parallel_replicate_degree, describe_pipeline(blueprint.schedule(), p),
      p.data_parallel_shard_degree,
      p.context_parallel_degree > 1
          ? fmt::format("context {} ({}, {}) x ", p.context_parallel_degree, name_of(p.context_parallel_method),
                        name_of(p.context_parallel_load_balancer))
          : "",
      p.tensor_parallel_degree, config.mesh_shape().num_ranks(),
      placement.transport == Transport::thread ? "threads" : "processes", config.num_microbatches(),
      config.training.micro_batch_size, config.training.seq_len);
}

/// The memory plan of a rank by category, each at its own peak. The allocation has exactly the planned size.
std::string describe_memory(const RankBlueprint& rank) {
  constexpr double mebibyte = 1024.0 * 1024.0;
  std::string parts;
  for (const MemoryCategory category : memory_categories()) {
    const double size = static_cast<double>(rank.memory(ProgramKind::training).peak_bytes(category)) / mebibyte;
    if (size >= 0.005) parts += fmt::format("{}{:.2f} MiB of {}", parts.empty() ? "" : ", ", size, name_of(category));
  }
  return fmt::format("memory of rank {}: {:.2f} MiB, at most {}", rank.rank(),
                     static_cast<double>(rank.arena_bytes()) / mebibyte, parts);
}

}  // namespace

RankPlacement placement_of(const RunConfig& config) {
  return place_ranks(config.comm.backend, config.mesh_shape().num_ranks());
}

RunConfig with_nodes(RunConfig config) {
  ParallelConfig& p = config.parallelism;
  if (p.expert_dispatch != ExpertDispatch::hierarchical || p.ranks_per_node > 0) return config;
  const RankPlacement placement = placement_of(config);
  if (placement.num_ranks_on_host == placement.num_ranks) return config;
  p.ranks_per_node = placement.num_ranks_on_host;
  validate(config);
  return config;
}

TrainResult train(const RunConfig& wanted, const TrainOptions& options) {
  RunObserver no_observer;
  RunObserver& observer = options.observer != nullptr ? *options.observer : no_observer;
  const RankPlacement placement = placement_of(wanted);
  if (wanted.checkpoint.enable) require_exportable(wanted);
  const std::unique_ptr<Backend> backend = open_backend(wanted.training.device);
  const RunConfig config = with_device(with_nodes(wanted), backend->kind());
  const Blueprint blueprint(config);
  require_host_memory(blueprint, placement, *backend);
  rehearse(blueprint);
  const RatesOfHost rates(config.metrics, placement, backend->kind());
  const DatasetBatches training = open_training(config, placement, observer);
  std::optional<DatasetBatches> validation;
  if (!config.data.validation_path.empty()) validation.emplace(open_validation(config, placement, observer));

  std::optional<RunClaim> claim;
  prepare_output(config, [&] {
    if (placement.is_first_process()) claim.emplace(config.output.dir, highest_attempt(checkpoint_folder(config)));
  });
  const Resume resume(config, fingerprint_of(training),
                      [&](const std::string& sentence) { observer.warned(sentence); });
  if (auto finished = finished_result(config, resume, observer)) {
    if (placement.is_first_process()) remove_litter_or_warn(config, observer);
    if (placement.is_first_process() && options.tell) options.tell(*finished);
    return *finished;
  }
  const bool resumes = !resume.candidates().empty();
  const bool reads_initial = !resumes || config.lora.exists();  // checkpoints of adapters have no base
  const auto initial = reads_initial ? initial_weights(config) : std::nullopt;
  const auto adapters = resumes ? std::nullopt : initial_adapters(config, resume.base());
  require_own_folders(config);
  prepare_output(config, [&] {
    if (config.checkpoint.enable) make_folder(checkpoint_folder(config));
  });
  TrainResult result;
  result.was_finished = resume.is_finished();
  observer.described(start_line(resume, 0));
  if (!reads_initial && !config.checkpoint.initial_load_path.empty())
    observer.described(fmt::format("checkpoint.initial_load_path = '{}' is not read: the checkpoint has the weights",
                                   config.checkpoint.initial_load_path));
  if (validation) result.validation_unigram_entropy = unigram_entropy(validation->dataset());
  observer.described(describe(blueprint, placement));
  observer.described(describe_memory(blueprint.rank(0)));
  if (claim && !claim->is_locked())
    observer.described(
        fmt::format("the file system of '{}' has no locks: other runs are kept away by the time at which "
                    "this one writes to run.lock",
                    config.output.dir));
  if (const std::string note = initial ? initial->unused_tensors_note() : ""; !note.empty()) observer.described(note);
  ProductRequest products =
      product_request(config, resumes ? resume.candidates().front().reader->manifest().products : ProductNames());
  products.is_of_processes = placement.transport == Transport::mpi;
  BackgroundThread background;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& host) {
    Comm& all = host.comm(step_group);
    if (placement.transport != Transport::thread) require_same_run(config, resume.data(), all);
    const RunRequests* requests = host.rank() == placement.first_rank_here ? options.requests : nullptr;
    const RankCores cores = claim_cores(config, host);
    const std::unique_ptr<RankDevice> device = open_device(*backend, blueprint, host, cores.num_threads, products);
    Ops& ops = device->ops();
    Mesh& mesh = device->mesh();
    const std::optional<HostRates> host_rates = rates.of_rank(cores.num_threads);
    if (mesh.rank() == 0) {
      observer.described(describe(cores) + "; " + device->description());
      for (const std::string& note : device->notes()) observer.warned(note);
      if (!host_rates)
        observer.described(
            "mfu: N/A: the peak of this machine is unknown; --metrics.machine=FILE of echelon bench sets it");
    }
    std::optional<StepRecorder> recorder;
    if (!config.metrics.trace.empty()) recorder.emplace(ops, mesh);
    RankRun run(
        blueprint, recorder ? recorder->mesh() : mesh, recorder ? recorder->ops() : ops, device->memory(),
        recorder_of(*device, config),
        config.checkpoint.async_mode == AsyncMode::async_with_pinned_mem ? device->pinned_memory() : host_memory());
    if (recorder) run.step().observe_actions(*recorder);
    const RunStart start = start_run({.config = config,
                                      .resume = resume,
                                      .initial = initial ? &*initial : nullptr,
                                      .adapters = adapters ? &*adapters : nullptr,
                                      .attempt = claim ? claim->attempt() : 0,
                                      .observer = observer,
                                      .num_threads = cores.num_threads},
                                     {run, mesh, ops}, host);
    if (config.checkpoint.enable && mesh.rank() == 0) remove_litter_or_warn(config, observer);
    std::optional<StateSaver> state_saver;
    std::optional<RunSaver> saver;
    if (config.checkpoint.enable) {
      state_saver.emplace(StateSaver::Context{blueprint, run, ops, host, claim ? &*claim : nullptr, &background,
                                              device->products(), resume.base()},
                          start.attempt, start.lineage);
      run.step().give_snapshots_to(*state_saver);
      saver.emplace(RunSaver::Context{config, *state_saver, run, ops, mesh, host, observer, &background},
                    start.resumed_from, start.damaged);
    }
    if (saver && mesh.rank() == 0) observer.described(saver->plan());
    Trainer trainer(config, {.blueprint = blueprint,
                             .rank = {run, mesh, ops},
                             .host_mesh = host,
                             .training = training,
                             .start = start.scalars,
                             .saver = saver ? &*saver : nullptr,
                             .validation = validation ? &*validation : nullptr,
                             .observer = observer,
                             .requests = requests,
                             .recorder = recorder ? &*recorder : nullptr,
                             .host = host_rates,
                             .device_memory_bytes = device->facts().memory_bytes});
    const RunRequest end = agreed_end(all, requests);
    TrainResult outcome;
    if (ends_run(end))
      outcome.ended_by = end;
    else
      outcome = trainer.run();
    if (mesh.rank() == placement.first_rank_here) {
      const TrainResult known = result;
      result = outcome;
      result.validation_unigram_entropy = known.validation_unigram_entropy;
      result.was_finished = known.was_finished;
      result.device_choices = device->choices();
    }
    if (mesh.rank() == 0 && options.tell) options.tell(result);
    all.barrier().wait();
  });
  return result;
}

EvaluationResult evaluate(const RunConfig& asked, std::int64_t most_batches) {
  RunConfig wanted = asked;
  wanted.lora = {};  // adapters are merged with their base when they are read
  require(!wanted.checkpoint.initial_load_path.empty(),
          "checkpoint.initial_load_path is empty: which model is to be evaluated? Add --model=FOLDER");
  require(!wanted.data.validation_path.empty(),
          "data.validation_path is empty: on which tokens is the model to be evaluated?");
  const RankPlacement placement = placement_of(wanted);
  const auto initial = initial_weights(wanted);
  RunObserver no_observer;
  const DatasetBatches validation = open_validation(wanted, placement, no_observer);
  const std::unique_ptr<Backend> backend = open_backend(wanted.training.device);
  const RunConfig config = with_device(
      with_nodes(with_batch_within(wanted, validation.windows_per_epoch(wanted.training.seq_len))), backend->kind());
  const Blueprint blueprint(config);
  require_host_memory(blueprint, placement, *backend);
  rehearse(blueprint);
  EvaluationResult result;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device =
        open_device(*backend, blueprint, host, claim_cores(config, host).num_threads,
                    {.is_of_processes = placement.transport == Transport::mpi});
    RankRun run(blueprint, device->mesh(), device->ops(), device->memory());
    run.model().load(*initial, device->ops());
    const MeanLoss mean = validation_loss(run.step(), validation, config, most_batches);
    if (host.rank() == placement.first_rank_here)
      result = {.loss = mean.loss,
                .num_targets = mean.num_targets,
                .num_targets_of_text = validation.num_targets(),
                .unigram_entropy = unigram_entropy(validation.dataset()),
                .note = initial->unused_tensors_note(),
                .device = device->description()};
  });
  if (!std::isfinite(result.loss))
    throw Failure(fmt::format("the loss of '{}' on '{}' is {}: its weights overflow in training.dtype",
                              config.checkpoint.initial_load_path, config.data.validation_path, result.loss));
  return result;
}

}  // namespace echelon
