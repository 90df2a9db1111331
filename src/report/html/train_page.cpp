#include "report/html/train_page.h"

#include "base/median.h"
#include "base/text/counted.h"

#include <fmt/format.h>

#include <cmath>

namespace echelon {

void TrainPage::add(const StepReport& report) {
  steps_.push_back(static_cast<double>(report.step));
  losses_.push_back(report.loss);
  grad_norms_.push_back(report.grad_norm);
  lrs_.push_back(report.lr);
  tokens_per_second_.push_back(report.tokens_per_second);
  step_seconds_.push_back(report.step_seconds);
  last_ = report;
}

void TrainPage::add(const EvaluationReport& report) {
  validation_.x.push_back(static_cast<double>(report.step));
  validation_.y.push_back(report.loss);
}

void TrainPage::fill(HtmlReport& page) const {
  if (steps_.empty()) return;
  page.tiles = tiles();
  page.curves = curves();
  HtmlBars::Row sent = {.label = "rank 0"};
  for (const auto& [group, bytes] : last_.comm_bytes) sent.segments.push_back({group, static_cast<double>(bytes)});
  page.bars.push_back({.title = "Traffic",
                       .note = "Bytes that rank 0 sent in its last step, by the ranks to which: measured.",
                       .rows = {std::move(sent)}});
}

double TrainPage::median_step_seconds() const {
  if (step_seconds_.empty()) return 0;
  return median({step_seconds_.begin() + (step_seconds_.size() > 1 ? 1 : 0), step_seconds_.end()});
}

std::vector<HtmlTile> TrainPage::tiles() const {
  const double seconds = median_step_seconds();
  std::vector<HtmlTile> tiles = {
      {"Training loss", fmt::format("{:.4f}", losses_.back()), fmt::format("nats per token, step {}", last_.step)}};
  if (!validation_.y.empty())
    tiles.push_back({"Validation loss", fmt::format("{:.4f}", validation_.y.back()),
                     fmt::format("perplexity {:.2f}", std::exp(validation_.y.back()))});
  tiles.push_back({"Step time", text_of(HtmlUnit::seconds, seconds), "median of all but the first"});
  tiles.push_back({"Tokens per second", text_of(HtmlUnit::number, static_cast<double>(last_.tokens) / seconds),
                   "over " + counted(last_.world_size, "rank")});
  if (last_.mfu && seconds > 0)  // change relative to the other step time
    tiles.push_back({"MFU", fmt::format("{:.1f} %", *last_.mfu * last_.step_seconds / seconds), "of the median step"});
  tiles.push_back(
      {"Memory", text_of(HtmlUnit::bytes, static_cast<double>(last_.process_peak_bytes)), "of this process, at most"});
  return tiles;
}

std::vector<HtmlCurve> TrainPage::curves() const {
  const auto curve = [&](const char* title, const char* name, const std::vector<double>& y) {
    return HtmlCurve{.title = title, .series = {{name, steps_, y}}};
  };
  std::vector<HtmlCurve> curves = {curve("Loss, nats per token", "training", losses_),
                                   curve("Gradient norm before clipping", "gradient norm", grad_norms_),
                                   curve("Tokens per second", "tokens per second", tokens_per_second_),
                                   curve("Learning rate", "learning rate", lrs_)};
  if (!validation_.x.empty()) curves.front().series.push_back(validation_);
  return curves;
}

}  // namespace echelon
