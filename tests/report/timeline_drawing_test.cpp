// Drawings of a step with lanes: their content, read back.
#include "report/html/timeline_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using testing::HasSubstr;

struct Example {
  Program program = {{.kind = ActionKind::forward, .stage = 0, .microbatch = 2, .id = 0},
                     {.kind = ActionKind::send_forward, .stage = 0, .microbatch = 2, .id = 1, .after = {0}},
                     {.kind = ActionKind::update, .stage = 0, .unit = 1, .id = 2}};
  std::vector<DrawnRank> ranks = {
      {"stage 0", &program, {0, 2, 0}, {"compute", "collectives", "to rank 1"}, {0.125, 0, 0}}};
  Timeline timeline = {
      {{0, 0, Lane::compute, 0, 0.5}, {0, 1, Lane::transfer, 0.5, 0.75}, {0, 2, Lane::compute, 0.5, 1}}};
};

TEST(TimelineDrawing, TheTraceHasAThreadPerLaneAndMicroseconds) {
  const Example example;
  const nlohmann::json trace = nlohmann::json::parse(to_chrome_json(example.ranks, example.timeline));
  std::map<std::string, nlohmann::json> events;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") events[event["cat"]] = event;
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events["forward"]["name"], "forward");
  EXPECT_EQ(events["forward"]["args"]["microbatch"], 2);
  EXPECT_EQ(events["forward"]["tid"], 0);
  EXPECT_EQ(events["send_forward"]["tid"], 2);
  EXPECT_DOUBLE_EQ(events["send_forward"]["ts"], 5e5);
  EXPECT_DOUBLE_EQ(events["send_forward"]["dur"], 2.5e5);
  EXPECT_EQ(events["update"]["args"]["unit"], 1);
  EXPECT_DOUBLE_EQ(events["forward"]["args"]["layers_send_us"], 1.25e5);
  EXPECT_FALSE(events["update"]["args"].contains("layers_send_us"));
  EXPECT_EQ(trace["traceEvents"][3]["args"]["name"], "to rank 1");
}

// What layers send is next to what they compute, in a lane of its own: here in the second half of the forward pass.
TEST(TimelineDrawing, WhatLayersSendHasALaneNextToCompute) {
  Example example;
  example.ranks[0].layer_messages = {{{"all_to_all over dp_shard", 0.5, 1}}, {}, {}};
  const nlohmann::json trace = nlohmann::json::parse(to_chrome_json(example.ranks, example.timeline));
  std::vector<nlohmann::json> sent;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "inside layers") sent.push_back(event);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0]["name"], "all_to_all over dp_shard");
  EXPECT_EQ(sent[0]["tid"], 3);
  EXPECT_DOUBLE_EQ(sent[0]["ts"], 2.5e5);
  EXPECT_DOUBLE_EQ(sent[0]["dur"], 2.5e5);
  EXPECT_EQ(trace["traceEvents"][4]["args"]["name"], "inside layers");
  EXPECT_THAT(to_svg(example.ranks, example.timeline), HasSubstr("<title>all_to_all over dp_shard</title>"));
}

// Rows of experts have a lane of their own, between compute and what else layers send.
TEST(TimelineDrawing, TheExchangeOfExpertsHasALaneNextToCompute) {
  Example example;
  example.ranks[0].layer_messages = {{{"all_gather over dp_shard", 0, 0.25}}, {}, {}};
  const std::string without = to_svg(example.ranks, example.timeline);
  EXPECT_THAT(without, testing::Not(HasSubstr("exchange of experts")));
  example.timeline.exchanges = {{0, 0, "dispatch", 0.125, 0.25}, {0, 0, "combine", 0.375, 0.5}};
  const nlohmann::json trace = nlohmann::json::parse(to_chrome_json(example.ranks, example.timeline));
  std::vector<nlohmann::json> sent;
  std::map<int, int> order;
  std::map<int, std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "exchange") sent.push_back(event);
    if (event["name"] == "thread_sort_index") order[event["args"]["sort_index"]] = event["tid"];
    if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
  }
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0]["name"], "dispatch");
  EXPECT_DOUBLE_EQ(sent[0]["ts"], 1.25e5);
  EXPECT_DOUBLE_EQ(sent[0]["dur"], 1.25e5);
  EXPECT_EQ(sent[0]["args"]["id"], 0);
  EXPECT_EQ(sent[1]["name"], "combine");
  EXPECT_EQ(sent[1]["tid"], sent[0]["tid"]);
  EXPECT_EQ(names[sent[0]["tid"]], "exchange of experts");
  ASSERT_EQ(order.size(), names.size());
  EXPECT_EQ(names[order[0]], "compute");
  EXPECT_EQ(names[order[1]], "exchange of experts");
  const std::string svg = to_svg(example.ranks, example.timeline);
  EXPECT_THAT(svg, HasSubstr("<title>dispatch in forward stage 0 microbatch 2</title>"));
  EXPECT_THAT(svg, HasSubstr("exchange of experts pink"));
  // Directly below compute, whose box ends at 34 + 22; what else layers send comes then.
  EXPECT_THAT(svg, testing::ContainsRegex("y=\"56.00\"[^\n]*<title>dispatch in"));
  EXPECT_THAT(svg, testing::ContainsRegex("y=\"61.00\"[^\n]*<title>all_gather over"));
  EXPECT_THAT(without, testing::ContainsRegex("y=\"56.00\"[^\n]*<title>all_gather over"));
}

TEST(TimelineDrawing, TheSvgHasABoxPerEventAndNumbersPasses) {
  const Example example;
  const std::string svg = to_svg(example.ranks, example.timeline);
  EXPECT_THAT(svg, HasSubstr("<title>send_forward stage 0 microbatch 2</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>update stage 0 unit 1</title>"));
  EXPECT_THAT(svg, HasSubstr(">3</text>"));  // counted from 1
  EXPECT_THAT(svg, HasSubstr(">stage 0</text>"));
  // 800 wide: one each 160.
  for (const char* tick : {">0 s</text>", ">0.2 s</text>", ">1 s</text>"}) EXPECT_THAT(svg, HasSubstr(tick));
  EXPECT_THAT(svg, testing::Not(HasSubstr(">1.2 s</text>")));
}

}  // namespace
}  // namespace echelon
