#include "pages/train_html.h"

#include "blueprint/blueprint.h"
#include "pages/context_parallel/context_picture.h"
#include "pages/run_page.h"
#include "report/html/html_timeline.h"
#include "report/system_memory.h"
#include "spec/config/config_reader.h"
#include "train/data/attention_shares.h"
#include "train/data/open_data.h"
#include "train/run_placement.h"

namespace echelon {

void TrainHtml::compare(HtmlReport& page) const {
  if (!prediction_) return;
  const TrainPrediction& p = *prediction_;
  if (p.predicted_step_seconds && p.measured_step_seconds)
    page.comparisons.push_back(
        {"Step time, median", HtmlUnit::seconds, *p.predicted_step_seconds, *p.measured_step_seconds});
  if (p.seconds_of_step(true) && p.measured_snapshot_step_seconds)
    page.comparisons.push_back({"Step with a snapshot, median", HtmlUnit::seconds, *p.seconds_of_step(true),
                                *p.measured_snapshot_step_seconds});
  if (p.save && p.save->save_seconds && p.measured_save_seconds)
    page.comparisons.push_back(
        {"Checkpoint, median", HtmlUnit::seconds, *p.save->save_seconds, *p.measured_save_seconds});
  if (p.measured_memory_bytes > 0)
    page.comparisons.push_back({"Memory of rank 0", HtmlUnit::bytes, static_cast<double>(p.predicted_memory_bytes),
                                static_cast<double>(p.measured_memory_bytes)});
  page.notes.push_back(p.predicted_step_seconds ? "The step is predicted from " + p.source + "."
                                                : "The step is " + p.source + ".");
}

namespace {

/// A group of one rank sends nothing, though its actions are started and awaited.
bool is_alone(ActionKind kind, const RunConfig& config) {
  if (bar_kind_of(kind) != BarKind::collective) return false;
  if (kind == ActionKind::report) return config.mesh_shape().num_ranks() == 1;
  const bool is_over_data = kind == ActionKind::count_tokens || kind == ActionKind::reduce_gradients ||
                            kind == ActionKind::reduce_parts || kind == ActionKind::gather_parameters;
  return is_over_data && config.data_parallel_degree() * config.parallelism.context_parallel_degree == 1;
}

Timeline without_lone_collectives(Timeline timeline, const Blueprint& blueprint) {
  const std::vector<Program>& programs = blueprint.programs(ProgramKind::training);
  std::erase_if(timeline.events, [&](const Event& event) {
    const Program& program = programs[static_cast<std::size_t>(event.rank)];
    return is_alone(program[static_cast<std::size_t>(event.action_id)].kind, blueprint.config());
  });
  return timeline;
}

DrawnSequence first_sequence(const RunConfig& config) {
  DrawnSequence drawn;
  if (config.parallelism.context_parallel_degree == 1 || !config.data.reset_attention_mask) return drawn;
  try {
    const DatasetBatches data = open_documents(config);
    documents_of(data, config.training.seq_len)(0, drawn.documents);
    drawn.note = "Of the first sequence of the data.";
  } catch (const std::exception& error) {
    drawn = {.documents = {},
             .note = fmt::format("The data cannot be read again ({}): of one document.", error.what())};
  }
  return drawn;
}

}  // namespace

void TrainHtml::write(const std::string& ending) const {
  const Blueprint blueprint(config_);
  const bool is_gpu = device_memory_bytes_ > 0;
  const auto machine_bytes = static_cast<double>(is_gpu ? device_memory_bytes_ : system_memory_bytes());
  const int num_sharing = is_gpu ? 1 : placement_of(config_).num_ranks_on_host;
  HtmlReport page;
  page.title = "Training " + page_title(config_);
  page.summary = ending;
  const std::string limit_name =
      is_gpu             ? "the memory of the GPU"
      : num_sharing == 1 ? "this machine's memory"
                         : fmt::format("a rank's part of this machine's {}", text_of(HtmlUnit::bytes, machine_bytes));
  page.bars.push_back(page_memory(stage_memory(blueprint, machine_bytes / num_sharing), limit_name));
  history_.fill(page);
  compare(page);
  const std::vector<Program>& programs = blueprint.programs(ProgramKind::training);
  if (prediction_ && prediction_->predicted_step_seconds)
    page.timelines.push_back(html_timeline(
        "A step, predicted", without_lone_collectives(prediction_->predicted_timeline, blueprint), programs));
  if (trace_) {
    page.timelines.push_back(html_timeline(fmt::format("Step {}, measured", trace_->step),
                                           without_lone_collectives(trace_->timeline, blueprint), programs));
  } else {
    page.notes.push_back(
        "Without metrics.trace no step was recorded; --metrics.trace='step 3' shows the pipeline's measured timeline "
        "here.");
  }
  page.facts = page_facts(config_);
  add_context_section(page, blueprint, first_sequence(config_));
  page.notes.insert(page.notes.end(), notes_.begin(), notes_.end());
  page.config = to_toml(config_);
  file_.write(page);
}

}  // namespace echelon
