// A page with all kinds of content.
#pragma once

#include "report/html/html_report.h"
#include "schedule/lowering/lower.h"
#include "schedule/schedule.h"

#include <cmath>

namespace echelon::example_page {

struct Played {
  std::vector<Program> programs;
  Timeline timeline;
};

/// A lowered zero-bubble step: passes of 0.1 s, an update of 0.3 s, everything else 0.01 s.
inline Played played(int num_ranks, int num_microbatches) {
  Played step;
  const LoweringOptions options = {.stages = {static_cast<std::size_t>(num_ranks),
                                              StageShape{.num_units = 1, .unit_sums_replicas = {false, false}}}};
  step.programs = lower(zb_h1_schedule(num_ranks, num_microbatches), options);
  step.timeline = simulate_programs(step.programs, [](int, const Action& action) {
    return action.kind == ActionKind::update ? 0.3 : is_compute(action.kind) ? 0.1 : 0.01;
  });
  return step;
}

inline std::vector<HtmlCurve> curves() {
  HtmlCurve::Series training = {.name = "training", .x = {}, .y = {}},
                    validation = {.name = "validation", .x = {}, .y = {}};
  for (int step = 1; step <= 3000; ++step) {
    training.x.push_back(step);
    training.y.push_back(3 + 5 * std::exp(-step / 300.0) + 0.15 * std::sin(step * 12.9898));
    if (step % 300 == 0) validation.x.push_back(step), validation.y.push_back(3.1 + 5 * std::exp(-step / 300.0));
  }
  return {{.title = "Loss, nats per token", .series = {training, validation}},
          {.title = "Efficiency",
           .x_name = "GPUs",
           .unit = HtmlUnit::fraction,
           .series = {{"efficiency", {1, 8, 64, 512}, {1, 0.97, 0.9, 0.74}}},
           .is_log_x = true}};
}

inline HtmlBars memory() {
  HtmlBars bars = {.title = "Memory",
                   .note = "Of each stage's ranks, at the moment when most is held.",
                   .rows = {},
                   .limit_name = "the GPU's memory"};
  for (int stage = 0; stage < 4; ++stage) {
    const std::vector<HtmlBars::Segment> segments = {{"parameters", 12e9},
                                                     {"gradients", 12e9},
                                                     {"moments", 9e9},
                                                     {"activations", 18e9 - 4e9 * stage},
                                                     {"workspace", 2e9}};
    bars.rows.push_back({.label = "stage " + std::to_string(stage), .segments = segments, .limit = 80e9});
  }
  return bars;
}

inline HtmlReport page() {
  HtmlReport report;
  report.title = "Llama of 70 B parameters on 1,024 GPUs";
  report.summary =
      "Four pipeline stages of eight tensor-parallel GPUs, ZB-H1 with eight microbatches. Predicted from the run's "
      "blueprint.";
  report.tiles = {{"Step time", "4.21 s", "8 microbatches"},
                  {"MFU", "47.2 %", "HFU 51.0 %"},
                  {"Memory", "61.3 GiB", "of 80 GiB a GPU"},
                  {"Bubble", "9.1 %", ""}};
  report.tables = {{.title = "Plans",
                    .note = "The best of 1,234 legal layouts.",
                    .columns = {{"#", true}, {"layout"}, {"step", true}, {"memory", true}, {"MFU", true}},
                    .rows = {{{"1", "tp 8, pp 8, dp 16, ZB-H1, ZeRO-1", "4.21 s", "61.3 GiB", "47.2 %"},
                              "Tensor parallelism stays inside of a node.",
                              true},
                             {{"2", "tp 8, pp 4, dp 32, 1F1B, ZeRO-1", "4.33 s", "74.0 GiB", "45.9 %"},
                              "2.9 % slower: gradients cross the slow network.",
                              false}}}};
  report.curves = curves();
  report.comparisons = {{"Step time", HtmlUnit::seconds, 4.21, 4.35},
                        {"Memory of rank 0", HtmlUnit::bytes, 65e9, 66e9}};
  const Played step = played(4, 8);
  report.timelines = {html_timeline("Predicted", step.timeline, step.programs)};
  report.bars = {memory(),
                 {.title = "Traffic",
                  .note = "Bytes that a rank sends in a step.",
                  .rows = {{"stage 0", {{"tp", 3e9}, {"pp", 1e8}, {"dp_shard", 2e9}}, 0}},
                  .limit_name = {}}};
  report.facts = {{"model", "llama, 70 B parameters"}, {"mesh", "pp 8, dp 16, tp 8"}, {"schedule", "ZB-H1"}};
  report.notes = {"Overlap is granted only where the engine overlaps."};
  return report;
}

}  // namespace echelon::example_page
