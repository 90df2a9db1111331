#include "interop/fixture.h"

#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/safetensors.h"
#include "comm/thread/thread_world.h"
#include "data/packing/packing_file.h"
#include "engine/layout_run.h"
#include "engine/rank_run.h"
#include "nn/decoder/head.h"
#include "ops/cpu/cpu_ops.h"
#include "scratch_folder.h"
#include "spec/groups.h"

#include <algorithm>
#include <array>
#include <fstream>

namespace echelon::testing {
namespace {

constexpr std::int64_t num_sequences = 2, seq_len = 16;

template <class T>
std::vector<double> numbers(std::ifstream& file, const FileTensor& tensor) {
  std::vector<T> raw(static_cast<std::size_t>(tensor.num_bytes) / sizeof(T));
  file.seekg(tensor.first_byte);
  file.read(reinterpret_cast<char*>(raw.data()), tensor.num_bytes);
  return {raw.begin(), raw.end()};
}

/// Of two sequences.
std::vector<double> logits_of(RankRun& run, Mesh& mesh, Ops& ops, std::int64_t first_sequence) {
  const ModelPart& part = run.model().part();
  Stage& stage = *run.model().part().stages.front().stage;
  const Arena arena(std::int64_t{8} << 20);
  Stack workspace = arena.region(0, std::int64_t{4} << 20),
        buffers = arena.region(std::int64_t{4} << 20, std::int64_t{2} << 20);
  Stash stash(arena.region(std::int64_t{6} << 20, std::int64_t{1} << 20),
              arena.region(std::int64_t{7} << 20, std::int64_t{1} << 20));
  std::vector<std::int32_t> tokens(num_sequences * seq_len), targets(tokens.size());
  for (std::int64_t n = 0; n < num_sequences; ++n)
    FixtureText().read(first_sequence + n, seq_len, tokens.data() + n * seq_len, targets.data() + n * seq_len);
  const Tensor device_tokens = buffers.take(DType::int32, {num_sequences * seq_len});
  ops.upload(device_tokens, tokens.data());
  std::vector<std::int32_t> begins;  // of each window
  for (const std::int64_t window : part.options.windows)
    for (std::int64_t i = 0; i < num_sequences * seq_len; ++i)
      begins.push_back(
          static_cast<std::int32_t>(window == 0 ? 0 : std::max<std::int64_t>(0, i % seq_len - window + 1)));
  Tensor key_begin;
  if (!begins.empty()) {
    key_begin = buffers.take(DType::int32, {std::ssize(begins)});
    ops.upload(key_begin, begins.data());
  }
  Context context = {
      ops, mesh, workspace, {.tokens = device_tokens, .targets = {}, .key_begin = key_begin, .loss_sum = {}}};
  if (const Sizes sizes = part.router_bias_sizes(); sizes.num_dims() > 0)
    context.microbatch.router.bias =
        run.memory().tensor(ProgramKind::training, {BufferRole::router_bias}, DType::float32, sizes);
  Tensor x;
  for (int unit = 0; unit + 1 < stage.num_units(); ++unit) {
    const Tensor y = buffers.take(part.options.dtype, part.boundary_sizes());
    stage.unit(unit).forward(context, x, y, stash);
    x = y;
  }
  const Tensor logits =
      buffers.take(accumulate_dtype(part.options.dtype), {num_sequences * seq_len, stage.head().num_columns()});
  stage.head().logits(context, x, logits);
  if (logits.dtype == DType::float64) return {logits.as<double>(), logits.as<double>() + logits.num_elements()};
  return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
}

}  // namespace

void FixtureText::read(std::int64_t sequence, std::int64_t length, std::int32_t* tokens, std::int32_t* targets) const {
  const std::int64_t n = sequence;
  const auto token = [&](std::int64_t i) {
    return static_cast<std::int32_t>((7 * i * i + 3 * n * i + 11 * n + 5) % 41);
  };
  for (std::int64_t i = 0; i < length; ++i) {
    tokens[i] = token(i);
    targets[i] = (n + i) % 5 == 0 ? ignored_target : token(i + 1);
  }
}

void FixtureText::read_document_starts(std::int64_t sequence, std::int64_t length, std::int32_t* starts) const {
  std::int32_t start = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    if ((i + 3 * sequence) % 7 == 5) start = static_cast<std::int32_t>(i);
    starts[i] = start;
  }
}

DatasetBatches documents_of_text(const DataConfig& data) {
  const bool is_packed = data.packing == Packing::best_fit;
  const std::string prefix = scratch_folder() + (is_packed ? "packed_text" : "text");
  IndexedDatasetWriter writer(prefix, TokenType::i32);
  std::vector<std::uint8_t> is_trained = {1};  // a target is the next token of the stream
  for (std::int64_t n = 0; n < num_sequences; ++n) {
    std::vector<std::int32_t> tokens(seq_len), targets(seq_len), starts(seq_len), document;
    FixtureText().read(n, seq_len, tokens.data(), targets.data());
    FixtureText().read_document_starts(n, seq_len, starts.data());
    for (std::size_t i = 0; i < seq_len; ++i) {
      document.push_back(tokens[i]);
      is_trained.push_back(targets[i] == ignored_target ? 0 : 1);
      if (i + 1 < seq_len && starts[i + 1] == starts[i]) continue;
      writer.add_document(document);
      document.clear();
    }
  }
  if (is_packed)
    is_trained.pop_back();
  else
    writer.add_document(std::vector<std::int32_t>{0});  // without it the last token would be a target alone
  writer.publish();
  write_loss_mask(prefix, is_trained);
  IndexedDataset dataset(prefix);
  std::optional<PackedSequences> packed;
  if (is_packed) packed = open_packing(dataset, seq_len, 0).packed;
  return {std::move(dataset), {.order = WindowOrder::in_order, .eod_mask_loss = data.eod_mask_loss}, std::move(packed)};
}

std::map<std::string, std::vector<double>> read_all(const std::filesystem::path& safetensors) {
  std::map<std::string, std::vector<double>> tensors;
  std::ifstream file(safetensors, std::ios::binary);
  for (const auto& [name, tensor] : read_safetensors_header(safetensors)) {
    if (tensor.format == "F64") tensors[name] = numbers<double>(file, tensor);
    if (tensor.format == "F32") tensors[name] = numbers<float>(file, tensor);
    if (tensor.format == "I32") tensors[name] = numbers<std::int32_t>(file, tensor);
  }
  return tensors;
}

Fixture::Fixture(const std::string& name, const std::string& parent)
    : folder(std::filesystem::path(ECHELON_SOURCE_DIR) / "tests/interop" / parent / name),
      model(read_model_spec(folder)),
      expected(read_all(folder / "expected.safetensors")) {}

RunConfig Fixture::config(DType dtype) const {
  RunConfig config;
  config.model = model;
  config.training.steps = 1;
  config.training.seq_len = seq_len;
  config.training.global_batch_size = num_sequences;
  config.training.micro_batch_size = num_sequences;
  config.training.dtype = dtype;
  config.training.max_norm = 0;
  return config;
}

namespace {

void write_adapters(const RunConfig& config, const Fixture& fixture, const std::filesystem::path& folder,
                    const RankView& rank) {
  ModelWriter writer({.folder = folder,
                      .model = config.model,
                      .dtype = config.training.dtype,
                      .source = fixture.folder,
                      .adapter = AdapterConfig{.lora = config.lora, .base = {}, .base_digest = {}}});
  Comm& world = rank.mesh.comm(world_group);
  if (rank.mesh.rank() == 0) writer.begin();
  world.barrier().wait();
  rank.run.model().save(writer, rank.ops, rank.mesh);
  world.barrier().wait();
  if (rank.mesh.rank() == 0) writer.finish();
}

}  // namespace

void run(const Fixture& fixture, const RunConfig& config, const std::vector<double>& learning_rates, Outcome& outcome,
         const BatchSource& text) {
  const Blueprint blueprint(config);
  const ModelReader reader(fixture.folder);
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun rank(blueprint, mesh, *ops);
    rank.model().load(reader, *ops);
    if (outcome.adapters != nullptr) rank.model().load_adapters(*outcome.adapters, *ops);
    if (mesh.shape().num_ranks() == 1 && !config.data.reset_position_ids)
      outcome.logits = logits_of(rank, mesh, *ops, 0);
    rank.step().observe_gradients(
        [&](RankModel& model, double factor) { outcome.gradients.add_gradients(model, *ops, factor); });
    for (std::size_t step = 1; step <= learning_rates.size(); ++step) {
      const AdamWOptions adamw = {.lr = learning_rates[step - 1],
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .step = static_cast<std::int64_t>(step)};
      const StepResult result =
          rank.step().run(ProgramKind::training,
                          {.batches = &text,
                           .first_sequence = (static_cast<std::int64_t>(step) - 1) * config.training.global_batch_size,
                           .adamw = adamw,
                           .max_norm = config.training.max_norm});
      rank.step().observe_gradients({});
      if (mesh.rank() != 0) continue;
      outcome.losses.push_back(result.loss);
      outcome.grad_norms.push_back(result.grad_norm);
      const std::vector<double>& sums = rank.step().router_sums();
      const RouterSums columns = {config.model.mixture.num_experts};
      std::array<double, num_router_losses> losses{};
      for (auto row = sums.begin(); row != sums.end(); row += columns.num_columns()) {
        outcome.loads.insert(outcome.loads.end(), row, row + columns.num_experts);
        for (std::size_t i = 0; i < losses.size(); ++i)
          losses[i] += row[columns.losses() + static_cast<std::int64_t>(i)];
      }
      outcome.bias.assign(rank.step().router_bias().begin(), rank.step().router_bias().end());
      outcome.router_losses.insert(outcome.router_losses.end(), losses.begin(), losses.end());
    }
    outcome.weights.add_values(rank.model(), *ops);
    if (!outcome.adapters_folder.empty()) write_adapters(config, fixture, outcome.adapters_folder, {rank, mesh, *ops});
  });
}

std::vector<double> logits_of_batches(const Fixture& fixture, const RunConfig& config, std::int64_t num_batches) {
  const Blueprint blueprint(config);
  const ModelReader reader(fixture.folder);
  std::vector<double> all;
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun rank(blueprint, mesh, *ops);
    rank.model().load(reader, *ops);
    for (std::int64_t batch = 0; batch < num_batches; ++batch) {
      const std::vector<double> logits = logits_of(rank, mesh, *ops, batch * num_sequences);
      all.insert(all.end(), logits.begin(), logits.end());
    }
  });
  return all;
}

void rewrite(const Fixture& fixture, const RunConfig& config, const std::filesystem::path& folder) {
  const Blueprint blueprint(config);
  const ModelReader reader(fixture.folder);
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun rank(blueprint, mesh, *ops);
    rank.model().load(reader, *ops);
    const bool is_wrapped = HuggingFaceReader(fixture.folder).num_other_tensors() > 0;  // else all is written anew
    ModelWriter writer({.folder = folder,
                        .model = config.model,
                        .dtype = DType::float32,
                        .tokenizer = {},
                        .source = is_wrapped ? fixture.folder : std::filesystem::path()});
    Comm& world = mesh.comm(world_group);
    if (mesh.rank() == 0) writer.begin();
    world.barrier().wait();
    rank.model().save(writer, *ops, mesh);
    world.barrier().wait();
    if (mesh.rank() == 0) writer.finish();
  });
}

void write_logits(const Fixture& fixture, const std::vector<double>& logits, const std::filesystem::path& path) {
  const std::vector<TensorPlan> tensors = {
      {"tokens", DType::int32, {num_sequences, seq_len}},
      {"logits", DType::float64, {num_sequences, seq_len, fixture.model.vocab_size}}};
  const FilePlan file = plan_safetensors(tensors, std::int64_t{1} << 30).files.front();
  std::vector<std::int32_t> tokens;
  for (const double token : fixture.expected.at("tokens")) tokens.push_back(static_cast<std::int32_t>(token));
  std::ofstream out(path, std::ios::binary);
  out << file.header;
  const auto put = [&](const std::string& name, const void* data) {
    out.seekp(file.tensors.at(name).first_byte);
    out.write(static_cast<const char*>(data), file.tensors.at(name).num_bytes);
  };
  put("tokens", tokens.data());
  put("logits", logits.data());
}

}  // namespace echelon::testing
