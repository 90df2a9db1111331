#include "schedule/draw/draw.h"

#include "programs.h"

namespace echelon {
namespace {

std::string drawn(const Schedule& schedule, const StageCosts& costs, const DrawOptions& options = {}) {
  const auto programs = lower(schedule, train_options(schedule.num_stages));
  return draw(simulate_programs(programs, cost_of(costs)), programs, options);
}

// Checked by hand against the words of Narayanan et al. 2021 (arXiv:2104.04473), figure 4, top: four devices, eight
// microbatches, a backward as long as two forwards.
TEST(Draw, OneFOneBIsFigureFour) {
  EXPECT_EQ(drawn(one_f_one_b_schedule(4, 8), {.num_units = 2}),
            "rank 0  F1F2F3F4            B1==F5B2==F6B3==F7B4==F8B5==  B6==  B7==  B8==\n"
            "rank 1    F1F2F3        B1==F4B2==F5B3==F6B4==F7B5==F8B6==  B7==  B8==\n"
            "rank 2      F1F2    B1==F3B2==F4B3==F5B4==F6B5==F7B6==F8B7==  B8==\n"
            "rank 3        F1B1==F2B2==F3B3==F4B4==F5B5==F6B6==F7B7==F8B8==\n");
}

// Huang et al. 2019 (arXiv:1811.06965), figure 2c, with the backwards in ascending order.
TEST(Draw, Gpipe) {
  EXPECT_EQ(drawn(gpipe_schedule(3, 3), {.backward = 1, .num_units = 2}),
            "rank 0  F1F2F3        B1B2B3\n"
            "rank 1    F1F2F3    B1B2B3\n"
            "rank 2      F1F2F3B1B2B3\n");
}

TEST(Draw, TenthMicrobatchWidensTheColumns) {
  EXPECT_EQ(drawn(naive_schedule(1, 10), {.backward = 1, .num_units = 2}),
            "rank 0  F1=B1=F2=B2=F3=B3=F4=B4=F5=B5=F6=B6=F7=B7=F8=B8=F9=B9=F10B10\n");
}

TEST(Draw, ScalesALongStepDown) {
  EXPECT_EQ(drawn(naive_schedule(2, 1), {.forward = 100, .backward = 200, .num_units = 2}, {.max_columns = 12}),
            "rank 0  F1      B1==\n"
            "rank 1    F1B1==\n");
}

TEST(Draw, PassesNarrowerThanAColumnAreThere) {
  EXPECT_EQ(drawn(naive_schedule(2, 1), {.transfer = 1000, .num_units = 2}, {.max_columns = 12}),
            "rank 0  F           B\n"
            "rank 1        F\n");
}

}  // namespace
}  // namespace echelon
