#include "verify/setup.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "blueprint/blueprint.h"
#include "data/dataset_batches.h"
#include "data/masked_batches.h"
#include "data/packing/packing_file.h"
#include "engine/types/layout_types.h"
#include "report/system_memory.h"
#include "spec/config/pipeline.h"
#include "verify/reference.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace echelon {
namespace {

/// About size * part / whole, with the same remainder modulo `degree`, so that the layout pads and splits as before.
std::int64_t scaled_like(std::int64_t size, std::int64_t part, std::int64_t whole, std::int64_t degree) {
  const std::int64_t wanted = std::max<std::int64_t>(1, size * part / whole);
  const std::int64_t quotient = std::max<std::int64_t>(1, wanted / degree);
  return quotient * degree + size % degree;
}

void shrink_layers(RunConfig& config, std::int64_t num_layers) {
  const std::int64_t before = config.model.num_hidden_layers;
  require(num_layers <= before, "--layers = {} is more than model.num_hidden_layers = {} (use {})", num_layers, before,
          before);
  // On one pipeline rank stages are no places: fewer of them keep the layout.
  ParallelConfig& layout = config.parallelism;
  if (layout.pipeline_parallel_degree == 1 && num_pipeline_stages(config) > num_layers) {
    layout.virtual_stages = num_layers;
    layout.pipeline_parallel_layout = {};
  }
  const ModelSpec whole = config.model;
  const auto is_possible = [&](std::int64_t layers) {
    config.model = whole;
    config.model.set_num_layers(layers);
    try {
      validate(config);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::int64_t closest_layers = before;
  for (std::int64_t layers = before; layers >= 1; --layers)
    if (std::abs(layers - num_layers) <= std::abs(closest_layers - num_layers) && is_possible(layers))
      closest_layers = layers;
  config.model = whole;
  config.model.set_num_layers(num_layers);
  require(num_layers == closest_layers,
          "--layers = {} cannot be split into the layout's {} pipeline stages, which are kept (use {})", num_layers,
          num_pipeline_stages(config), closest_layers);
}

void shrink_width(RunConfig& config, std::int64_t hidden_size, bool shrinks_vocabulary) {
  ModelSpec& model = config.model;
  const std::int64_t heads = model.num_attention_heads, step = heads * (model.position == PositionKind::rope ? 2 : 1),
                     before = model.hidden_size;
  require(hidden_size <= before, "--hidden = {} is more than model.hidden_size = {} (use {})", hidden_size, before,
          before);
  const std::int64_t near =
      std::clamp((hidden_size + step / 2) / step * step, step, std::max(step, before / step * step));
  require(hidden_size >= step && hidden_size % step == 0,
          "--hidden = {} is not a multiple of {} = {} for each of the {} heads, which are kept (use {})", hidden_size,
          step, step / heads, heads, near);
  const std::int64_t tp = config.parallelism.tensor_parallel_degree;
  model.hidden_size = hidden_size;
  model.set_head_dim(hidden_size / heads);
  model.intermediate_size = scaled_like(model.intermediate_size, hidden_size, before, tp);
  if (MixtureSpec& mixture = model.mixture; mixture.exists()) {
    const std::int64_t of_one = mixture.moe_intermediate_size, shared = mixture.shared_expert_intermediate_size;
    mixture.moe_intermediate_size = scaled_like(of_one, hidden_size, before, tp);
    // config.json may count shared experts.
    mixture.shared_expert_intermediate_size = shared % of_one == 0 ? shared / of_one * mixture.moe_intermediate_size
                                                                   : scaled_like(shared, hidden_size, before, tp);
  }
  if (shrinks_vocabulary) model.vocab_size = scaled_like(model.vocab_size, hidden_size, before, tp);
}

void note_shrinking(const ModelSpec& before, const ModelSpec& after, std::vector<std::string>& notes) {
  std::string line;
  const auto add = [&](std::string_view name, std::int64_t from, std::int64_t to) {
    if (from != to) line += fmt::format("{} {} {} -> {}", line.empty() ? "shrunk:" : ",", name, from, to);
  };
  add("num_hidden_layers", before.num_hidden_layers, after.num_hidden_layers);
  add("hidden_size", before.hidden_size, after.hidden_size);
  add("head_dim", before.head_dim, after.head_dim);
  add("intermediate_size", before.intermediate_size, after.intermediate_size);
  add("moe_intermediate_size", before.mixture.moe_intermediate_size, after.mixture.moe_intermediate_size);
  add("vocab_size", before.vocab_size, after.vocab_size);
  if (!line.empty())
    notes.push_back(line + fmt::format("; kept: {}, {}, the layout", counted(after.num_attention_heads, "head"),
                                       counted(after.num_key_value_heads, "kv head")));
}

void check_request(const RunConfig& config, const VerifyRequest& request) {
  (void)parse_verified_dtype(name_of(request.dtype));
  require(request.num_steps >= 1, "--steps = {} compares nothing (use 1)", request.num_steps);
  require(request.num_steps <= config.training.steps, "--steps = {} is more than training.steps = {} (use {})",
          request.num_steps, config.training.steps, config.training.steps);
}

/// Ranks of one pipeline rank have the size of its first, except for padding.
double arena_bytes(const Blueprint& blueprint) {
  const MeshShape& mesh = blueprint.mesh();
  double bytes = 0;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks())
    bytes += static_cast<double>(mesh.num_ranks()) / mesh.degree(Axis::pp) * static_cast<double>(rank.arena_bytes());
  return bytes;
}

void check_memory(const RunConfig& config, const VerifyRequest& request, std::vector<std::string>& notes) {
  constexpr double mebibyte = 1024.0 * 1024.0;
  const double ranks = arena_bytes(Blueprint(config)) / mebibyte,
               one = arena_bytes(Blueprint(one_rank(config))) / mebibyte;
  // Weights and gradients of each step, and as many values that ranks compare with them.
  const double compared = static_cast<double>(2 * request.num_steps + 3) *
                          static_cast<double>(config.model.num_parameters()) * 8 / mebibyte;
  const double machine = static_cast<double>(system_memory_bytes()) / mebibyte;
  notes.push_back(fmt::format("memory: {:.1f} MiB for {}, {:.1f} MiB for one, {:.1f} MiB of values to compare", ranks,
                              counted(config.mesh_shape().num_ranks(), "rank"), one, compared));
  require(machine == 0 || ranks + one + compared <= machine,
          "verifying needs {:.0f} MiB for {}, one rank and the values to compare, but this machine has {:.0f} "
          "MiB: make the model smaller with --hidden (now {}) or --layers (now {})",
          ranks + one + compared, counted(config.mesh_shape().num_ranks(), "rank"), machine, config.model.hidden_size,
          config.model.num_hidden_layers);
}

/// Packed data is packed for the shrunk sequences, and not stored.
DatasetBatches batches_of(const RunConfig& config) {
  IndexedDataset dataset(config.data.path);
  const BatchOrder order = {.seed = config.data.seed,
                            .order = WindowOrder::shuffled,
                            .vocab_size = config.model.vocab_size,
                            .eod_mask_loss = config.data.eod_mask_loss};
  if (config.data.packing == Packing::stream) return {std::move(dataset), order};
  PackedSequences packed = open_packing(dataset, config.training.seq_len, order.seed).packed;
  return {std::move(dataset), order, std::move(packed)};
}

/// A difference is explained by what each rank was given, which the order of the sequences decides.
void keep_order(VerifySetup& setup) {
  if (!setup.config.data.balance_batch) return;
  setup.config.data.balance_batch = false;
  setup.notes.push_back("data.balance_batch: sequences keep their order here");
}

}  // namespace

DType parse_verified_dtype(std::string_view name) {
  for (const DType dtype : {DType::float64, DType::float32})
    if (name == name_of(dtype)) return dtype;
  throw Error(
      fmt::format("--dtype = '{}' is not one of float64, float32: with fewer bits, rounding cannot be told from a "
                  "fault (use float32)",
                  name));
}

RunConfig shrunk(RunConfig config, const VerifyRequest& request, bool shrinks_vocabulary) {
  if (request.num_layers > 0) shrink_layers(config, request.num_layers);
  if (request.hidden_size > 0) shrink_width(config, request.hidden_size, shrinks_vocabulary);
  validate(config);
  return config;
}

VerifySetup set_up_verification(const RunConfig& config, const VerifyRequest& request) {
  check_request(config, request);
  const bool has_dataset = !config.data.path.empty() && std::filesystem::exists(config.data.path + ".idx");
  VerifySetup setup;
  setup.config = config;
  setup.config.training.dtype = request.dtype;
  setup.config.training.grad_dtype.reset();
  setup.config.training.reduce_dtype.reset();
  setup.config.grad_scaler = {};
  setup.config.optimizer.moments_dtype.reset();
  setup.config.optimizer.store_param_remainders = false;
  setup.config = shrunk(setup.config, request, !has_dataset);
  note_shrinking(config.model, setup.config.model, setup.notes);
  keep_order(setup);
  if (has_dataset) {
    setup.sources.push_back(std::make_unique<DatasetBatches>(batches_of(setup.config)));
    setup.notes.push_back(fmt::format(
        "data: {}, of each sequence up to three quarters of the targets ignored, so that ranks have unequal counts",
        config.data.path));
  } else {
    setup.sources.push_back(std::make_unique<FormulaTokens>(config.data.seed, setup.config.model.vocab_size));
    setup.notes.push_back(
        fmt::format("data: tokens by a formula with data.seed = {} ({}), of each sequence up to three quarters of the "
                    "targets ignored",
                    config.data.seed,
                    config.data.path.empty() ? "data.path is empty" : "there is no " + config.data.path + ".idx"));
  }
  setup.sources.push_back(std::make_unique<UnevenTargets>(*setup.sources.front(), config.data.seed));
  check_memory(setup.config, request, setup.notes);
  rehearse(Blueprint(setup.config));
  return setup;
}

}  // namespace echelon
