#include "resume/small_run.h"

#include "blueprint/small_config.h"
#include "checkpoint/state/step_folders.h"
#include "data/indexed_dataset.h"
#include "report/metrics_history.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace echelon::testing {

StateValues read_state(const std::filesystem::path& folder) {
  const StateReader reader(folder);
  StateValues values;
  for (const auto& [state, dtype] : reader.manifest().states)
    for (const Manifest::Parameter& parameter : reader.manifest().parameters) {
      if (!parameter.has(state)) continue;
      std::vector<double>& tensor = values[state + "/" + parameter.name];
      tensor.resize(static_cast<std::size_t>(parameter.sizes.num_elements()));
      reader.read({parameter.name, state, DType::float64, TensorSlice(parameter.sizes)},
                  reinterpret_cast<std::byte*>(tensor.data()));
    }
  return values;
}

double worst_difference(const StateValues& a, const StateValues& b, double floor) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (const auto& [name, expected] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.size() != expected.size()) return INFINITY;
    double largest = floor, error = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      const double difference = std::abs(found->second[i] - expected[i]);
      if (!(difference <= error)) error = difference;  // a NaN counts as different
    }
    if (!(error / largest <= worst)) worst = error / largest;
  }
  return worst;
}

Steps steps_of(const ReportLog& log) {
  Steps steps;
  for (const StepReport& report : log.steps) {
    steps.losses[report.step] = report.loss;
    steps.norms[report.step] = report.grad_norm;
  }
  return steps;
}

Steps steps_of_metrics(const std::filesystem::path& metrics) {
  Steps steps;
  for (const MetricsHistory::Line& line : read_metrics(metrics).lines) {
    if (line.is_evaluation) continue;
    steps.losses[line.step] = line.loss;
    steps.norms[line.step] = nlohmann::json::parse(line.text)["grad_norm"];
  }
  return steps;
}

Steps after(std::int64_t step, const Steps& steps) {
  Steps rest;
  for (const auto& [number, loss] : steps.losses)
    if (number > step) rest.losses[number] = loss;
  for (const auto& [number, norm] : steps.norms)
    if (number > step) rest.norms[number] = norm;
  return rest;
}

void SmallRun::SetUp() { write_data("data", 1000); }

void SmallRun::write_data(const std::string& name, std::int32_t num_tokens) const {
  IndexedDatasetWriter writer((scratch_ / name).string(), TokenType::u16);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < num_tokens; ++i) tokens.push_back((i * i + i / 7) % 125);
  writer.add_document(tokens);
  writer.publish();
}

RunConfig SmallRun::config(const std::string& folder) const {
  RunConfig config = small_config();
  config.model.num_key_value_heads = 2;
  config.model.vocab_size = 125;
  config.model.tie_word_embeddings = true;
  config.model.initializer_range = 0.2;
  config.data.path = (scratch_ / "data").string();
  config.output.dir = output(folder).string();
  config.training.steps = 8;
  config.training.global_batch_size = 12;
  config.training.micro_batch_size = 1;
  config.training.dtype = DType::float64;
  config.lr_scheduler.warmup_steps = 2;
  config.checkpoint.interval = 3;
  config.checkpoint.keep_latest_k = 0;
  return config;
}

void SmallRun::use_experts(RunConfig& config, Family family) {
  const ModelSpec dense = config.model;
  config.model = family_defaults(family);
  config.model.mixture.num_experts = 6;
  config.model.intermediate_size = 12;
  config.model.mixture.moe_intermediate_size = config.model.mixture.shared_expert_intermediate_size = 12;
  config.model.num_key_value_heads = dense.num_key_value_heads;
  config.model.max_position_embeddings = dense.max_position_embeddings;
  config.model.hidden_size = dense.hidden_size;
  config.model.num_hidden_layers = 3;
  config.model.num_attention_heads = dense.num_attention_heads;
  config.model.head_dim = dense.head_dim;
  config.model.vocab_size = dense.vocab_size;
  config.model.initializer_range = dense.initializer_range;
  if (family != Family::deepseek_v3) return;
  config.model.mixture.n_group = 3;
  config.model.mixture.topk_group = 2;
  config.model.mixture.first_k_dense_replace = 1;
  config.model.num_key_value_heads = config.model.num_attention_heads;
  config.model.head_dim = 6;
  config.model.kv_lora_rank = 7;
  config.model.q_lora_rank = 5;
  config.model.qk_rope_head_dim = 4;
  config.model.v_head_dim = 3;
}

std::filesystem::path SmallRun::checkpoint(const std::string& folder, std::int64_t step) const {
  return step_folder(output(folder) / "checkpoint", step);
}

TrainResult SmallRun::run(const RunConfig& config, ReportLog& log, std::int64_t last_step) {
  RunRequests requests;
  if (last_step == 1) requests.end = RunRequest::interrupt;
  log.after_step = [&](const StepReport& report) {
    if (report.step + 1 == last_step) requests.end = RunRequest::interrupt;
  };
  return train(config, {.observer = &log, .requests = &requests});
}

Steps SmallRun::run(const RunConfig& config, std::int64_t last_step) {
  ReportLog log;
  (void)run(config, log, last_step);
  return steps_of(log);
}

}  // namespace echelon::testing
