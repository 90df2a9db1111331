// Ranks that do something together learn from each other whether it worked.
#pragma once

#include "base/error.h"
#include "comm/comm.h"

#include <functional>
#include <optional>
#include <string>

namespace echelon {

/// What went wrong on the first rank where something did; the same on all ranks.
struct SharedFailure {
  std::string sentence;
  int rank = 0;
  ExitStatus status = ExitStatus::failure;
};

/// Collective. Runs this rank's part; none if no rank's threw Error.
[[nodiscard]] std::optional<SharedFailure> agreed_failure(Comm& all, const std::function<void()>& part);
/// The same for parts that take longer than ranks may wait for each other: each is called until it returns true.
[[nodiscard]] std::optional<SharedFailure> agreed_failure_of_all(Comm& all, const std::function<bool()>& part);

/// Collective, after agreed_failure(): the rank that failed throws Error with its sentence, which ends the others.
[[noreturn]] void throw_agreed(Comm& all, const SharedFailure& failure);

}  // namespace echelon
