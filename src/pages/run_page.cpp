#include "pages/run_page.h"

#include "base/text/counted.h"
#include "blueprint/padding_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

std::string mesh_text(const RunConfig& config) {
  std::string text;
  const MeshShape mesh = config.mesh_shape();
  const AxisOrder& order = config.parallelism.order;
  for (std::size_t i = order.axes().size(); i-- > 0;) {
    const Axis axis = order.axes()[i];
    if (mesh.degree(axis) > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name_of(axis), mesh.degree(axis));
  }
  return text.empty() ? "one rank" : order == AxisOrder() ? text : fmt::format("{}, order {}", text, name_of(order));
}

std::string schedule_text(const ParallelConfig& p) {
  if (p.pipeline_parallel_degree == 1) return {};
  if (!p.pipeline_parallel_schedule_csv.empty()) return p.pipeline_parallel_schedule_csv;
  return std::string(name_of(p.pipeline_parallel_schedule));
}

std::string readable(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

std::string page_model(const ModelSpec& model) {
  const auto num_parameters = static_cast<double>(model.num_parameters());
  const bool is_large = num_parameters >= 1e9;
  return fmt::format("{} of {:.{}f} {} parameters", name_of(model.family), num_parameters / (is_large ? 1e9 : 1e6),
                     num_parameters >= 1e11 ? 0 : 1, is_large ? "B" : "M");
}

std::string page_title(const RunConfig& config) {
  const int num_ranks = config.mesh_shape().num_ranks();
  return fmt::format("{} on {} {}", page_model(config.model), text_of(HtmlUnit::number, num_ranks),
                     plural(num_ranks, "rank"));
}

std::vector<HtmlFact> page_facts(const RunConfig& config) {
  const TrainingConfig& training = config.training;
  std::vector<HtmlFact> facts = {
      {"model", fmt::format("{}, {} of width {}, vocabulary {}", name_of(config.model.family),
                            counted(config.model.num_hidden_layers, "layer"), config.model.hidden_size,
                            config.model.vocab_size)},
      {"mesh", mesh_text(config)},
      {"schedule", schedule_text(config.parallelism)},
      {"ZeRO", config.parallelism.data_parallel_shard_degree > 1
                   ? fmt::format("level {} over {} ranks", config.parallelism.zero_level,
                                 config.parallelism.data_parallel_shard_degree)
                   : ""},
      {"batch", fmt::format("{} of {} a step", counted(training.global_batch_size, "sequence"),
                            counted(training.seq_len, "token"))},
      {"microbatches",
       fmt::format("{} of {} a rank", config.num_microbatches(), counted(training.micro_batch_size, "sequence"))},
      {"numbers", std::string(name_of(training.dtype))},
      {"optimizer", fmt::format("{}, learning rate {}", name_of(config.optimizer.name), config.optimizer.lr)},
      {"data", config.data.path},
      {"output", config.output.dir}};
  std::erase_if(facts, [](const HtmlFact& fact) { return fact.value.empty(); });
  return facts;
}

std::vector<StageMemory> stage_memory(const Blueprint& blueprint, double limit_bytes) {
  std::vector<StageMemory> stages;
  for (const RankBlueprint& rank : blueprint.pipeline_ranks())
    stages.push_back(
        {most_padded_memory(rank, ProgramKind::training).bytes_at_peak(), rank.arena_bytes(), limit_bytes});
  return stages;
}

HtmlBars page_memory(const std::vector<StageMemory>& stages, const std::string& limit_name) {
  HtmlBars bars = {.title = "Memory",
                   .note =
                       "What a rank of each stage holds at the moment when it holds most. These bytes are planned "
                       "before the run, and exactly they are allocated.",
                   .limit_name = limit_name};
  for (const StageMemory& stage : stages) {
    HtmlBars::Row row = {.label = fmt::format("pipeline rank {}", bars.rows.size()), .limit = stage.limit_bytes};
    std::int64_t held = 0;
    for (const auto& [category, bytes] : stage.bytes_at_peak) {
      row.segments.push_back({readable(name_of(category)), static_cast<double>(bytes)});
      held += bytes;
    }
    row.segments.push_back({"free between buffers", static_cast<double>(stage.arena_bytes - held)});
    bars.rows.push_back(std::move(row));
  }
  return bars;
}

}  // namespace echelon
