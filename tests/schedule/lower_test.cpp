// The rules of lowering, read off its programs.
#include "base/error.h"
#include "programs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = ActionKind;

std::vector<std::string> names(const Program& program) {
  std::vector<std::string> all;
  for (const Action& action : program) all.push_back(to_string(action));
  return all;
}

TEST(Lower, OneRankOneMicrobatch) {
  LoweringOptions options;
  options.stages = {{.num_units = 2, .has_tied_weight = true, .unit_sums_replicas = {}}};
  options.reduces_gradients = false;
  const Program program = lower(naive_schedule(1, 1), options)[0];
  EXPECT_THAT(names(program),
              ElementsAre("load_batch", "clear_gradients", "count_tokens", "forward stage 0 microbatch 0",
                          "backward stage 0 microbatch 0", "clip", "update stage 0 unit 0", "update stage 0 unit 1",
                          "update stage 0 unit 2", "report"));
  EXPECT_THAT(program[4].after, ElementsAre(1, 3));
  EXPECT_THAT(program[5].after, ElementsAre(2, 4));
  EXPECT_THAT(program[9].after, ElementsAre(2, 6, 7, 8));
}

TEST(Lower, EvaluationIsForwardOnly) {
  LoweringOptions options = train_options(2);
  options.trains = false;
  const auto programs = lower(one_f_one_b_schedule(2, 2), options);
  EXPECT_THAT(names(programs[1]), ElementsAre("load_batch", "count_tokens", "receive_forward stage 1 microbatch 0",
                                              "receive_forward stage 1 microbatch 1", "forward stage 1 microbatch 0",
                                              "forward stage 1 microbatch 1", "report"));
}

// The reduction of a unit begins before the backward of the unit in front of it; the upstream stage gets its gradient
// before any reduction of unit 0.
TEST(Lower, LastBackwardGoesUnitByUnit) {
  const auto programs = lower(one_f_one_b_schedule(2, 1), train_options(2));
  EXPECT_THAT(names(programs[1]),
              ElementsAre("load_batch", "clear_gradients", "count_tokens", "receive_forward stage 1 microbatch 0",
                          "forward stage 1 microbatch 0", "backward stage 1 microbatch 0 unit 1",
                          "reduce_gradients stage 1 unit 1", "reduce_gradients stage 1 unit 2",
                          "backward stage 1 microbatch 0 unit 0", "send_backward stage 1 microbatch 0",
                          "reduce_gradients stage 1 unit 0", "sum_replicas stage 1 unit 0", "sum_tied stage 1 unit 2",
                          "clip", "update stage 1 unit 0", "gather_parameters stage 1 unit 0", "update stage 1 unit 1",
                          "gather_parameters stage 1 unit 1", "update stage 1 unit 2",
                          "gather_parameters stage 1 unit 2", "report"));
  const auto& head = programs[0];
  const auto reduced = std::find_if(head.begin(), head.end(), [](const Action& action) {
    return action.kind == Kind::reduce_gradients && action.unit == 2;
  });
  EXPECT_EQ(to_string(head[reduced->after.back()]), "backward stage 0 microbatch 0 unit 0");
}

TEST(Lower, ASendWaitsForTheSendBeforeIt) {
  const Program program = lower(gpipe_schedule(2, 3), train_options(2))[0];
  EXPECT_THAT(find(program, Kind::send_forward, 0)->after, ElementsAre(find(program, Kind::forward, 0)->id));
  EXPECT_THAT(find(program, Kind::send_forward, 2)->after,
              ElementsAre(find(program, Kind::send_forward, 1)->id, find(program, Kind::forward, 2)->id));
}

// The message of forward 1 is produced while the receiver computes forward 1, or in 1F1B its backward 0: its receive is
// posted one action before that.
TEST(Lower, AReceiveIsPostedOneComputeActionBeforeItsMessageIsProduced) {
  Program program = lower(gpipe_schedule(2, 3), train_options(2))[1];
  EXPECT_EQ(find(program, Kind::receive_forward, 1)->id + 1, find(program, Kind::forward, 0)->id);
  EXPECT_EQ(find(program, Kind::receive_forward, 2)->id + 1, find(program, Kind::forward, 1)->id);
  EXPECT_THAT(find(program, Kind::receive_forward, 2)->after, IsEmpty());
  program = lower(one_f_one_b_schedule(2, 3), train_options(2))[1];
  EXPECT_EQ(find(program, Kind::receive_forward, 1)->id + 1, find(program, Kind::forward, 0)->id);
}

std::vector<std::string> awaited_by(const Program& program, const Action& reader) {
  std::vector<std::string> names;
  for (const int id : reader.after) names.push_back(to_string(program[id]));
  return names;
}

// One rank, two stages: nothing is sent, and a pass waits for that of the neighbour. The tied weight's gradient waits
// for both of its users.
TEST(Lower, StagesOfOneRankExchangeNoMessages) {
  const Schedule schedule = interleaved_one_f_one_b_schedule(1, 1, 2);
  const Program program = lower(schedule, train_options(schedule))[0];
  EXPECT_THAT(
      names(program),
      ElementsAre(
          "load_batch", "clear_gradients", "count_tokens", "forward stage 0 microbatch 0",
          "forward stage 1 microbatch 0", "backward stage 1 microbatch 0 unit 1", "reduce_gradients stage 1 unit 1",
          "backward stage 1 microbatch 0 unit 0", "reduce_gradients stage 1 unit 0",
          "backward stage 0 microbatch 0 unit 1", "sum_replicas stage 1 unit 0", "reduce_gradients stage 0 unit 1",
          "backward stage 0 microbatch 0 unit 0", "reduce_gradients stage 0 unit 0", "reduce_gradients stage 0 unit 2",
          "sum_replicas stage 0 unit 0", "clip", "update stage 0 unit 0", "gather_parameters stage 0 unit 0",
          "update stage 0 unit 1", "gather_parameters stage 0 unit 1", "update stage 0 unit 2",
          "gather_parameters stage 0 unit 2", "update stage 1 unit 0", "gather_parameters stage 1 unit 0",
          "update stage 1 unit 1", "gather_parameters stage 1 unit 1", "report"));
  EXPECT_THAT(awaited_by(program, program[4]), ElementsAre("forward stage 0 microbatch 0"));
  EXPECT_THAT(awaited_by(program, program[9]),
              ElementsAre("forward stage 0 microbatch 0", "backward stage 1 microbatch 0 unit 0"));
  EXPECT_THAT(awaited_by(program, program[14]), ElementsAre("count_tokens", "backward stage 1 microbatch 0 unit 1",
                                                            "backward stage 0 microbatch 0 unit 0"));
}

// The gradient leaves after B; the units are reduced along the last W.
TEST(Lower, AnInputGradientLeavesBeforeTheWeightGradients) {
  Schedule schedule = empty_loop_schedule(2, 2, 1);
  for (const int stage : {0, 1}) schedule.add(Kind::forward, stage, 0);
  for (const int stage : {1, 0})
    for (const Kind kind : {Kind::backward_input, Kind::backward_weight}) schedule.add(kind, stage, 0);
  const Program program = lower(schedule, train_options(schedule, false))[1];
  EXPECT_THAT(names(program),
              ElementsAre("load_batch", "clear_gradients", "count_tokens", "receive_forward stage 1 microbatch 0",
                          "forward stage 1 microbatch 0", "backward_input stage 1 microbatch 0",
                          "send_backward stage 1 microbatch 0", "backward_weight stage 1 microbatch 0 unit 1",
                          "reduce_gradients stage 1 unit 1", "backward_weight stage 1 microbatch 0 unit 0",
                          "reduce_gradients stage 1 unit 0", "sum_replicas stage 1 unit 0", "clip",
                          "update stage 1 unit 0", "gather_parameters stage 1 unit 0", "update stage 1 unit 1",
                          "gather_parameters stage 1 unit 1", "report"));
  EXPECT_THAT(awaited_by(program, program[7]), ElementsAre("clear_gradients", "backward_input stage 1 microbatch 0"));
}

TEST(Lower, WithoutClippingAnUpdateWaitsForItsOwnGradientAndTheCount) {
  LoweringOptions options = train_options(2);
  options.clips = false;
  const Program program = lower(gpipe_schedule(2, 2), options)[1];
  const auto update = std::find_if(program.begin(), program.end(), [](const Action& action) {
    return action.kind == Kind::update && action.unit == 2;
  });
  std::vector<std::string> awaited;
  for (const int id : update->after) awaited.push_back(to_string(program[id]));
  EXPECT_THAT(awaited, ElementsAre("count_tokens", "sum_tied stage 1 unit 2"));
}

// ZeRO-3 with replicas, one stage of two units that share a tied weight (unit 2): unit 1 is gathered while unit 0
// computes and kept from its forward to its backward pass, which are neighbours; a gradient is stored one pass after it
// was reduced.
TEST(Lower, ZeroThreeGathersAheadAndReducesBehind) {
  LoweringOptions options = at_level(train_options(1), 3, KeepsGathered::for_next_pass, true);
  const Program program = lower(naive_schedule(1, 1), options)[0];
  EXPECT_THAT(
      names(program),
      ElementsAre("load_batch", "clear_gradients", "count_tokens",  //
                  "gather_parameters stage 0 unit 0", "gather_parameters stage 0 unit 2",
                  "gather_parameters stage 0 unit 1",                                                            //
                  "forward stage 0 microbatch 0 unit 0", "release_parameters stage 0 unit 0",                    //
                  "forward stage 0 microbatch 0 unit 1", "gather_parameters stage 0 unit 0",                     //
                  "open_gradients stage 0 microbatch 0 unit 1", "open_gradients stage 0 microbatch 0 unit 2",    //
                  "backward stage 0 microbatch 0 unit 1", "release_parameters stage 0 unit 1",                   //
                  "reduce_gradients stage 0 microbatch 0 unit 1", "open_gradients stage 0 microbatch 0 unit 0",  //
                  "backward stage 0 microbatch 0 unit 0", "release_parameters stage 0 unit 0",
                  "release_parameters stage 0 unit 2", "store_gradients stage 0 microbatch 0 unit 1",
                  "reduce_gradients stage 0 microbatch 0 unit 0", "reduce_gradients stage 0 microbatch 0 unit 2",
                  "reduce_parts stage 0 unit 1", "store_gradients stage 0 microbatch 0 unit 0",
                  "store_gradients stage 0 microbatch 0 unit 2", "reduce_parts stage 0 unit 0",
                  "reduce_parts stage 0 unit 2", "sum_replicas stage 0 unit 0", "clip", "update stage 0 unit 0",
                  "update stage 0 unit 1", "update stage 0 unit 2", "report"));
  EXPECT_THAT(awaited_by(program, *find(program, Kind::backward, 0, 0)),
              ElementsAre("gather_parameters stage 0 unit 0", "open_gradients stage 0 microbatch 0 unit 2",
                          "backward stage 0 microbatch 0 unit 1", "open_gradients stage 0 microbatch 0 unit 0"));
}

// How often a unit in the middle of a stage is gathered: for each of the two passes of each microbatch, for each
// microbatch, or for the step.
TEST(Lower, ReshardingSaysHowOftenParametersAreGathered) {
  const int m = 3;
  for (const auto& [keeps, expected] : {std::pair{KeepsGathered::for_next_pass, 2 * m},
                                        {KeepsGathered::for_backward, m},
                                        {KeepsGathered::for_step, 1}}) {
    LoweringOptions options = at_level(train_options(1, false), 3, keeps);
    options.stages[0].num_units = 4;
    const Program program = lower(naive_schedule(1, m), options)[0];
    EXPECT_EQ(
        std::count_if(program.begin(), program.end(),
                      [](const Action& action) { return action.kind == Kind::gather_parameters && action.unit == 1; }),
        expected);
  }
}

// Two units ahead: the third is gathered before the first computes, and the last stays for its backward pass.
TEST(Lower, GathersSoManyUnitsAhead) {
  LoweringOptions options = at_level(train_options(1, false), 3);
  options.stages[0].num_units = 4;
  options.prefetch_depth = 2;
  std::string order;
  const Program program = lower(naive_schedule(1, 1), options)[0];
  for (const Action& action : program) {
    if (action.kind == Kind::gather_parameters) order += fmt::format(" g{}", action.unit);
    if (action.kind == Kind::release_parameters) order += fmt::format(" r{}", action.unit);
    if (action.kind == Kind::forward) order += fmt::format(" f{}", action.unit);
    if (action.kind == Kind::backward) order += fmt::format(" b{}", action.unit);
  }
  EXPECT_EQ(order, " g0 g1 g2 f0 r0 g3 f1 r1 f2 r2 g2 f3 g1 b3 r3 g0 b2 r2 b1 r1 b0 r0");
}

TEST(Lower, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)lower(gpipe_schedule(2, 2), train_options(3)), Error);
  EXPECT_THROW((void)lower(gpipe_schedule(2, 0), train_options(2)), Error);
}

}  // namespace
}  // namespace echelon
