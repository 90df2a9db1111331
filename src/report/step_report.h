// The report of one training step: torchtitan's step line and a JSON object.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace echelon {

struct PartOfPlan {
  std::int64_t part = 0, planned = 0;
};

/// How evenly a mixture's experts were loaded in a step, over all ranks.
struct MoeReport {
  std::vector<double> max_load = {};                  // of each layer with experts: the largest load over the mean
  std::vector<double> max_rank_load = {};             // the same of ranks, over which experts are; empty: of none
  std::vector<std::int64_t> idle_experts = {};        // of each layer: experts without a row
  std::vector<std::vector<std::int64_t>> loads = {};  // of each, on request: the rows of each expert
  std::vector<std::int64_t> dropped_rows = {};        // of each: beyond moe.capacity_factor
  // Of each, with experts over ranks: rounds of an exchange on average, and rows that backward passes received and
  // computed once more.
  std::vector<double> rounds = {};
  std::vector<std::int64_t> rows_again = {};
  // Of each layer, with their coefficients: 0 where moe has none.
  std::vector<double> seq_aux_loss = {}, global_aux_loss = {}, z_loss = {};
  bool is_forced = false;                               // by moe.force_balance
  std::vector<double> least_bias = {}, most_bias = {};  // of each layer; empty: there is none
};

struct StepReport {
  std::int64_t step = 0;
  double loss = 0;                        // mean over the step's valid tokens, in nats
  double grad_norm = 0;                   // before clipping
  std::optional<double> loss_scale = {};  // of this step's gradients; none: they are not scaled
  bool is_skipped = false;                // gradients overflowed: no weight was changed
  double lr = 0;
  std::int64_t tokens = 0;  // of this step, over all ranks
  double epoch = 0;         // how often the run has read its data
  double step_seconds = 0;
  bool takes_snapshot = false;       // of the state, from which a checkpoint is written meanwhile
  double snapshot_wait_seconds = 0;  // of it: updates waited for a disk, as the snapshot has no room for all values
  double tokens_per_second = 0;      // over all ranks
  double tflops = 0;                 // model flops per second over all ranks, in 10^12
  std::optional<double> mfu = {};    // percent of the machine's peak; none if the peak is unknown
  std::int64_t memory_peak_bytes = 0;
  std::int64_t memory_total_bytes = 0;  // total memory of the GPU or the machine; 0: unknown
  std::int64_t process_peak_bytes = 0;  // resident, of this rank's process with all its ranks
  std::int64_t page_faults = 0;         // of that process during the step
  std::int64_t world_size = 1;
  std::map<std::string, std::int64_t> comm_bytes = {};  // sent by this rank during the step, by the name of the group
  // The largest share of attention's pairs (query, key) over the mean: of the ranks of this rank's cp group, and of the
  // replicas. None: always the same, or not known.
  std::optional<double> cp_imbalance = {}, data_imbalance = {};
  // What documents leave of attention's pairs (query, key) on this rank, of one head and all layers, and of what it
  // sends over the ranks of context parallelism in bytes. None: all.
  std::optional<PartOfPlan> pairs = {}, cp_bytes = {};
  std::optional<MoeReport> moe = {};  // of a model with experts
  // Known before the run started; none: not predicted.
  std::optional<double> predicted_step_seconds = {};        // for every step after the first; others with a snapshot
  std::optional<std::int64_t> predicted_memory_bytes = {};  // of memory_peak_bytes
};

/// Sets tokens_per_second, tflops and mfu from tokens and step_seconds. `peak_flops`: dense flops per second of all
/// ranks together.
void set_rates(StepReport& report, double flops_per_token, std::optional<double> peak_flops);

/// "step: 1 loss: 8.31234 grad_norm: 1.2345 memory: 0.52GiB(1.00%) tps: 1,234 tflops: 0.12 mfu: N/A" is torchtitan's
/// line: tps and tflops are those of one rank. The loss scale, if any, and whether the step was skipped follow; then "
/// lr: 3.000e-04 seconds: 0.83 tokens/s of 4 ranks: 4,936". What is known of context ranks and of experts comes last: "
/// cp_imbalance: 1.002 data_imbalance: 1.050 pairs: 1,234 of 5,678 cp_bytes: 123 of 456 max_load: 1.234 seq_aux_loss:
/// 0.01234". With experts over ranks, " rounds: 1.250" tells how often an exchange took more than one; and a forced
/// balance is said.
[[nodiscard]] std::string step_line(const StepReport& report);

/// One line. Values read back as the same bits. Unknown, unpredicted and non-finite values are null.
[[nodiscard]] std::string to_json(const StepReport& report);

struct EvaluationReport {
  std::int64_t step = 0;
  double loss = 0;  // mean over the valid tokens, in nats
  std::int64_t tokens = 0;
  double seconds = 0;
  bool has_forced_balance = false;  // by moe.force_balance
};

/// "validate step: 100 loss: 3.21234 perplexity: 24.84 tokens: 65,536"
[[nodiscard]] std::string evaluation_line(const EvaluationReport& report);
[[nodiscard]] std::string to_json(const EvaluationReport& report);

}  // namespace echelon
