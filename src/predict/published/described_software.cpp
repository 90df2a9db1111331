// From the words that tables use for software to a profile.
#include "predict/published/published_row.h"
#include "predict/published/words.h"

#include <algorithm>

namespace echelon {
namespace {

/// The year of words such as "..._h200_202506_..." or "2025-06"; 0 without one.
int year_of(std::string_view words) {
  const auto is_digit = [&](std::size_t i) { return i < words.size() && words[i] >= '0' && words[i] <= '9'; };
  for (std::size_t at = words.find("20"); at != std::string_view::npos; at = words.find("20", at + 1)) {
    const std::size_t month = at + (words.substr(std::min(at + 4, words.size())).starts_with('-') ? 5 : 4);
    if (is_digit(at + 2) && is_digit(at + 3) && is_digit(month) && is_digit(month + 1) && !is_digit(month + 2))
      return 2000 + 10 * (words[at + 2] - '0') + (words[at + 3] - '0');
  }
  return 0;
}

/// Whether the words are a profile's own name, which may have settings.
bool is_profile(const std::string& words) {
  const std::vector<std::string> names = software_profile_names();
  return std::ranges::find(names, words.substr(0, words.find('+'))) != names.end();
}

}  // namespace

SoftwareProfile described_software(const SoftwareWords& words) {
  const std::string software = lower(words.software);
  struct Rule {
    std::string_view word, profile;
  };
  constexpr Rule rules[] = {
      {"foundry", "llm-foundry"},
      {"composer", "llm-foundry"},
      {"titan", "torchtitan"},
      {"zero bubble", "zero-bubble"},
      {"sail", "zero-bubble"},
      {"fsdp", "fsdp"},
      {"bigscience", "bloom"},
      {"bloom", "bloom"},
      {"zero-3", "deepspeed-zero3"},
      {"megatron-deepspeed", "megatron-deepspeed"},
      {"deepspeed", "deepspeed-zero3"},
      {"nemo", "megatron-core"},
      {"megatron-core", "megatron-core"},
      {"megatron-bridge", "megatron-core"},
      {"megascale", "megatron-core"},
      {"2019", "megatron-2019"},
      {"2020", "megatron-2020"},
      {"v1", "megatron-2020"},
      {"2021", "megatron-2021"},
      {"2022", "megatron-2022"},
      {"megatron", "megatron-core"},
  };
  const bool is_blank = std::ranges::all_of(software, [](char c) { return c == ' '; });
  std::string name = is_blank ? "megatron-core" : "fsdp";
  const auto rule = std::ranges::find_if(rules, [&](const Rule& each) { return has(software, each.word); });
  if (rule != std::end(rules)) name = rule->profile;
  if (is_profile(software)) name = software;
  if (name == "torchtitan" && has(software, "compile")) name = "torchtitan-compile";
  if (has(lower(words.precision), "rowwise"))
    name += "+fp8-rowwise";
  else if (has(lower(words.precision), "fp8") || has(lower(words.precision), "fp4"))
    name += "+fp8";
  if (words.flash_attn == "1") name += "+flash";
  if (words.flash_attn == "0") name += "+unfused";
  // NeMo's recipes for large models have set tp_comm_overlap and cross_entropy_loss_fusion since then; those of GPT-3
  // have dropout.
  const bool is_nemo = is_recent_nemo(software);
  if (words.async_tp == "1" || is_nemo) name += "+async-tp";
  if (is_nemo) name += "+fused-loss";
  if (is_nemo && has(lower(words.mlp), "gelu")) name += "+dropout";
  // Torchtitan compiles it since then.
  if (name.starts_with("torchtitan-compile") && year_of(words.source) >= 2025) name += "+compiled-loss";
  return software_profile(name);
}

}  // namespace echelon
