// A small mixture of experts, and what `verify` says of it on a layout.
#pragma once

#include "verify/plants.h"
#include "verify/verify.h"

namespace echelon::testing {

struct MixtureLayout {
  int shard = 1, tp = 1, ep = 1;
  bool sequence_parallel = false;
  Family family = Family::mixtral;
  double bound = 1.2;
  BlockOperations recompute = {};
  bool losses = false;
  int cp = 1, pp = 1, microbatches = 2, sequences = 1;  // of a rank, and of each microbatch
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  double capacity = 0;  // of experts, by weights; 0: none
  int etp = 0;          // ranks with features of each expert
};

/// Of four experts each token has two.
[[nodiscard]] RunConfig mixture_config(const MixtureLayout& layout);
/// Three steps in float64 with uneven targets. One rank computes through `of_one_rank`.
[[nodiscard]] Verdict verdict_on(const MixtureLayout& layout, const Interpose& interpose,
                                 const Interpose& of_one_rank = {});

}  // namespace echelon::testing
