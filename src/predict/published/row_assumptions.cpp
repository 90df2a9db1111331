#include "predict/published/row_assumptions.h"

#include "predict/published/words.h"
#include "schedule/generators/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace echelon {
namespace {

/// A column of words and those that predict/published/published_row.cpp and predict/published/described_machine.cpp
/// look for.
struct KnownWords {
  std::string_view column;
  std::vector<std::string_view> words;
  std::string taken;  // where none of them is found
};

std::vector<KnownWords> known_words(const DescribedRun& run) {
  std::vector<KnownWords> all = {
      {"mlp", {"glu", "gelu", "relu"}, "gelu4h"},
      {"recompute", {"no", "full", "layer", "op", "selective", "attn", "qkv"}, "none"},
      {"flash_attn", {"0", "1"}, "what the software does"},
      {"async_tp", {"0", "1"}, "0"},
      {"gpu_mem_gb", {"1", "2", "3", "4", "5", "6", "7", "8", "9"}, fmt::format("the memory of {}", run.machine.name)},
      {"intra", {"nvlink", "nvl", "nvswitch", "pcie"}, fmt::format("the links of {}", run.machine.name)},
      {"inter_per_node", {"gb", "tb"}, fmt::format("the network of {}", run.machine.name)},
  };
  const ParallelConfig& p = run.config.parallelism;
  if (p.pipeline_parallel_degree > 1)
    all.push_back({"schedule",
                   {"1f1b", "interleav", "gpipe", "zb", "1p", "2p", "h1", "h2", "none"},
                   std::string(name_of(p.pipeline_parallel_schedule))});
  return all;
}

bool knows(const KnownWords& known, const std::string& text) {
  return std::any_of(known.words.begin(), known.words.end(), [&](std::string_view word) { return has(text, word); });
}

bool is_zero(const std::string& text) {
  char* end = nullptr;
  return !text.empty() && std::strtod(text.c_str(), &end) == 0 && end != text.c_str();
}

void compare(std::vector<std::string>& sentences, const CsvRow& row, std::string_view column, std::int64_t taken,
             std::string_view why) {
  const std::string text = row.at(column);
  if (!text.empty() && !is_zero(text) && std::strtod(text.c_str(), nullptr) != static_cast<double>(taken))
    sentences.push_back(fmt::format("{} = '{}' {}; {} is taken", column, text, why, taken));
}

/// Those that are read, and what published tables also have.
bool is_known_column(const std::string& column) {
  constexpr std::string_view known[] = {
      " layers hidden heads kv_heads head_dim ffn mlp vocab seq experts topk shared_ffn balance params_b ",
      " gpu gpu_mem_gb gpus intra inter_per_node tp pp vpp cp dp ep etp mbs gbs sp recompute zero dist_opt ",
      " precision flash_attn schedule software async_tp source documents id ",
      " group model provenance notes completeness calculon_can quantity value unit speedup iter_time_s ",
      " iter_time_kind iter_time_ms tflops_gpu tflops_kind tflops_without_cp mfu_pct hfu_pct tok_s_gpu mem_gb "};
  return std::any_of(std::begin(known), std::end(known),
                     [&](std::string_view names) { return has(names, " " + column + " "); });
}

}  // namespace

std::vector<std::string> assumptions_of(const CsvRow& row, const DescribedRun& run) {
  std::vector<std::string> sentences;
  for (const KnownWords& known : known_words(run)) {
    const std::string text = row.at(known.column);
    if (!text.empty() && !knows(known, lower(text)))
      sentences.push_back(fmt::format("{} = '{}' is not known; {} is taken", known.column, text, known.taken));
  }
  const std::string software = row.at("software");
  if (!software.empty() && run.profile.name.starts_with("fsdp") && !has(lower(software), "fsdp"))
    sentences.push_back(fmt::format("software = '{}' is not known; {} is taken", software, run.profile.name));
  for (const char* column : {"heads", "kv_heads", "mbs", "tp", "pp", "vpp", "cp", "ep"})
    if (is_zero(row.at(column))) sentences.push_back(fmt::format("{} = 0 is read as blank", column));
  for (const auto& [column, text] : row.fields)
    if (!is_known_column(column) && !row.at(column).empty())
      sentences.push_back(
          fmt::format("{} = '{}' is in a column that is not known; nothing is read from it", column, row.at(column)));
  const TrainingConfig& training = run.config.training;
  compare(sentences, row, "mbs", training.micro_batch_size, "is more than the sequences of a data-parallel rank");
  compare(sentences, row, "gbs", training.global_batch_size,
          fmt::format("is not a multiple of {} data-parallel ranks x microbatches of {}",
                      run.config.data_parallel_degree(), training.micro_batch_size));
  return sentences;
}

}  // namespace echelon
