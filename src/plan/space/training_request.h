// The training that a plan is asked about: its tokens or its hours, and the failures that interrupt it.
#pragma once

#include "spec/machine/machine_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

/// The words of a command line.
struct TrainingQuestion {
  std::string tokens = {};  // "15T", "300B", "1.5e12"; empty: not asked
  std::optional<double> hours = {};
  std::string mtbf = {};      // "50000", "6000/node", "3/job"
  std::string failures = {};  // "419,54,16384": so many in so many days on so many devices
  std::optional<double> checkpoint_seconds = {}, restart_seconds = {};
};

/// What fails on its own. Threads fail with their host, which is their device and their node.
enum class FailingUnit : std::uint8_t { device, node, job };
[[nodiscard]] std::string_view name_of(FailingUnit unit);

/// Mean time between failures of a unit.
struct Mtbf {
  double hours = 0;
  FailingUnit of = FailingUnit::device;
};

struct TrainingRequest {
  std::optional<double> tokens = {}, hours = {};  // one of them at least; both: whether the hours are enough
  std::optional<Mtbf> mtbf = {};                  // none: nothing fails
  std::optional<double> checkpoint_seconds = {};  // in which training is stopped; none: as predicted
  // From a failure until training continues. None: default_restart_seconds on GPUs, and to read a checkpoint, as far
  // as that is predicted.
  std::optional<double> restart_seconds = {};
};

/// To detect a failure and to find its cause: on average less than this on 12,288 GPUs (MegaScale, Jiang et al. 2024,
/// arXiv:2402.15627, section 6.3).
inline constexpr double default_restart_seconds = 600;

/// A positive number, which K, M, B or T multiplies by 1e3, 1e6, 1e9 or 1e12. Throws Error for other text.
[[nodiscard]] double parse_tokens(std::string_view text);
/// Hours, and of what after a slash: "50000", "50000/device", "6000/node", "3/job". Throws Error for other text.
[[nodiscard]] Mtbf parse_mtbf(std::string_view text);
/// "419,54,16384": failures, days and devices, of one device 24 x 54 x 16384 / 419 hours. Throws Error for other text.
[[nodiscard]] Mtbf parse_failures(std::string_view text);

/// None if neither tokens nor hours are asked for. Throws Error naming the flag, its value and a value that works.
[[nodiscard]] std::optional<TrainingRequest> read_training_request(const TrainingQuestion& question);

inline constexpr std::string_view unknown_checkpoint_seconds =
    "--mtbf={:.6g}/{} needs --checkpoint-seconds, since the disk of the machine '{}' was not measured (example: "
    "--checkpoint-seconds=30)";
/// Before a search: throws Error if failures are asked for, and nothing says how long a checkpoint takes.
void require_checkpoint_seconds(const std::optional<TrainingRequest>& request, const MachineSpec& machine);

}  // namespace echelon
