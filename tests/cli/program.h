// Runs the real program and collects its output and exit status.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace echelon {

struct Outcome {
  int status = -1;  // of the exit; 128 + the signal's number if a signal ended it
  std::string out, err;
  std::int64_t peak_memory_bytes = 0;  // of the process alone
};

/// `build/.../echelon arguments...`, without a shell between.
[[nodiscard]] Outcome run_echelon(const std::vector<std::string>& arguments);

/// The same with its output going to the file `path`; Outcome::out stays empty.
[[nodiscard]] Outcome run_echelon_into(const std::string& path, const std::vector<std::string>& arguments);

/// `mpirun -n num_processes echelon arguments...`, on however few cores.
[[nodiscard]] Outcome run_echelon_processes(int num_processes, const std::vector<std::string>& arguments);

/// The same, with a signal sent as soon as a line of its output contains `when`.
[[nodiscard]] Outcome interrupt_echelon(const std::vector<std::string>& arguments, const std::string& when,
                                        int signal = SIGINT);

/// Called once, as soon as what the command wrote on its standard output contains `when`.
struct Watch {
  std::string when;
  std::function<void()> then;
};

/// Any other command, found on the PATH, with its arguments.
[[nodiscard]] Outcome run_command(const std::vector<std::string>& command, const Watch& watch = {});

}  // namespace echelon
