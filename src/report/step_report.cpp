#include "report/step_report.h"

#include "base/text/counted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace echelon {
namespace {

constexpr double gibibyte = 1024.0 * 1024 * 1024;

// 1234567.891 with two digits: "1,234,567.89". Independent of the locale.
std::string with_commas(double value, int num_digits) {
  std::string text = fmt::format("{:.{}f}", value, num_digits);
  if (!std::isfinite(value)) return text;
  const std::size_t first_digit = text.starts_with('-') ? 1 : 0;
  const std::size_t point = std::min(text.find('.'), text.size());
  for (std::size_t i = point; i > first_digit + 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string percent_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "N/A" : fmt::format("{:.2f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

constexpr std::string_view forced_balance = "  balance: forced";

std::string imbalance(std::string_view of, std::optional<double> largest_over_mean) {
  return largest_over_mean ? fmt::format("  {}_imbalance: {:.3f}", of, *largest_over_mean) : "";
}

std::string part_of(std::string_view of, const std::optional<PartOfPlan>& of_plan) {
  if (!of_plan) return "";
  return fmt::format("  {}: {} of {}", of, with_commas(static_cast<double>(of_plan->part), 0),
                     with_commas(static_cast<double>(of_plan->planned), 0));
}

std::array<std::pair<const char*, const std::vector<double>*>, 3> router_losses(const MoeReport& moe) {
  return {{{"seq_aux_loss", &moe.seq_aux_loss}, {"global_aux_loss", &moe.global_aux_loss}, {"z_loss", &moe.z_loss}}};
}

template <class T>
T sum(const std::vector<T>& of_layers) {
  return std::accumulate(of_layers.begin(), of_layers.end(), T());
}

/// Every layer has as many exchanges.
double rounds(const MoeReport& moe) { return sum(moe.rounds) / static_cast<double>(moe.rounds.size()); }

/// The most loaded layer, and the losses that there are.
std::string experts(const MoeReport& moe) {
  std::string text;
  if (!moe.max_load.empty()) text += fmt::format("  max_load: {:.3f}", *std::ranges::max_element(moe.max_load));
  if (moe.is_forced) text += forced_balance;
  if (!moe.rounds.empty() && rounds(moe) != 1) text += fmt::format("  rounds: {:.3f}", rounds(moe));
  for (const auto& [name, of_layers] : router_losses(moe))
    if (const double loss = sum(*of_layers); loss != 0) text += fmt::format("  {}: {:.5f}", name, loss);
  return text;
}

nlohmann::ordered_json to_json(const MoeReport& moe) {
  nlohmann::ordered_json json = {
      {"max_load", moe.max_load}, {"idle_experts", moe.idle_experts}, {"dropped_rows", moe.dropped_rows}};
  for (const auto& [name, of_layers] : router_losses(moe)) {
    json[name] = sum(*of_layers);
    if (json[name] != 0) json[fmt::format("{}_of_layers", name)] = *of_layers;
  }
  if (moe.is_forced) json["force_balance"] = true;
  if (!moe.max_rank_load.empty()) json["max_rank_load"] = moe.max_rank_load;
  if (!moe.rounds.empty())
    json.update({{"rounds", rounds(moe)},
                 {"rounds_of_layers", moe.rounds},
                 {"rows_again", sum(moe.rows_again)},
                 {"rows_again_of_layers", moe.rows_again}});
  if (!moe.loads.empty()) json["loads"] = moe.loads;
  if (!moe.least_bias.empty()) json["bias"] = {{"least", moe.least_bias}, {"most", moe.most_bias}};
  return json;
}

}  // namespace

void set_rates(StepReport& report, double flops_per_token, std::optional<double> peak_flops) {
  report.tokens_per_second = report.step_seconds > 0 ? static_cast<double>(report.tokens) / report.step_seconds : 0;
  const double flops = report.tokens_per_second * flops_per_token;
  report.tflops = flops / 1e12;
  report.mfu = peak_flops ? std::optional(100 * flops / *peak_flops) : std::nullopt;
}

std::string step_line(const StepReport& r) {
  const double ranks = static_cast<double>(r.world_size);
  const std::string mfu = r.mfu ? fmt::format("{:.2f}%", *r.mfu) : "N/A";
  const std::string scale = r.loss_scale ? fmt::format("  loss_scale: {}{}", *r.loss_scale,
                                                       r.is_skipped ? "  skipped: gradients overflowed" : "")
                                         : "";
  const std::string wait =
      r.snapshot_wait_seconds > 0 ? fmt::format("  waited for the disk: {:.3g} s", r.snapshot_wait_seconds) : "";
  const std::string pairs = imbalance("cp", r.cp_imbalance) + imbalance("data", r.data_imbalance) +
                            part_of("pairs", r.pairs) + part_of("cp_bytes", r.cp_bytes) +
                            (r.moe ? experts(*r.moe) : "");
  return fmt::format(
      "step: {:2}  loss: {:>8.5f}  grad_norm: {:>7.4f}  memory: {:5.2f}GiB({})  tps: {}  tflops: {}  mfu: {}{}  lr: "
      "{:.3e}  seconds: {:.4g}  tokens/s of {}: {}{}{}",
      r.step, r.loss, r.grad_norm, static_cast<double>(r.memory_peak_bytes) / gibibyte,
      percent_of(r.memory_peak_bytes, r.memory_total_bytes), with_commas(r.tokens_per_second / ranks, 0),
      with_commas(r.tflops / ranks, 2), mfu, scale, r.lr, r.step_seconds, counted(r.world_size, "rank"),
      with_commas(r.tokens_per_second, 0), pairs, wait);
}

std::string to_json(const StepReport& r) {
  nlohmann::ordered_json json = {
      {"step", r.step},
      {"loss", r.loss},
      {"grad_norm", r.grad_norm},
      {"loss_scale", nullptr},
      {"skipped", r.is_skipped},
      {"lr", r.lr},
      {"tokens", r.tokens},
      {"epoch", r.epoch},
      {"step_seconds", r.step_seconds},
      {"takes_snapshot", r.takes_snapshot},
      {"snapshot_wait_seconds", r.snapshot_wait_seconds},
      {"tokens_per_second", r.tokens_per_second},
      {"tflops", r.tflops},
      {"mfu", nullptr},
      {"memory_peak_bytes", r.memory_peak_bytes},
      {"process_peak_bytes", r.process_peak_bytes},
      {"page_faults", r.page_faults},
      {"world_size", r.world_size},
      {"comm_bytes", r.comm_bytes},
      {"cp_imbalance", nullptr},
      {"data_imbalance", nullptr},
      {"pairs", nullptr},
      {"planned_pairs", nullptr},
      {"cp_bytes", nullptr},
      {"planned_cp_bytes", nullptr},
      {"predicted_step_seconds", nullptr},
      {"predicted_memory_bytes", nullptr},
  };
  if (r.loss_scale) json["loss_scale"] = *r.loss_scale;
  if (r.mfu) json["mfu"] = *r.mfu;
  if (r.cp_imbalance) json["cp_imbalance"] = *r.cp_imbalance;
  if (r.data_imbalance) json["data_imbalance"] = *r.data_imbalance;
  const auto set_part = [&](const std::string& name, const std::optional<PartOfPlan>& of_plan) {
    if (!of_plan) return;
    json[name] = of_plan->part;
    json["planned_" + name] = of_plan->planned;
  };
  set_part("pairs", r.pairs);
  set_part("cp_bytes", r.cp_bytes);
  if (r.moe) json["moe"] = to_json(*r.moe);
  if (r.predicted_step_seconds) json["predicted_step_seconds"] = *r.predicted_step_seconds;
  if (r.predicted_memory_bytes) json["predicted_memory_bytes"] = *r.predicted_memory_bytes;
  return json.dump();
}

std::string evaluation_line(const EvaluationReport& r) {
  return fmt::format("validate step: {:2}  loss: {:>8.5f}  perplexity: {}  tokens: {}{}", r.step, r.loss,
                     with_commas(std::exp(r.loss), 2), with_commas(static_cast<double>(r.tokens), 0),
                     r.has_forced_balance ? forced_balance : "");
}

std::string to_json(const EvaluationReport& r) {
  nlohmann::ordered_json json = {{"step", r.step},
                                 {"validation_loss", r.loss},
                                 {"validation_perplexity", std::exp(r.loss)},
                                 {"validation_tokens", r.tokens},
                                 {"validation_seconds", r.seconds}};
  if (r.has_forced_balance) json["force_balance"] = true;
  return json.dump();
}

}  // namespace echelon
