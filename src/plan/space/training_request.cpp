#include "plan/space/training_request.h"

#include "base/error.h"

#include <algorithm>
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

bool read_whole(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_mtbf(double hours) { return hours > 0 && hours <= longest_hours; }

/// Of none of the flags that say more about failures and their cost.
void require_failures(const TrainingQuestion& question) {
  require(question.mtbf.empty() || question.failures.empty(),
          "--mtbf={} and --failures={} set the same value; omit one of them", question.mtbf, question.failures);
  const bool has_failures = !question.mtbf.empty() || !question.failures.empty();
  require(has_failures || (!question.checkpoint_seconds && !question.restart_seconds),
          "--checkpoint-seconds and --restart-seconds need --mtbf, the hours between failures (example: --mtbf=50000)");
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

std::string_view name_of(FailingUnit unit) {
  switch (unit) {
    case FailingUnit::device: return "device";
    case FailingUnit::node: return "node";
    case FailingUnit::job: return "job";
  }
  return "?";
}

Mtbf parse_mtbf(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string_view unit = slash < text.size() ? text.substr(slash + 1) : "device";
  for (const FailingUnit of : {FailingUnit::device, FailingUnit::node, FailingUnit::job})
    if (double hours = 0; unit == name_of(of) && read_whole(text.substr(0, slash), hours) && is_mtbf(hours))
      return {hours, of};
  throw Error(
      fmt::format("--mtbf={} is not the hours between failures of a device, a node or the job (examples: --mtbf=50000, "
                  "--mtbf=6000/node, --mtbf=3/job)",
                  text));
}

Mtbf parse_failures(std::string_view text) {
  const std::size_t first = std::min(text.find(','), text.size()),
                    second = std::min(text.find(',', first + 1), text.size());
  double failures = 0, days = 0, devices = 0;
  const bool is_read = second < text.size() && read_whole(text.substr(0, first), failures) &&
                       read_whole(text.substr(first + 1, second - first - 1), days) &&
                       read_whole(text.substr(second + 1), devices);
  const double hours = is_read && failures > 0 && days > 0 && devices > 0 ? 24 * days * devices / failures : 0;
  require(is_mtbf(hours), "--failures={} is not failures, days and devices (example: --failures=419,54,16384)", text);
  return {hours, FailingUnit::device};
}

void require_checkpoint_seconds(const std::optional<TrainingRequest>& request, const MachineSpec& machine) {
  if (!request || !request->mtbf || request->checkpoint_seconds || machine.host) return;
  const bool is_measured = std::any_of(machine.nodes.begin(), machine.nodes.end(),
                                       [](const NodeSpec& node) { return node.disk.write_bandwidth > 0; });
  require(is_measured, unknown_checkpoint_seconds, request->mtbf->hours, name_of(request->mtbf->of), machine.name);
}

std::optional<TrainingRequest> read_training_request(const TrainingQuestion& question) {
  if (question.tokens.empty() && !question.hours) {
    require(
        question.mtbf.empty() && question.failures.empty() && !question.checkpoint_seconds && !question.restart_seconds,
        "--mtbf, --failures, --checkpoint-seconds and --restart-seconds need --tokens or --hours, which they change "
        "(example: --tokens=15T)");
    return std::nullopt;
  }
  require_failures(question);
  require(!question.hours || (*question.hours > 0 && *question.hours <= longest_hours),
          "--hours={} is not a time of training (example: --hours=24)", question.hours.value_or(0));
  TrainingRequest request = {.hours = question.hours,
                             .checkpoint_seconds = question.checkpoint_seconds,
                             .restart_seconds = question.restart_seconds};
  if (!question.tokens.empty()) request.tokens = parse_tokens(question.tokens);
  if (!question.mtbf.empty()) request.mtbf = parse_mtbf(question.mtbf);
  if (!question.failures.empty()) request.mtbf = parse_failures(question.failures);
  return request;
}

}  // namespace echelon
