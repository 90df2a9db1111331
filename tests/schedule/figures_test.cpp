// The schedules as their papers describe them. The figures themselves were not at hand: each drawing was checked by
// hand against the paper's words (who waits for whom, how many forwards each rank begins with); closed_forms_test.cpp
// has the papers' sums, and torch_csv_test.cpp PyTorch's orders of the same schedules. Capitals: a rank's first stage,
// small letters: its second.
#include "schedule/draw/draw.h"
#include "schedule/simulation/simulate_schedule.h"

#include <gtest/gtest.h>

namespace echelon {
namespace {

std::string drawn(const Schedule& schedule, const PassTimes& times = {}) {
  return draw(simulate_schedule(schedule, times), schedule.ranks, {.max_columns = 400});
}

// Narayanan et al. 2021 (arXiv:2104.04473), figure 4 bottom: four devices, two stages each, eight microbatches; B takes
// two F.
TEST(Figures, InterleavedOneFOneB) {
  EXPECT_EQ(drawn(interleaved_one_f_one_b_schedule(4, 8, 2)),
            "rank 0  F1F2F3F4f1f2f3f4F5F6F7      b1==F8b2==  f5b3==f6b4==f7B1==f8B2==B3==  B4==  b5==  b6==  b7==  "
            "b8==B5==B6==B7==B8==\n"
            "rank 1    F1F2F3F4f1f2f3f4F5    b1==F6b2==F7b3==F8b4==f5B1==f6B2==f7B3==f8B4==  b5==  b6==  b7==  "
            "b8==B5==B6==B7==B8==\n"
            "rank 2      F1F2F3F4f1f2f3  b1==f4b2==F5b3==F6b4==F7B1==F8B2==f5B3==f6B4==f7b5==f8b6==  b7==  "
            "b8==B5==B6==B7==B8==\n"
            "rank 3        "
            "F1F2F3F4f1b1==f2b2==f3b3==f4b4==F5B1==F6B2==F7B3==F8B4==f5b5==f6b6==f7b7==f8b8==B5==B6==B7==B8==\n");
}

// Lamy-Poirier 2022 (arXiv:2211.05953), breadth-first: all microbatches through one stage, then all through the next.
TEST(Figures, LoopedBfs) {
  EXPECT_EQ(drawn(looped_bfs_schedule(4, 4, 2)),
            "rank 0  F1F2F3F4f1f2f3f4                  b1==b2==b3==b4==B1==B2==B3==B4==\n"
            "rank 1    F1F2F3F4f1f2f3f4            b1==b2==b3==b4==B1==B2==B3==B4==\n"
            "rank 2      F1F2F3F4f1f2f3f4      b1==b2==b3==b4==B1==B2==B3==B4==\n"
            "rank 3        F1F2F3F4f1f2f3f4b1==b2==b3==b4==B1==B2==B3==B4==\n");
}

// Qi et al. 2023 (arXiv:2401.10241), figure 3 top: one third of the bubble of 1F1B, the rest is at the head.
TEST(Figures, ZbH1) {
  EXPECT_EQ(drawn(zb_h1_schedule(4, 8)),
            "rank 0  F1F2F3F4      B1W1F5B2W2F6B3W3F7B4W4F8B5W5B6W6B7W7B8W8\n"
            "rank 1    F1F2F3    B1F4B2W1F5B3W2F6B4W3F7B5W4F8B6W5B7W6B8W7W8\n"
            "rank 2      F1F2  B1F3B2F4B3W1F5B4W2F6B5W3F7B6W4F8B7W5B8W6W7W8\n"
            "rank 3        F1B1F2B2F3B3F4B4W1F5B5W2F6B6W3F7B7W4F8B8W5W6W7W8\n");
}

// Figure 3 bottom: a parallelogram without a bubble.
TEST(Figures, ZbH2) {
  EXPECT_EQ(drawn(zb_h2_schedule(4, 8)),
            "rank 0  F1F2F3F4F5F6F7B1W1F8B2W2B3W3B4W4B5W5B6W6B7W7B8W8\n"
            "rank 1    F1F2F3F4F5B1F6B2F7B3W1F8B4W2B5W3B6W4B7W5B8W6W7W8\n"
            "rank 2      F1F2F3B1F4B2F5B3F6B4F7B5W1F8B6W2B7W3B8W4W5W6W7W8\n"
            "rank 3        F1B1F2B2F3B3F4B4F5B5F6B6F7B7W1F8B8W2W3W4W5W6W7W8\n");
}

// Qi et al. 2024 (arXiv:2405.15362): the V for four devices and eight microbatches.
TEST(Figures, ZbV) {
  EXPECT_EQ(
      drawn(zb_v_schedule(4, 8)),
      "rank 0  F1F2F3F4F5F6F7f1b1w1f2b2w2f3b3w3f4b4w4F8B1W1f5b5w5B2W2f6b6w6B3W3f7b7w7B4W4f8b8w8B5W5B6W6B7W7B8W8\n"
      "rank 1    F1F2F3F4F5f1F6f2b1w1f3b2w2f4b3w3F7B1W1f5b4w4F8B2W2f6b5w5B3W3f7b6w6B4W4f8b7w7B5b8B6W5B7W6B8W7w8W8\n"
      "rank 2      F1F2F3f1F4f2F5f3b1w1f4b2w2F6B1W1f5b3w3F7B2W2f6b4w4F8B3W3f7b5w5B4W4f8b6w6B5b7B6b8B7W5B8W6w7w8W7W8\n"
      "rank 3        "
      "F1f1F2f2F3f3F4f4b1w1F5B1W1f5b2w2F6B2W2f6b3w3F7B3W3f7b4w4F8B4W4f8b5w5B5b6B6b7B7b8B8W5w6w7w8W6W7W8\n");
}

// DualPipeV for four ranks and ten microbatches, the example of its README, a pair of F and B one after the other.
TEST(Figures, DualPipeV) {
  EXPECT_EQ(drawn(dualpipe_v_schedule(4, 10)),
            "rank 0  "
            "F1=F2=F3=F4=F5=F6=F7=f1=b1=w1=f2=b2=w2=f3=b3=w3=f4=F8=b4====f5=B1====F9=b5====f6=B2====F10b6====f7=B3===="
            "b7====f8=   B4====b8====f9=   "
            "B5====b9====f10   B6====b10===B7=W7=B8=W8=B9=W9=B10W10\n"
            "rank 1     "
            "F1=F2=F3=F4=F5=f1=F6=f2=b1=w1=f3=b2=w2=f4=F7=b3====f5=B1====F8=b4====f6=B2====F9=b5====f7=B3====F10b6===="
            "f8=B4====b7====f9=   "
            "B5====b8====f10   B6====b9====B7====b10B8=w10B9=W8=B10W9=W10\n"
            "rank 2        "
            "F1=F2=F3=f1=F4=f2=F5=f3=b1=w1=f4=F6=b2====f5=B1====F7=b3====f6=B2====F8=b4====f7=B3====F9=b5====f8=B4===="
            "F10b6====f9=B5====b7====f10  "
            " B6====b8====B7====b9====B8=b10B9=W8=B10w10W9=W10\n"
            "rank 3           "
            "F1=f1=F2=f2=F3=f3=F4=f4=F5=b1====f5=B1====F6=b2====f6=B2====F7=b3====f7=B3====F8=b4====f8=B4====F9=b5===="
            "f9=B5====F10b6====f10B6===="
            "b7====B7====b8====B8====b9=B9=b10B10w9=W9=w10W10\n");
}

// The warm-up of interleaved 1F1B shortened by one pass a rank, since a gradient does not wait for weights; the bubble
// is a third, as in ZB-H1.
TEST(Figures, InterleavedZeroBubble) {
  EXPECT_EQ(drawn(interleaved_zero_bubble_schedule(2, 4, 2)),
            "rank 0  F1F2f1f2  b1w1F3b2w2F4B1W1f3B2W2f4b3w3b4w4B3W3B4W4\n"
            "rank 1    F1F2f1b1f2b2w1F3B1w2F4B2W1f3b3W2f4b4w3B3w4B4W3W4\n");
}

TEST(Figures, StagesOfARankBeyondTwoAreLettered) {
  EXPECT_EQ(drawn(interleaved_one_f_one_b_schedule(1, 1, 3), {.forward = 3, .backward_input = 3, .backward_weight = 3}),
            "rank 0  F1aF1bF1cB1c===B1b===B1a===\n");
}

}  // namespace
}  // namespace echelon
