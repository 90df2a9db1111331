// The checker finds nothing in what lowering makes, and names the culprit in what a mutation has spoilt.
#include "programs.h"
#include "schedule/random_schedule.h"
#include "schedule/timeline.h"

#include "base/error.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace echelon {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = ActionKind;

TEST(Check, FindsNothingInTheGrid) {
  for (const Generator generate : generators) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 16; ++m) {
        for (int flags = 0; flags < 32; ++flags) {
          LoweringOptions options = train_options(p, flags & 1);
          options.trains = flags & 2;
          options.reduces_gradients = flags & 4;
          options.clips = flags & 8;
          if (flags & 16) {
            for (StageShape& shape : options.stages) shape.unit_sums_replicas.clear();
          }
          const Schedule schedule = generate(p, m);
          ASSERT_THAT(check(lower(schedule, options), schedule, options), IsEmpty())
              << "p = " << p << ", m = " << m << ", flags = " << flags;
        }
      }
    }
  }
}

TEST(Check, FindsNothingInAnySchedule) {
  for (int p = 1; p <= 6; ++p) {
    for (const int m : {1, 2, 3, 4, 7, 12}) {
      for (const Schedule& schedule : schedules_of(p, m)) {
        for (int flags = 0; flags < 16; ++flags) {
          LoweringOptions options = train_options(schedule, flags & 1);
          options.trains = flags & 2;
          options.reduces_gradients = flags & 4;
          options.clips = flags & 8;
          if (flags & 4) {
            for (StageShape& shape : options.stages) shape.unit_sums_replicas.clear();
          }
          ASSERT_THAT(check(lower(schedule, options), schedule, options), IsEmpty())
              << "p = " << p << ", m = " << m << ", flags = " << flags;
        }
      }
    }
  }
}

TEST(Check, FindsNothingInAnyOrderThatDataAllows) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Schedule schedule = random_schedule({.num_ranks = 1 + static_cast<int>(seed % 8),
                                               .num_virtual = 1 + static_cast<int>(seed / 8 % 3),
                                               .num_microbatches = 1 + static_cast<int>(seed % 11),
                                               .seed = seed});
    for (const bool trains : {false, true}) {
      LoweringOptions options = at_level(train_options(schedule, seed % 2 == 0), static_cast<int>(seed % 4),
                                         all_keeps[seed / 4 % 3], seed % 5 == 0, seed % 7 == 0);
      options.trains = trains;
      ASSERT_THAT(check(lower(schedule, options), schedule, options), IsEmpty()) << seed;
    }
  }
}

TEST(Check, FindsAnyMissingEdgeInAnyOrder) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Schedule schedule = random_schedule(
        {.num_ranks = 1 + static_cast<int>(seed % 3), .num_virtual = 2, .num_microbatches = 3, .seed = seed});
    LoweringOptions options = at_level(train_options(schedule), static_cast<int>(seed % 4), all_keeps[seed % 3]);
    options.clips = seed % 2 == 0;
    std::vector<Program> programs = lower(schedule, options);
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      for (Action& reader : programs[rank]) {
        const auto after = reader.after;
        for (const int writer : after) {
          std::erase(reader.after, writer);
          EXPECT_THAT(check(programs, schedule, options),
                      Contains(testing::AllOf(HasSubstr(fmt::format("rank {}: ", rank)),
                                              HasSubstr(to_string(programs[rank][writer])))));
          reader.after = after;
        }
      }
    }
  }
}

TEST(Check, FindsNothingAtAnyLevelOfZero) {
  for (const int p : {1, 2, 3})
    for (const int m : {1, 3})
      for (const Schedule& schedule : schedules_of(p, m))
        for (const int level : {1, 2, 3})
          for (const KeepsGathered keeps : all_keeps)
            for (int flags = 0; flags < 16; ++flags) {
              LoweringOptions options =
                  at_level(train_options(schedule, flags & 1), level, keeps, flags & 2, flags & 4);
              options.trains = flags & 8;
              options.clips = flags & 2;
              ASSERT_THAT(check(lower(schedule, options), schedule, options), IsEmpty())
                  << "p = " << p << ", m = " << m << ", level = " << level << ", keeps = " << static_cast<int>(keeps)
                  << ", flags = " << flags;
            }
}

TEST(Check, FindsNothingAtAnyDepthOfGathers) {
  for (const int p : {1, 2, 3})
    for (const Schedule& schedule : schedules_of(p, 3))
      for (const KeepsGathered keeps : all_keeps)
        for (const int depth : {2, 3, 100})
          for (const bool trains : {false, true}) {
            LoweringOptions options = at_level(train_options(schedule), 3, keeps);
            options.trains = trains;
            options.prefetch_depth = depth;
            ASSERT_THAT(check(lower(schedule, options), schedule, options), IsEmpty())
                << "p = " << p << ", keeps = " << static_cast<int>(keeps) << ", depth = " << depth;
          }
}

TEST(Check, KnowsHowFarAheadUnitsAreGathered) {
  LoweringOptions options = at_level(train_options(1, false), 3);
  options.stages[0].num_units = 6;
  const Schedule schedule = naive_schedule(1, 1);
  const auto faults = [&](int lowered, int checked) {
    options.prefetch_depth = lowered;
    const std::vector<Program> programs = lower(schedule, options);
    options.prefetch_depth = checked;
    return check(programs, schedule, options);
  };
  EXPECT_THAT(faults(1, 2), Contains(HasSubstr("gather_parameters stage 0 unit 2 is not 2 passes ahead of its use")));
  EXPECT_THAT(faults(3, 1), Contains(HasSubstr("stage 0 unit 2 are gathered for nothing")));
}

// A schedule lowered well and then spoilt.
struct Spoilt : testing::Test {
  LoweringOptions options = train_options(3);
  Schedule schedule = one_f_one_b_schedule(3, 4);
  std::vector<Program> programs = lower(schedule, options);

  Action& at(int rank, Kind kind, int microbatch) { return programs[rank][find(programs[rank], kind, microbatch)->id]; }
  [[nodiscard]] std::vector<std::string> faults() const { return check(programs, schedule, options); }
};

TEST_F(Spoilt, SwappedReceives) {
  std::swap(at(1, Kind::receive_forward, 1).microbatch, at(1, Kind::receive_forward, 2).microbatch);
  EXPECT_THAT(faults(), ElementsAre("message 1 from rank 0 to rank 1 is sent for receive_forward stage 1 microbatch 1, "
                                    "but rank 1 posts receive_forward stage 1 "
                                    "microbatch 2"));
}

TEST_F(Spoilt, AnyMissingEdge) {
  for (int variant = 0; variant < 5; ++variant) {
    schedule = variant < 3 ? one_f_one_b_schedule(3, 4) : interleaved_zero_bubble_schedule(2, 2, 2);
    const bool hybrid = variant % 2 == 1;
    options = at_level(train_options(schedule), variant < 3 ? variant + 1 : variant - 1, all_keeps[variant % 3], hybrid,
                       hybrid);
    programs = lower(schedule, options);
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      for (Action& reader : programs[rank]) {
        const auto after = reader.after;
        for (const int writer : after) {
          std::erase(reader.after, writer);
          EXPECT_THAT(faults(), Contains(testing::AllOf(HasSubstr(fmt::format("rank {}: ", rank)),
                                                        HasSubstr(to_string(programs[rank][writer])))));
          reader.after = after;
        }
      }
    }
    EXPECT_THAT(faults(), IsEmpty());
  }
}

// ZeRO-3 with a gather or a release at the wrong place.
struct SpoiltGathers : Spoilt {
  SpoiltGathers() {
    options = at_level(train_options(1, false), 3);
    schedule = naive_schedule(1, 2);
    programs = lower(schedule, options);
  }
  [[nodiscard]] int nth(Kind kind, int n, int unit) const {
    for (const Action& action : programs[0])
      if (action.kind == kind && action.unit == unit && n-- == 0) return action.id;
    return -1;
  }
  // Takes an action out, or gives it another place; edges follow.
  void move(int from, int to) {
    Program& program = programs[0];
    Action moved = program[from];
    program.erase(program.begin() + from);
    if (to >= 0) program.insert(program.begin() + (to > from ? to - 1 : to), moved);
    std::map<int, int> new_id;
    for (std::size_t position = 0; position < program.size(); ++position)
      new_id[program[position].id] = static_cast<int>(position);
    for (Action& action : program) {
      action.id = new_id[action.id];
      std::erase_if(action.after, [&](int id) { return !new_id.contains(id); });
      for (int& id : action.after) id = new_id[id];
      std::sort(action.after.begin(), action.after.end());
    }
  }
};

TEST_F(SpoiltGathers, AForgottenGather) {
  move(nth(Kind::gather_parameters, 1, 0), -1);
  EXPECT_THAT(faults(),
              Contains("rank 0: backward stage 0 microbatch 0 unit 0 runs without the parameters of stage 0 unit 0"));
}

TEST_F(SpoiltGathers, AForgottenRelease) {
  move(nth(Kind::release_parameters, 0, 0), -1);
  EXPECT_THAT(faults(), Contains("rank 0: gather_parameters stage 0 unit 0 comes while there is a copy"));
}

TEST_F(SpoiltGathers, AReleaseBeforeTheLastUse) {
  move(nth(Kind::release_parameters, 0, 1), find(programs[0], Kind::backward, 0, 1)->id);
  EXPECT_THAT(faults(),
              Contains("rank 0: backward stage 0 microbatch 0 unit 1 runs without the parameters of stage 0 unit 1"));
}

TEST_F(SpoiltGathers, AGatherThatOverlapsWithNothing) {
  move(nth(Kind::gather_parameters, 1, 0), find(programs[0], Kind::backward, 0, 0)->id);
  EXPECT_THAT(faults(), Contains("rank 0: gather_parameters stage 0 unit 0 is not a pass ahead of its use"));
}

TEST_F(SpoiltGathers, ACopyThatIsKeptForNothing) {
  for (StageShape& shape : options.stages) shape.num_units = 4;
  options.stages[0].unit_sums_replicas.clear();
  programs = lower(schedule, options);
  ASSERT_THAT(faults(), IsEmpty());
  move(nth(Kind::release_parameters, 0, 1), find(programs[0], Kind::forward, 0, 3)->id + 1);
  EXPECT_THAT(faults(), Contains("rank 0: forward stage 0 microbatch 0 unit 3 runs while the parameters of stage 0 "
                                 "unit 1 are gathered for nothing"));
}

TEST_F(Spoilt, AnEdgeFromTheFuture) {
  at(0, Kind::forward, 0).after = {0, at(0, Kind::backward, 0).id};
  EXPECT_THAT(faults(), ElementsAre(testing::AllOf(HasSubstr("deadlock: "),
                                                   HasSubstr("rank 0 forward stage 0 microbatch 0 waits for "))));
  EXPECT_THROW((void)simulate_programs(programs, cost_of({})), Failure);
}

// Rank 0 wants a gradient before it computes a forward that the others need before they send any: every rank is in
// order by itself.
TEST_F(Spoilt, ACycleThroughTwoRanks) {
  schedule = gpipe_schedule(3, 2);
  programs = lower(schedule, options);
  const int received = at(0, Kind::receive_backward, 0).id;
  at(0, Kind::forward, 1).after.push_back(received);
  EXPECT_THAT(faults(),
              ElementsAre(testing::AllOf(HasSubstr("deadlock: "), HasSubstr("rank 0 forward stage 0 microbatch 1"),
                                         HasSubstr("rank 1 send_backward stage 1 microbatch 0"),
                                         HasSubstr("waits for the first of these"))));
}

// Both post their receive only after their own send has ended: fine with buffered sends, a deadlock without.
TEST_F(Spoilt, TwoSendsThatNeedBuffers) {
  schedule = one_f_one_b_schedule(2, 3);
  options = train_options(2);
  programs = lower(schedule, options);
  const auto post_after = [&](int rank, Kind receive, int received, Kind send, int sent) {
    Program& program = programs[rank];
    const Action posted = at(rank, receive, received);
    ASSERT_LT(posted.id, at(rank, send, sent).id);
    program.insert(program.begin() + at(rank, send, sent).id + 1, posted);
    program.erase(program.begin() + posted.id);
    std::vector<int> new_id(program.size());
    for (std::size_t position = 0; position < program.size(); ++position)
      new_id[program[position].id] = static_cast<int>(position);
    for (Action& action : program) {
      action.id = new_id[action.id];
      for (int& id : action.after) id = new_id[id];
    }
    at(rank, receive, received).after = {at(rank, send, sent).id};
    for (Action& action : program) std::sort(action.after.begin(), action.after.end());
  };
  post_after(0, Kind::receive_backward, 0, Kind::send_forward, 1);
  EXPECT_THAT(faults(), IsEmpty());
  post_after(1, Kind::receive_forward, 1, Kind::send_backward, 0);
  EXPECT_THAT(faults(),
              ElementsAre(testing::AllOf(HasSubstr("deadlock: "), HasSubstr("rank 0 send_forward stage 0 microbatch 1"),
                                         HasSubstr("rank 1 send_backward stage 1 microbatch 0"))));
}

TEST_F(Spoilt, ADuplicatedMicrobatch) {
  at(1, Kind::forward, 2).microbatch = 1;
  EXPECT_THAT(faults(), Contains("rank 1: forward stage 1 microbatch 1 occurs 2 times instead of once"));
  EXPECT_THAT(faults(), Contains("rank 1: forward stage 1 microbatch 2 occurs 0 times instead of once"));
}

TEST_F(Spoilt, ADuplicatedMicrobatchInTheSchedule) {
  schedule.ranks[0].back().microbatch = 0;
  programs = lower(schedule, options);
  EXPECT_THAT(faults(), Contains("rank 0: backward stage 0 microbatch 3 occurs 0 times instead of once"));
  schedule.ranks[1][1].microbatch = 0;
  EXPECT_THROW((void)lower(schedule, options), Failure);  // the others would wait forever for microbatch 1
}

TEST_F(Spoilt, ComputeInAnotherOrderThanTheSchedule) {
  std::swap(at(2, Kind::forward, 1).microbatch, at(2, Kind::forward, 2).microbatch);
  EXPECT_THAT(
      faults(),
      Contains("rank 2: forward stage 2 microbatch 2 runs where the schedule has forward stage 2 microbatch 1"));
}

TEST_F(Spoilt, CollectivesInAnotherOrder) {
  Program& program = programs[2];
  const auto tied =
      std::find_if(program.begin(), program.end(), [](const Action& action) { return action.kind == Kind::sum_tied; });
  ASSERT_EQ((tied + 1)->kind, Kind::clip);
  std::swap(*tied, *(tied + 1));
  EXPECT_THAT(faults(), Contains("rank 2 enters clip where rank 0 enters sum_tied"));
}

TEST_F(Spoilt, AForgottenCollective) {
  for (Action& action : programs[1]) {
    if (action.kind == Kind::clip) action.kind = Kind::count_tokens;
  }
  EXPECT_THAT(faults(), Contains("rank 1: clip occurs 0 times instead of once"));
  EXPECT_THAT(faults(), Contains("rank 1 enters report where rank 0 enters clip"));
}

TEST_F(Spoilt, IdsThatAreNone) {
  at(0, Kind::forward, 0).after = {0, 1000};
  at(0, Kind::forward, 1).id = 7000;
  EXPECT_THAT(faults(), Contains("rank 0: forward stage 0 microbatch 0 waits for id 1000, which no action has"));
  EXPECT_THAT(faults(), Contains(HasSubstr("rank 0: forward stage 0 microbatch 1 has id 7000 at position")));
}

}  // namespace
}  // namespace echelon
