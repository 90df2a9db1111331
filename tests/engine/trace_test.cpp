// A traced run: every action once per step, spans that nest, files that a viewer reads, and sums that agree with the
// step's time.
#include "blueprint/small_config.h"
#include "checkpoint/scratch_folder.h"
#include "comm/thread/thread_world.h"
#include "data/indexed_dataset.h"
#include "engine/gather_timeline.h"
#include "engine/rank_run.h"
#include "engine/step_recorder.h"
#include "ops/cpu/cpu_ops.h"
#include "report/operation_table.h"
#include "report/trace_file.h"
#include "train/report_log.h"
#include "train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

namespace echelon {
namespace {

RunConfig traced_layout() {
  RunConfig config = testing::small_config();
  config.parallelism.data_parallel_shard_degree = 2;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.pipeline_parallel_degree = 2;
  return config;
}

class SomeText final : public BatchSource {
 public:
  void read(std::int64_t sequence, std::int64_t seq_len, std::int32_t* tokens, std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < seq_len; ++i)
      tokens[i] = targets[i] = static_cast<std::int32_t>((sequence + i * i) % 32);
  }
};

struct Traced {
  std::vector<StepTrace> steps;
  Program program;
};

/// Two recorded steps and an unrecorded one between them, of every rank.
std::map<int, Traced> record(const RunConfig& config) {
  const Blueprint blueprint(config);
  const SomeText batches;
  std::map<int, Traced> traced;
  std::mutex mutex;
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    StepRecorder recorder(*ops, mesh);
    RankRun run(blueprint, recorder.mesh(), recorder.ops());
    run.step().observe_actions(recorder);
    run.model().initialize(1, recorder.ops());
    for (std::int64_t step = 1; step <= 3; ++step) {
      if (step != 2) recorder.begin_step(step);
      static_cast<void>(
          run.step().run(ProgramKind::training,
                         {.batches = &batches, .first_sequence = step * 100, .adamw = {.lr = 1e-3, .step = step}}));
      if (step != 2) recorder.end_step(1);
    }
    const std::lock_guard lock(mutex);
    traced[mesh.rank()] = {recorder.steps(), run.blueprint().program(ProgramKind::training)};
  });
  return traced;
}

bool is_outer(const Span& span) { return span.kind == SpanKind::action || span.kind == SpanKind::wait; }

TEST(StepRecorder, SeesEveryActionOnceAndEverythingInsideIt) {
  for (const auto& [rank, traced] : record(traced_layout())) {
    ASSERT_EQ(traced.steps.size(), 2U);
    EXPECT_EQ(traced.steps[0].step, 1);
    EXPECT_EQ(traced.steps[1].step, 3);
    for (const StepTrace& step : traced.steps) {
      EXPECT_EQ(step.rank, rank);
      std::vector<int> actions;
      double before = step.start;
      const Span* outer = nullptr;
      std::vector<const Span*> inner;  // since the last outer span
      for (const Span& span : step.spans) {
        ASSERT_LE(span.start, span.end);
        if (!is_outer(span)) {
          ASSERT_GE(span.start, inner.empty() ? before : inner.back()->end) << span.name;
          inner.push_back(&span);
          continue;
        }
        for (const Span* each : inner)
          if (each->action_id >= 0) {
            EXPECT_EQ(each->action_id, span.action_id);
            EXPECT_GE(each->start, span.start);
            EXPECT_LE(each->end, span.end);
          }
        EXPECT_GE(span.start, outer == nullptr ? step.start : outer->end);
        outer = &span;
        before = span.end;
        inner.clear();
        if (span.kind == SpanKind::action) actions.push_back(span.action_id);
      }
      EXPECT_LE(outer->end, step.end);
      std::vector<int> expected(traced.program.size());
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(actions, expected) << "rank " << rank;
    }
  }
}

/// Names and flops of an action's operations.
using Operations = std::vector<std::pair<std::string, std::int64_t>>;

// What a run computes in each action is what the blueprint's trace, which has no clock, says: the uploads of the batch,
// the gradients' factor and the download of the report among it.
TEST(StepRecorder, ComputesWhatTheBlueprintTraced) {
  const RunConfig config = traced_layout();
  const Blueprint blueprint(config);
  for (const auto& [rank, traced] : record(config)) {
    const RankBlueprint planned = blueprint.rank(rank);
    std::map<int, Operations> expected, found;
    for (const Action& action : traced.program)
      for (const OpRecord& record : planned.trace(ProgramKind::training).of(action).operations())
        expected[action.id].emplace_back(name_of(record.kind), record.flops);
    for (const Span& span : traced.steps[1].spans)
      if (span.kind == SpanKind::operation) found[span.action_id].emplace_back(span.name, span.flops);
    EXPECT_EQ(found, expected) << "rank " << rank;
    EXPECT_EQ(expected.at(0).front().first, "upload");
    EXPECT_EQ(expected.at(traced.program.back().id).back().first, "download");
  }
}

TEST(StepRecorder, TimelineCoversWhatWasLeftUnderWay) {
  for (const auto& [rank, traced] : record(traced_layout())) {
    const StepTrace& step = traced.steps[0];
    const Timeline timeline = timeline_of(step, traced.program);
    ASSERT_EQ(timeline.events.size(), traced.program.size());
    for (const Action& action : traced.program) {
      const Event& event = timeline.events[static_cast<std::size_t>(action.id)];
      for (const int before : action.after)
        EXPECT_GE(event.start, timeline.events[static_cast<std::size_t>(before)].end) << to_string(action);
    }
  }
}

/// Experts over two ranks, with a shared one; a microbatch of a rank has more rows than two rounds take.
RunConfig traced_mixture() {
  RunConfig config = testing::small_config();
  config.model = family_defaults(Family::qwen2_moe);
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.head_dim = 8;
  config.model.intermediate_size = 64;
  config.model.vocab_size = 128;
  config.model.max_position_embeddings = 64;
  config.model.mixture.num_experts = 4;
  config.model.mixture.num_experts_per_tok = 2;
  config.model.mixture.moe_intermediate_size = 16;
  config.model.mixture.shared_expert_intermediate_size = 16;
  config.parallelism.data_parallel_shard_degree = config.parallelism.expert_parallel_degree = 2;
  config.parallelism.pipeline_parallel_degree = 2;
  config.moe.dispatch_bound = 0.4;
  return config;
}

// In each pass rows travel there, and back, in several rounds; what has left comes while the rank computes, too.
TEST(StepRecorder, SeesTheExchangeOfExpertsInsidePasses) {
  for (const auto& [rank, traced] : record(traced_mixture())) {
    const Timeline timeline = timeline_of(traced.steps[0], traced.program);
    std::map<int, std::map<std::string_view, int>> counts;
    double before = 0;
    for (const ExchangeEvent& exchange : timeline.exchanges) {
      const Event& pass = timeline.events[static_cast<std::size_t>(exchange.action_id)];
      EXPECT_GE(exchange.start, std::max(pass.start, before));
      EXPECT_LE(exchange.end, pass.end);
      EXPECT_GT(exchange.end, exchange.start);
      before = exchange.end;
      ++counts[exchange.action_id][exchange.name];
    }
    // Each stage has a layer; where its backward pass is divided into units, one of them has the experts.
    std::map<std::pair<ActionKind, int>, int> num_of_pass;
    for (const Action& action : traced.program) {
      if (!is_compute(action.kind)) continue;
      EXPECT_EQ(counts[action.id]["dispatch"] > 0, counts[action.id]["combine"] > 0) << to_string(action);
      num_of_pass[{action.kind, action.microbatch}] += counts[action.id]["combine"];
    }
    for (const auto& [pass, num_rounds] : num_of_pass) EXPECT_GE(num_rounds, 2);

    // A matmul of the shared expert starts while rows are on their way there.
    EXPECT_TRUE(std::ranges::any_of(traced.steps[0].spans, [&](const Span& span) {
      return span.name == "matmul" && std::ranges::any_of(timeline.exchanges, [&](const ExchangeEvent& exchange) {
               return exchange.name == "dispatch" && exchange.start < span.start && span.end < exchange.end;
             });
    }));

    const auto json = nlohmann::json::parse(to_chrome_json(traced.steps, traced.program));
    std::set<int> tids;
    std::size_t num_drawn = 0;
    for (const auto& event : json["traceEvents"]) {
      if (event["ph"] == "M" && event["args"]["name"] == "exchange of experts") tids.insert(event["tid"].get<int>());
      num_drawn +=
          event.contains("cat") && event["cat"] == "exchange" && tids.contains(event["tid"].get<int>()) ? 1 : 0;
    }
    EXPECT_EQ(tids.size(), 1U) << rank;
    EXPECT_EQ(num_drawn, timeline.exchanges.size() + timeline_of(traced.steps[1], traced.program).exchanges.size());
  }
}

// Ranks of a pipeline have different numbers of rounds; rank 0 is told of all.
TEST(StepRecorder, GathersTheExchangesOfAPipeline) {
  const Blueprint blueprint(traced_mixture());
  const auto traced = record(traced_mixture());
  std::mutex mutex;
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const StepTrace& trace = traced.at(mesh.rank()).steps[0];
    const Timeline gathered = gather_timeline(mesh, blueprint, trace, true);
    const std::lock_guard lock(mutex);
    std::size_t at = 0;
    for (int stage = 0; stage < 2; ++stage) {
      Coordinates place = mesh.shape().coordinates_of(mesh.rank());
      place[static_cast<std::size_t>(Axis::pp)] = stage;
      const Traced& of = traced.at(mesh.shape().rank_of(place));
      for (const ExchangeEvent& expected : timeline_of(of.steps[0], of.program).exchanges) {
        ASSERT_LT(at, gathered.exchanges.size());
        const ExchangeEvent& found = gathered.exchanges[at++];
        EXPECT_EQ(found.rank, stage);
        EXPECT_EQ(found.action_id, expected.action_id);
        EXPECT_EQ(found.name, expected.name);
        EXPECT_EQ(found.start, expected.start);
        EXPECT_EQ(found.end, expected.end);
      }
    }
    EXPECT_EQ(at, gathered.exchanges.size());
  });
}

class TracedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    IndexedDatasetWriter writer((scratch_ / "train").string(), TokenType::u16);
    std::vector<std::int32_t> tokens(1000);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 23);
    writer.add_document(tokens);
    writer.publish();
  }
  ScratchFolder scratch_;
};

/// A stage's input is received after the stage before has started to send it, and what a rank does is ordered by its
/// program's edges.
void expect_both_stages(const TraceReport& trace, const RunConfig& config) {
  const Blueprint blueprint(config);
  const std::vector<Program>& programs = blueprint.programs(ProgramKind::training);
  EXPECT_EQ(trace.step, 3);
  std::map<std::pair<int, int>, Event> event_of;
  for (const Event& event : trace.timeline.events) event_of[{event.rank, event.action_id}] = event;
  ASSERT_EQ(event_of.size(), programs[0].size() + programs[1].size());
  std::map<int, double> sent;
  for (const Action& action : programs[0])
    if (action.kind == ActionKind::send_forward) sent[action.microbatch] = event_of[{0, action.id}].start;
  EXPECT_FALSE(sent.empty());
  for (int rank = 0; rank < 2; ++rank) {
    for (const Action& action : programs[static_cast<std::size_t>(rank)]) {
      const Event& event = event_of[{rank, action.id}];
      EXPECT_LE(event.start, event.end);
      for (const int before : action.after)
        EXPECT_GE(event.start, (event_of[{rank, before}].end)) << rank << " " << to_string(action);
      if (action.kind == ActionKind::receive_forward) {
        EXPECT_GE(event.end, sent.at(action.microbatch)) << to_string(action);
      }
    }
  }
}

TEST_F(TracedRun, WritesFilesThatAViewerReads) {
  RunConfig config = traced_layout();
  config.data.path = (scratch_ / "train").string();
  config.output.dir = (scratch_ / "out").string();
  config.checkpoint.enable = false;
  config.training.steps = 4;
  config.metrics.trace = "steps 2-3";
  testing::ReportLog log;
  static_cast<void>(train(config, {.observer = &log}));
  const std::vector<StepReport>& reports = log.steps;
  const std::optional<TraceReport>& trace = log.trace;
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->table.num_steps, 2);
  expect_both_stages(*trace, config);
  const double both = reports[1].step_seconds + reports[2].step_seconds;
  EXPECT_LE(2 * trace->table.step_seconds, both);
  double named = trace->table.unnamed_seconds;
  for (const OperationRow& row : trace->table.rows) named += row.seconds;
  EXPECT_NEAR(named, trace->table.step_seconds, 1e-9);
  EXPECT_TRUE(reports[3].mfu.has_value());  // a traced run knows the peak

  for (int rank = 0; rank < 8; ++rank) {
    const auto json = nlohmann::json::parse(get(trace->folder / fmt::format("rank{}_trace.json", rank)));
    std::map<int, std::vector<std::pair<double, double>>> by_lane;
    int num_steps = 0;
    std::map<std::string, int> open;
    for (const auto& event : json["traceEvents"]) {
      EXPECT_EQ(event["pid"], rank);
      if (event["ph"] == "X")
        by_lane[event["tid"]].emplace_back(event["ts"], event["ts"].get<double>() + event["dur"].get<double>());
      if (event["ph"] == "X" && event["cat"] == "step") ++num_steps;
      if (event["ph"] == "b") ++open[event["id"]];
      if (event["ph"] == "e") --open[event["id"]];
    }
    EXPECT_EQ(num_steps, 2);
    EXPECT_TRUE(std::all_of(open.begin(), open.end(), [](const auto& each) { return each.second == 0; }));
    for (auto& [lane, spans] : by_lane) {  // two spans of a lane are apart, or one lies in the other
      std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
        return a.first < b.first || (a.first == b.first && a.second > b.second);
      });
      constexpr double rounding = 0.01;  // microseconds: the ends are sums
      std::vector<double> ends;
      for (const auto& [start, end] : spans) {
        while (!ends.empty() && ends.back() <= start + rounding) ends.pop_back();
        EXPECT_TRUE(ends.empty() || end <= ends.back() + rounding) << "rank " << rank << " lane " << lane;
        ends.push_back(end);
      }
    }
    EXPECT_TRUE(nlohmann::json::parse(get(trace->folder / fmt::format("rank{}_operations.json", rank)))
                    .contains("named_fraction"));
  }
}

// The pages of a step are there after the first one. What remains: pages of the token file that are met for the first
// time.
TEST_F(TracedRun, StepsAfterTheFirstTouchNoFreshMemory) {
  RunConfig config = testing::small_config();
  config.model.hidden_size = 128;
  config.model.head_dim = 32;
  config.model.intermediate_size = 512;
  config.model.vocab_size = 2048;
  config.training.global_batch_size = 32;  // two microbatches of some MiB
  config.training.micro_batch_size = 16;
  config.data.path = (scratch_ / "train").string();
  config.output.dir = (scratch_ / "out").string();
  config.checkpoint.enable = false;
  config.training.steps = 8;
  for (const std::int64_t degree : {1, 2}) {
    config.parallelism.data_parallel_shard_degree = degree;
    testing::ReportLog log;
    static_cast<void>(train(config, {.observer = &log}));
    std::vector<std::int64_t> faults;
    for (const StepReport& report : log.steps) faults.push_back(report.page_faults);
    faults.erase(faults.begin(), faults.begin() + 2);  // rank 0 may end the first step while another one is in it
    std::sort(faults.begin(), faults.end());
    constexpr std::int64_t bound = 16;
    EXPECT_LE(faults[faults.size() / 2], bound) << ::testing::PrintToString(faults) << " with " << degree
                                                << " ranks";  // a thread may come to its first share late
  }
}

}  // namespace
}  // namespace echelon
