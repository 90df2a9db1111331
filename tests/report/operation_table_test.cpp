// The table of a step's time compared with sums made by hand.
#include "report/operation_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

Span span(SpanKind kind, std::string_view name, int action_id, double start, double end) {
  return {
      .kind = kind, .name = name, .action_id = action_id, .start = start, .end = end, .dtype = "float32", .group = {}};
}

/// load_batch with an upload in it, a forward with two matmuls and a gap, and a wait.
StepTrace trace() {
  StepTrace trace{.step = 7, .rank = 0, .start = 10, .end = 20, .spans = {}};
  trace.spans.push_back(span(SpanKind::operation, "upload", 0, 10.5, 11));
  trace.spans.back().bytes = 100;
  trace.spans.push_back(span(SpanKind::action, "load_batch", 0, 10, 12));
  for (const double start : {12.0, 14.0}) {
    trace.spans.push_back(span(SpanKind::operation, "matmul", 1, start, start + 2));
    trace.spans.back().flops = start < 13 ? 3000 : 1000;
    trace.spans.back().bytes = start < 13 ? 50 : 400;
  }
  trace.spans.push_back(span(SpanKind::action, "forward", 1, 12, 17));
  trace.spans.push_back(span(SpanKind::communication, "all_reduce wait", 1, 17, 19.5));
  trace.spans.push_back(span(SpanKind::wait, "forward", 1, 17, 19.5));
  return trace;
}

const Program program = {{.kind = ActionKind::load_batch, .id = 0}, {.kind = ActionKind::forward, .id = 1}};

TEST(OperationTable, SumsByKindAndNamesTheRest) {
  ComputeRates rates;
  rates.float32_flops = 2000;
  rates.copy_bandwidth = 200;
  const OperationTable table = operation_table({trace(), trace()}, program, rates);
  EXPECT_EQ(table.num_steps, 2);
  EXPECT_DOUBLE_EQ(table.step_seconds, 10);
  ASSERT_EQ(table.rows.size(), 4U);
  const OperationRow& matmul = table.rows[0];
  EXPECT_EQ(matmul.name, "matmul");
  EXPECT_DOUBLE_EQ(matmul.calls, 2);
  EXPECT_DOUBLE_EQ(matmul.seconds, 4);
  EXPECT_DOUBLE_EQ(*matmul.floor_seconds, 3000.0 / 2000 + 400.0 / 200);  // one is bound by computing, one by memory
  EXPECT_EQ(table.rows[1].name, "all_reduce wait");
  EXPECT_FALSE(table.rows[1].floor_seconds.has_value());
  EXPECT_EQ(table.rows[2].name, "load_batch");
  EXPECT_DOUBLE_EQ(table.rows[2].seconds, 1.5);  // without the upload in it
  EXPECT_DOUBLE_EQ(table.floor_seconds(), 3.5 + 0.5);
  EXPECT_DOUBLE_EQ(table.unnamed_seconds, 1.0 + 0.5);  // of forward, and the end of the step
  EXPECT_DOUBLE_EQ(table.named_fraction(), 0.85);
}

// A plan counts the pairs of whole sequences.
TEST(OperationTable, AttentionCountsWhatDocumentsLeave) {
  ComputeRates rates;
  rates.float32_flops = 2000;
  StepTrace step = trace();
  step.attention_share = 0.25;
  step.spans[3].name = "attention";  // 1000 flops
  const OperationTable table = operation_table({step}, program, rates);
  const auto row = [&](std::string_view name) {
    return *std::ranges::find(table.rows, name, [](const OperationRow& each) { return std::string_view(each.name); });
  };
  EXPECT_DOUBLE_EQ(row("attention").flops, 250);
  EXPECT_DOUBLE_EQ(row("attention").multiply_add_seconds, 250.0 / 2000);
  EXPECT_DOUBLE_EQ(row("matmul").flops, 3000);
}

TEST(OperationTable, AsTextAndAsJson) {
  ComputeRates rates;
  rates.float32_flops = 2000;
  rates.read_bandwidth = 200;
  const OperationTable table = operation_table({trace()}, program, rates);
  EXPECT_THAT(to_text(table),
              testing::HasSubstr(
                  "step 10000.000 ms (mean of 1), floor 4000.000 ms = 40.0 % of it; 85.0 % of the step is named"));
  const auto json = nlohmann::json::parse(to_json(table));
  EXPECT_EQ(json["rows"][0]["name"], "matmul");
  EXPECT_EQ(json["rows"][0]["flops"], 4000);
  EXPECT_TRUE(json["rows"][1]["floor_seconds"].is_null());
  EXPECT_DOUBLE_EQ(json["unnamed_seconds"], 1.5);
}

// The step takes 10 s: 4000 flops in the matmuls' 4 s, and 550 bytes.
TEST(OperationTable, ARateThatIsTooLowIsAnErrorOfTheProbe) {
  const auto errors = [](double flops_per_second, double bytes_per_second) {
    ComputeRates rates;
    rates.float32_flops = flops_per_second;
    rates.copy_bandwidth = bytes_per_second;
    const OperationTable table = operation_table({trace()}, program, rates);
    const auto json = nlohmann::json::parse(to_json(table))["probe_errors"];
    EXPECT_EQ(json, nlohmann::json(probe_errors(table)));
    return probe_errors(table);
  };
  using testing::ElementsAre;
  using testing::HasSubstr;
  EXPECT_THAT(errors(1000, 100), testing::IsEmpty());
  EXPECT_THAT(errors(900, 100), ElementsAre(HasSubstr("the floor of matmul is 4444.444 ms, but it takes 4000.000 ms")));
  EXPECT_THAT(errors(300, 100), ElementsAre(HasSubstr("the floor of matmul"), HasSubstr("the floor of the step")));
  EXPECT_THAT(errors(1000, 20), ElementsAre(HasSubstr("operands come from caches")));
}

// bfloat16 is compared with the fastest multiplication of the CPU.
TEST(ComputeRates, PeakOfAFormat) {
  ComputeRates rates;
  EXPECT_FALSE(rates.peak_flops("float32").has_value());
  rates.float32_flops = 100;
  EXPECT_EQ(rates.peak_flops("bfloat16"), 100);
  rates.bfloat16_flops = 200;
  EXPECT_EQ(rates.peak_flops("bfloat16"), 200);
  EXPECT_EQ((rates * 0.5).peak_flops("float32"), 50);
  EXPECT_FALSE(rates.peak_flops("float64").has_value());
}

}  // namespace
}  // namespace echelon
