#include "train/train.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "blueprint/blueprint.h"
#include "checkpoint/hf/adapter/adapter_reader.h"
#include "checkpoint/hf/config/model_config.h"
#include "checkpoint/hf/folder_swap.h"
#include "checkpoint/hf/hf_reader.h"
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
#include "train/run_placement.h"
#include "train/save/export_model.h"
#include "train/save/run_claim.h"
#include "train/start/initial_weights.h"
#include "train/start/run_description.h"
#include "train/start/run_products.h"
#include "train/start/run_start.h"
#include "train/trainer.h"
#include "train/validation.h"

namespace echelon {
namespace {

/// Whether the model or the adapters of the folder are whole, by their headers, and were trained for so many steps.
bool has_model(const std::filesystem::path& folder, const RunConfig& config, std::int64_t steps,
               RunObserver& observer) {
  try {
    if (config.lora.exists())
      return is_adapter_folder(folder) && AdapterReader(folder, config.model).config().steps == steps;
    if (!is_model_folder(folder) || read_training_note(folder).steps != steps) return false;
    (void)HuggingFaceReader(folder);
    return true;
  } catch (const Error& error) {
    observer.warned(fmt::format("{}; the model is written again", error.what()));
    return false;
  }
}

/// Nothing is left to do: the run has made its steps and written its model.
std::optional<TrainResult> finished_result(const RunConfig& config, const Resume& resume, RunObserver& observer) {
  if (!resume.is_finished()) return std::nullopt;
  const std::int64_t step = resume.candidates().front().scalars().step;
  const std::filesystem::path model = model_folder(config);
  if (config.checkpoint.enable && !has_model(model, config, step, observer)) return std::nullopt;
  observer.described(
      fmt::format("this run has made its {}; more are made with a larger training.steps", counted(step, "step")));
  TrainResult result;
  result.last_step.step = step;
  result.checkpoint = resume.candidates().front().reader->folder();
  if (config.checkpoint.enable) result.model_folder = model;
  result.was_finished = true;
  return result;
}

/// A run writes below output.dir alone, which may itself be a link, and deletes only what it may have written.
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
  if (config.checkpoint.enable) require_replaceable(model_folder(config));
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

/// Collective: what was asked of any rank to end the run. `own` is null on ranks that are not asked.
RunRequest agreed_end(Comm& all, const RunRequests* own) {
  double sum = own != nullptr ? summand_of(own->end) : 0;
  all.all_reduce({&sum, DType::float64, {1}}, ReduceOp::sum).wait();
  return highest_request(sum);
}

}  // namespace

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
  const OpenedData opened = open_training(config, placement, observer);
  const DatasetBatches& training = opened.batches;
  std::optional<OpenedData> validation;
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
    if (!config.checkpoint.enable) return;
    make_folder(checkpoint_folder(config));
    require_writable(checkpoint_folder(config));
  });
  store_packing(opened, config, observer);
  if (validation) store_packing(*validation, config, observer);
  TrainResult result;
  result.was_finished = resume.is_finished();
  observer.described(start_line(resume, 0));
  if (!reads_initial && !config.checkpoint.initial_load_path.empty())
    observer.described(fmt::format("checkpoint.initial_load_path = '{}' is not read: the checkpoint has the weights",
                                   config.checkpoint.initial_load_path));
  if (validation) result.validation_unigram_entropy = unigram_entropy(validation->batches.dataset());
  observer.described(description(blueprint, placement));
  if (const std::string how = dispatch_description(config); !how.empty()) observer.described(how);
  observer.described(description(training, config));
  if (const std::string warning = short_data_warning(training, config); !warning.empty()) observer.warned(warning);
  observer.described(memory_description(blueprint.rank(0)));
  if (claim && !claim->is_locked())
    observer.described(
        fmt::format("the file system of '{}' has no locks: other runs are kept away by the time at which "
                    "this one writes to run.lock",
                    config.output.dir));
  if (const std::string note = initial ? initial->note() : ""; !note.empty()) observer.warned(note);
  ProductRequest products =
      product_request(config, resumes ? resume.candidates().front().reader->manifest().products : ProductNames());
  products.is_of_processes = placement.transport == Transport::mpi;
  BackgroundThread background;
  run_ranks(blueprint.mesh(), placement, config.comm.timeout_seconds, [&](Mesh& host) {
    Comm& all = host.comm(step_group);
    if (placement.transport != Transport::thread)
      require_same_run(config, {"data.path", config.data.path, resume.data()}, all);
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
    use_arena(*device, run.memory());
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
                             .validation = validation ? &validation->batches : nullptr,
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

}  // namespace echelon
