#include "plan/space/training_request.h"

#include "base/error.h"

#include <cctype>
#include <charconv>

namespace echelon {
namespace {

constexpr double most_tokens = 1e18, longest_seconds = 3.6e9, longest_hours = 1e9;

/// 0 if the text is not empty and no letter that multiplies.
double factor_of(std::string_view suffix) {
  if (suffix.empty()) return 1;
  if (suffix.size() > 1) return 0;
  switch (std::toupper(static_cast<unsigned char>(suffix.front()))) {
    case 'K': return 1e3;
    case 'M': return 1e6;
    case 'B': return 1e9;
    case 'T': return 1e12;
  }
  return 0;
}

void check_failures(const TrainingQuestion& question) {
  if (!question.mtbf_hours) {
    require(!question.checkpoint_seconds && !question.restart_seconds,
            "--checkpoint-seconds and --restart-seconds need --mtbf, the hours between failures of a device");
    return;
  }
  require(*question.mtbf_hours > 0 && *question.mtbf_hours <= longest_hours,
          "--mtbf={} is not the hours between failures of a device (example: --mtbf=50000)", *question.mtbf_hours);
  const double checkpoint = question.checkpoint_seconds.value_or(1), restart = question.restart_seconds.value_or(0);
  require(checkpoint > 0 && checkpoint <= longest_seconds,
          "--checkpoint-seconds={} is not the time of a checkpoint (example: --checkpoint-seconds=30)", checkpoint);
  require(restart >= 0 && restart <= longest_seconds,
          "--restart-seconds={} is not the time of a restart (example: --restart-seconds=600)", restart);
}

}  // namespace

double parse_tokens(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const double tokens = error == std::errc() ? value * factor_of({end, text.data() + text.size()}) : 0;
  require(tokens >= 1 && tokens <= most_tokens, "--tokens={} is not a number of tokens (example: --tokens=15T)", text);
  return tokens;
}

std::optional<TrainingRequest> read_training_request(const TrainingQuestion& question) {
  if (question.tokens.empty()) {
    require(!question.mtbf_hours && !question.checkpoint_seconds && !question.restart_seconds,
            "--mtbf, --checkpoint-seconds and --restart-seconds need --tokens, whose days they change (example: "
            "--tokens=15T)");
    return std::nullopt;
  }
  check_failures(question);
  return TrainingRequest{parse_tokens(question.tokens), question.mtbf_hours, question.checkpoint_seconds,
                         question.restart_seconds};
}

}  // namespace echelon
