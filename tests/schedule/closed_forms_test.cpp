// Cost and activations in flight of the schedules against the closed forms of their papers, over a grid of (p, m, v).
// Costs are the longest rank's, in whole numbers, so that they are exact.
#include "schedule/generators/catalog.h"
#include "schedule/simulation/rates.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

constexpr PassTimes unequal = {.forward = 4, .backward_input = 5, .backward_weight = 2};
constexpr double F = unequal.forward, B = unequal.backward_input, W = unequal.backward_weight;

PassTimes times(PassTimes of_one, int factor) {
  return {of_one.forward * factor, of_one.backward_input * factor, of_one.backward_weight * factor, of_one.p2p};
}

double bubble_of(const Schedule& schedule, const PassTimes& t) {
  return longest_rank(simulate_schedule(schedule, t), static_cast<int>(schedule.ranks.size())) -
         schedule.num_microbatches * (t.forward + t.backward_input + t.backward_weight);
}

double highest(const Schedule& schedule, double weight_memory = 1) {
  const std::vector<double> peaks = peak_memory(schedule, weight_memory);
  return *std::max_element(peaks.begin(), peaks.end());
}

template <class Check>
void for_grid(int least_m_per_p, Check check) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = std::max(1, least_m_per_p * p); m <= 4 * p; ++m) check(p, m);
  }
}

// Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1: (p-1)(F+B) for GPipe and 1F1B alike; all m microbatches in
// flight against p, on rank r of 1F1B p - r.
TEST(ClosedForms, GpipeAndOneFOneB) {
  for_grid(0, [](int p, int m) {
    EXPECT_EQ(bubble_of(gpipe_schedule(p, m), unequal), (p - 1) * (F + B + W)) << p << " " << m;
    EXPECT_EQ(bubble_of(one_f_one_b_schedule(p, m), unequal), (p - 1) * (F + B + W)) << p << " " << m;
    for (int rank = 0; rank < p; ++rank) {
      EXPECT_EQ(peak_memory(gpipe_schedule(p, m), 1)[rank], m);
      EXPECT_EQ(peak_memory(one_f_one_b_schedule(p, m), 1)[rank], std::min(m, p - rank));
    }
  });
}

// Narayanan et al. 2021, section 2.2.2: (p-1)(F+B)/v. Korthikanti et al. 2022 (arXiv:2205.05198), section 4.2.3: p (1 +
// (p-1)/(p v)) microbatches on the first rank.
TEST(ClosedForms, InterleavedOneFOneB) {
  for_grid(1, [](int p, int m) {
    for (int v = 2; m % p == 0 && v <= 4; ++v) {
      const Schedule schedule = interleaved_one_f_one_b_schedule(p, m, v);
      EXPECT_EQ(bubble_of(schedule, times(unequal, v)), (p - 1) * (F + B + W)) << p << " " << m << " " << v;
      EXPECT_DOUBLE_EQ(peak_memory(schedule, 1)[0], std::min<double>(m, (p * v + p - 1.0) / v))
          << p << " " << m << " " << v;
    }
  });
}

// Lamy-Poirier 2022 (arXiv:2211.05953), section 4: the bubble of interleaved 1F1B with the memory of GPipe, for m >= p.
TEST(ClosedForms, LoopedBfs) {
  for_grid(1, [](int p, int m) {
    for (int v = 1; v <= 4; ++v) {
      const Schedule schedule = looped_bfs_schedule(p, m, v);
      EXPECT_EQ(bubble_of(schedule, times(unequal, v)), (p - 1) * (F + B + W)) << p << " " << m << " " << v;
      EXPECT_EQ(highest(schedule), m);
    }
  });
}

// Qi et al. 2023 (arXiv:2401.10241), table 1: (p-1)(F+B-W) and p microbatches, (p-1)(F+B-2W) and 2p - 1. From as many
// microbatches on as fill the pipeline.
TEST(ClosedForms, HandcraftedZeroBubble) {
  for_grid(2, [](int p, int m) {
    for (const PassTimes& t : {PassTimes{}, unequal}) {
      const double head = t.forward + t.backward_input - t.backward_weight;
      EXPECT_EQ(bubble_of(zb_h1_schedule(p, m), t), (p - 1) * head) << p << " " << m;
      EXPECT_EQ(bubble_of(zb_h2_schedule(p, m), t), (p - 1) * (head - t.backward_weight)) << p << " " << m;
    }
    for (const double weight_memory : {0.25, 1.0}) {
      EXPECT_EQ(highest(zb_h1_schedule(p, m), weight_memory), p);
      EXPECT_EQ(highest(zb_h2_schedule(p, m), weight_memory), 2 * p - 1);
    }
  });
}

// ZB-H1's bubble and memory with chunks of 1/v, where p divides m and F = B = W.
TEST(ClosedForms, InterleavedZeroBubble) {
  for_grid(2, [](int p, int m) {
    for (int v = 1; m % p == 0 && v <= 4; ++v) {
      const Schedule schedule = interleaved_zero_bubble_schedule(p, m, v);
      EXPECT_EQ(bubble_of(schedule, times({}, v)), p - 1) << p << " " << m << " " << v;
      EXPECT_EQ(highest(schedule), p) << p << " " << m << " " << v;
    }
  });
}

// Qi et al. 2024 (arXiv:2405.15362), table 1: no bubble for F = B = W in p microbatches, from 2p - 1 microbatches on.
TEST(ClosedForms, ZbV) {
  for_grid(2, [](int p, int m) {
    EXPECT_EQ(bubble_of(zb_v_schedule(p, m), times({}, 2)), 0) << p << " " << m;
    for (int rank = 0; rank < p; ++rank) EXPECT_EQ(peak_memory(zb_v_schedule(p, m), 1)[rank], p);
  });
}

// The README of DualPipe: (PP/2 - 1)(F&B + B - 3W) with F&B the time of an overlapped pair, B the whole backward and PP
// = 2p stages, PP + 1 stages' activations on each rank. Without overlap the forward of a pair hands its result on
// before the backward begins, which leaves (p-1)(F+B-W) of a stage's times.
TEST(ClosedForms, DualPipeV) {
  for_grid(2, [](int p, int m) {
    EXPECT_EQ(bubble_of(dualpipe_v_schedule(p, m), times({}, 2)), p - 1) << p << " " << m;
    for (int rank = 0; rank < p; ++rank) EXPECT_EQ(peak_memory(dualpipe_v_schedule(p, m), 1)[rank], (2 * p + 1) / 2.0);
  });
}

// Qi et al. 2023, section 3: never above the limit, never worse than what is handcrafted for it, and without a bubble
// where twice the memory allows that.
TEST(ClosedForms, AutomaticZeroBubble) {
  for_grid(1, [](int p, int m) {
    if (m % p != 0) return;
    for (const PassTimes& t : {PassTimes{}, unequal, PassTimes{3, 1, 2, 1}, PassTimes{1, 4, 3, 2},
                               PassTimes{0, 0, 0, 0}, PassTimes{1, 1, 0, 0}}) {
      for (const double weight_memory : {0.0, 0.4, 1.0}) {
        for (const int limit : {1, p, 2 * p}) {
          const Schedule found = zb_auto_schedule(p, m, t, {.limit = 1.0 * limit, .weight_memory = weight_memory});
          EXPECT_LE(highest(found, weight_memory), limit + 1e-9) << p << " " << m;
          if (limit >= p) {
            EXPECT_LE(bubble_of(found, t), bubble_of(zb_h1_schedule(p, m), t)) << p << " " << m;
          }
          if (limit >= 2 * p) {
            EXPECT_LE(bubble_of(found, t), bubble_of(zb_h2_schedule(p, m), t)) << p << " " << m;
          }
        }
      }
    }
    if (m >= 2 * p) {
      EXPECT_EQ(bubble_of(zb_auto_schedule(p, m, {}, {.limit = 2.0 * p}), {}), 0);
    }
  });
}

// Whatever the table has runs each pass once, in an order that ends, on few microbatches and on many.
TEST(ClosedForms, EveryScheduleOfTheTableIsWhole) {
  for (const ScheduleEntry& entry : all_schedules()) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = std::max(1, entry.microbatches_per_rank * p); m <= 14; ++m) {
        for (int v = entry.least_virtual; v <= std::min(entry.most_virtual, 4); ++v) {
          const Schedule schedule =
              make_schedule(entry.kind, {.num_ranks = p, .num_microbatches = m, .num_virtual = v}, {});
          ASSERT_EQ(schedule.num_stages, p * v);
          std::vector<int> passes(3 * p * v * m);
          for (int rank = 0; rank < p; ++rank) {
            for (const Action& action : schedule.ranks[rank]) {
              ASSERT_EQ(schedule.rank_of_stage[action.stage], rank);
              int* const of_stage = &passes[3 * (action.stage * m + action.microbatch)];
              of_stage[0] += action.kind == ActionKind::forward;
              of_stage[1] += action.kind == ActionKind::backward || action.kind == ActionKind::backward_input;
              of_stage[2] += action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
              EXPECT_FALSE(entry.backward == BackwardKinds::fused && action.kind == ActionKind::backward_weight);
              EXPECT_FALSE(entry.backward == BackwardKinds::split && action.kind == ActionKind::backward);
            }
          }
          EXPECT_EQ(std::count(passes.begin(), passes.end(), 1), std::ssize(passes))
              << entry.name << " " << p << " " << m << " " << v;
          EXPECT_NO_THROW((void)simulate_schedule(schedule, unequal)) << entry.name << " " << p << " " << m << " " << v;
        }
      }
    }
  }
}

}  // namespace
}  // namespace echelon
