// A training run as tables of published results describe it, one per row: as a config, a machine and the software that
// ran it.
#pragma once

#include "base/csv.h"
#include "predict/software/software_profile.h"
#include "spec/config/run_config.h"
#include "spec/machine/machine_spec.h"

namespace echelon {

struct DescribedRun {
  RunConfig config;
  MachineSpec machine;
  SoftwareProfile profile;
};

/// Columns: layers, hidden, heads, kv_heads, head_dim, ffn, mlp, vocab, seq, gpu, gpu_mem_gb, gpus, intra,
/// inter_per_node, tp, pp, vpp, cp, dp, ep, etp, experts, topk, shared_ffn, balance, mbs, gbs, sp, recompute, zero,
/// precision, flash_attn, schedule, software, async_tp, source. What is blank takes its usual value; without layers,
/// hidden, seq, gpu, gpus or gbs there is no run. Experts have ffn features each and equal loads; where etp is blank,
/// tensor-parallel ranks divide their features. `simulate --rows` also reads documents. Throws Error with a sentence
/// for what Echelon cannot express, such as sizes that contradict each other.
[[nodiscard]] DescribedRun described_run(const CsvRow& row);

/// Those without which no row is a run.
inline constexpr std::string_view needed_columns[] = {"layers", "hidden", "seq", "gpu", "gpus", "gbs"};

/// The cluster that words describe, such as "H100-80GB-SXM", "80", "NVLink4", "8x400Gb". Throws Error with a value to
/// use GPU.
struct ClusterWords {
  std::string gpu, gpu_mem_gb, intra, inter_per_node;
  std::int64_t num_gpus = 0;  // of the run; 0: unknown
};
[[nodiscard]] MachineSpec described_machine(const ClusterWords& words);

/// The profile of software called such as "Megatron-LM 2021" with attention fused or not, precision and so on.
struct SoftwareWords {
  std::string software, precision, flash_attn, async_tp, zero, source = {}, mlp = {};
};
[[nodiscard]] SoftwareProfile described_software(const SoftwareWords& words);

}  // namespace echelon
