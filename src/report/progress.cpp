#include "report/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

namespace echelon {
namespace {

constexpr std::size_t num_recent = 20;
constexpr std::int64_t bar_width = 20;
constexpr std::string_view start_of_line = "\r\x1b[K";  // returns to column 0 and clears the line

}  // namespace

void Progress::step(const StepReport& report) {
  recent_seconds_.push_back(report.step_seconds);
  if (recent_seconds_.size() > num_recent) recent_seconds_.pop_front();
  switch (options_.style) {
    case ProgressStyle::terminal: draw(report); break;
    case ProgressStyle::log: {
      const bool due = report.step == 1 || report.step == options_.num_steps || report.step % options_.log_freq == 0;
      if (due) out_ << step_line(report) << "  eta: " << duration(eta_seconds(report.step)) << '\n' << std::flush;
      break;
    }
  }
}

void Progress::note(const std::string& line) {
  if (options_.style == ProgressStyle::terminal) out_ << start_of_line;
  out_ << line << '\n' << drawn_ << std::flush;
}

Progress::~Progress() {
  if (!drawn_.empty()) out_ << '\n' << std::flush;
}

// Recent steps only: the first ones are slow, and the machine's load changes.
double Progress::eta_seconds(std::int64_t step) const {
  const double mean = std::accumulate(recent_seconds_.begin(), recent_seconds_.end(), 0.0) /
                      static_cast<double>(recent_seconds_.size());
  return mean * static_cast<double>(options_.num_steps - step);
}

void Progress::draw(const StepReport& report) {
  const std::int64_t filled =
      options_.num_steps > 0 ? bar_width * std::min(report.step, options_.num_steps) / options_.num_steps : 0;
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(bar_width - filled), '.');
  drawn_ = fmt::format("[{}] {}/{}  loss {:.4f}  {:.0f} tokens/s  eta {}", bar, report.step, options_.num_steps,
                       report.loss, report.tokens_per_second, duration(eta_seconds(report.step)));
  out_ << start_of_line << drawn_ << std::flush;
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "N/A";
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

}  // namespace echelon
