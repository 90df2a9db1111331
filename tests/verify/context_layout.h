// Layouts with context parallelism of a small model, for injected faults to be named in.
#pragma once

#include "verify/plants.h"
#include "verify/verify.h"

#include <gtest/gtest.h>

namespace echelon::testing {

struct ContextLayout {
  int cp = 2, replicate = 1, shard = 1, tp = 1, pp = 1;
  bool sequence_parallel = false;
  LoadBalancer balancer = LoadBalancer::headtail;
  bool documents = false;
  Family family = Family::llama;
  int zero = 1;
  BlockOperations recompute = {};
  int seq_len = 13, micro_batch_size = 1, microbatches = 2;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  bool positions = false;  // that restart at documents
  int window = 0;          // of the layers after the first
  ContextMethod method = ContextMethod::ring;
  int ulysses = 0;  // u of ulysses_ring
  int kv_heads = 2;
};
[[nodiscard]] RunConfig context_config(const ContextLayout& layout);
[[nodiscard]] const BatchSource& context_tokens();
[[nodiscard]] Verdict context_verdict(const ContextLayout& layout, const Interpose& interpose);

struct PlantedInContext {
  std::string name;
  ContextLayout layout;
  Seed seed;
  FaultKind kind;
  std::string axis, tensor;  // `tensor`: what the finding's tensor must contain
  std::string evidence = "";
};
void PrintTo(const PlantedInContext& planted, std::ostream* out);

/// The verdict has the fault.
void expect_named(const PlantedInContext& planted);

}  // namespace echelon::testing
