#include "predict/software/software_profile.h"

#include "base/error.h"

#include <algorithm>

namespace echelon {
namespace {

SoftwareProfile megatron(std::string_view name, std::string_view generation) {
  SoftwareProfile profile;
  profile.name = name;
  profile.generation = generation;
  profile.is_echelon = false;
  profile.attention = AttentionKernel::unfused;
  profile.has_dropout = true;
  profile.logit_bytes = 52;
  profile.overlap = {.hides_transfers = false, .hides_parameter_gathers = false};
  profile.host = {.waits_for_transfers = true, .updates_all_at_once = true};
  profile.loss_kernels = 36;
  profile.reduces_at_the_end = true;
  return profile;
}

SoftwareProfile torch(std::string_view name, std::string_view generation) {
  SoftwareProfile profile;
  profile.name = name;
  profile.generation = generation;
  profile.is_echelon = false;
  profile.has_biases = false;
  profile.has_positions = false;
  profile.reruns_whole_blocks = false;
  profile.optimizer_bytes = 0;
  profile.framework_bytes = std::int64_t{5} << 29;
  profile.accumulation_bytes = 0;
  profile.logit_bytes = 26;
  profile.loss_kernels = 6;
  profile.host.updates_all_at_once = true;
  profile.gathers_in_fp8 = true;
  profile.shards_loss_eagerly = true;
  profile.adds_whole_gradients = true;
  profile.keeps_outputs = true;
  return profile;
}

SoftwareProfile own_profile() {
  SoftwareProfile profile;
  profile.name = "echelon";
  profile.borrows_rates = true;
  return profile;
}

std::vector<SoftwareProfile> make_profiles() {
  std::vector<SoftwareProfile> profiles = {own_profile(), {}};  // the second one is ideal
  profiles.push_back(megatron("megatron-2019", "megatron-2019"));
  profiles.push_back(megatron("megatron-2020", "megatron-2020"));
  profiles.push_back(megatron("megatron-2021", "megatron"));
  profiles.push_back(megatron("megatron-2022", "megatron"));
  profiles.back().accumulates_in_matmuls = true;
  profiles.push_back(megatron("bloom", "bloom"));
  profiles.back().host.waits_for_kernels = true;
  profiles.push_back(megatron("megatron-deepspeed", "megatron-deepspeed"));
  for (std::size_t i = profiles.size() - 2; i < profiles.size(); ++i) {
    profiles[i].keeps_wide_gradients = true;
    profiles[i].fragmentation = 1.16;
    profiles[i].framework_bytes = 4'800'000'000;
  }
  profiles.push_back(megatron("deepspeed-zero3", "deepspeed-zero3"));
  profiles.back().gathers_each_parameter = true;
  profiles.back().host.copies_parts = true;
  profiles.push_back(megatron("zero-bubble", "zero-bubble"));
  profiles.back().accumulates_in_matmuls = true;
  profiles.back().softmax_bytes = 13;
  profiles.back().softmax_backward_bytes = 15;
  profiles.push_back(megatron("megatron-core", "megatron-core"));
  SoftwareProfile& core = profiles.back();
  core.attention = AttentionKernel::fused;
  core.has_dropout = false;
  core.attends_by_warpgroups = true;
  core.accumulates_in_matmuls = true;
  core.reduces_at_the_end = false;
  core.overlap = {};
  core.gathers_in_fp8 = true;        // TransformerEngine, LayerNormLinear
  core.casts_tokens_once = true;     // TransformerEngine, cast_transpose and is_first_microbatch
  core.rounds_key_gradients = true;  // TransformerEngine, AttnFuncWithCPAndKVP2P
  SoftwareProfile llama3 = core;     // Llama 3 Team 2024, arXiv:2407.21783, section 3.3.2
  llama3.name = "llama3";
  llama3.key_gathering = KeyGathering::awaited;
  profiles.push_back(std::move(llama3));
  profiles.push_back(torch("llm-foundry", "llm-foundry"));
  profiles.back().attends_in_triton = true;  // default of --attn_impl in its submit_benchmarks.py
  profiles.back().reruns_whole_blocks = true;
  profiles.push_back(torch("fsdp", "torch-compile"));
  profiles.push_back(torch("torchtitan", "torch-compile"));
  profiles.back().eager_bytes = 130;
  profiles.push_back(torch("torchtitan-compile", "torch-compile"));
  for (std::size_t i = profiles.size() - 2; i < profiles.size(); ++i) {
    profiles[i].key_gathering = KeyGathering::early;  // context_parallel_rotate_method = "allgather"
    profiles[i].repeats_kv_heads = true;              // repeat_kv comes before scaled_dot_product_attention
  }
  return profiles;
}

const std::vector<SoftwareProfile>& profiles() {
  static const std::vector<SoftwareProfile> all = make_profiles();
  return all;
}

void apply(std::string_view setting, SoftwareProfile& profile) {
  if (setting == "fp8")
    profile.computes_in_fp8 = true;
  else if (setting == "fp8-rowwise") {  // scales by row: slower matmuls, which gain nothing in the published runs
    profile.computes_in_fp8 = true;
    profile.fp8_speedup = 0.85;
  } else if (setting == "flash")
    profile.attention = AttentionKernel::fused;
  else if (setting == "unfused")
    profile.attention = AttentionKernel::unfused;
  else if (setting == "async-tp")
    profile.gathers_during_matmuls = true;
  else if (setting == "compiled-loss") {  // one pass forward; backward reads the logits and writes their gradient
    profile.compiles_loss = true;
    profile.logit_bytes = 8;
    profile.loss_kernels = 2;
  } else if (setting == "fused-loss") {  // Megatron-Core's cross_entropy_loss_fusion: 22 bytes forward, 6 backward
    profile.logit_bytes = 28;
    profile.loss_kernels = 8;
  } else if (setting == "dropout") {
    profile.has_dropout = true;
  } else {
    constexpr std::string_view settings[] = {"fp8",      "fp8-rowwise",   "flash",      "unfused",
                                             "async-tp", "compiled-loss", "fused-loss", "dropout"};
    throw Error(fmt::format("a software profile has no setting '{}'; did you mean {}?", setting,
                            closest_name(setting, settings)));
  }
}

}  // namespace

std::vector<std::string> software_profile_names() {
  std::vector<std::string> names;
  for (const SoftwareProfile& profile : profiles()) names.push_back(profile.name);
  return names;
}

SoftwareProfile software_profile(std::string_view name) {
  const std::string_view base = name.substr(0, name.find('+'));
  const auto found = std::find_if(profiles().begin(), profiles().end(),
                                  [&](const SoftwareProfile& each) { return each.name == base; });
  if (found == profiles().end()) {
    std::vector<std::string_view> names;
    for (const SoftwareProfile& profile : profiles()) names.emplace_back(profile.name);
    throw Error(fmt::format("there is no software profile '{}'; did you mean {}?", base, closest_name(base, names)));
  }
  SoftwareProfile profile = *found;
  profile.name = name;
  for (std::size_t at = base.size(); at < name.size();) {
    const std::size_t end = std::min(name.find('+', at + 1), name.size());
    apply(name.substr(at + 1, end - at - 1), profile);
    at = end;
  }
  return profile;
}

SoftwareProfile rates_of_profile(const SoftwareProfile& profile) {
  if (profile.is_echelon) return profile;
  SoftwareProfile rates;
  rates.name = profile.name;
  rates.generation = profile.generation;
  rates.borrows_rates = true;
  rates.attends_by_warpgroups = profile.attends_by_warpgroups;
  rates.calibration = profile.calibration;
  return rates;
}

}  // namespace echelon
