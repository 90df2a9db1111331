// main() of a benchmark whose thread ranks share one core: PROGRAM [TURNS [--section.key=value ...]].
#pragma once

#include "base/error.h"
#include "machine/cpus.h"
#include "spec/config/config_reader.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace echelon {

/// compare(config, num_turns); `options` come before those of the command line. Returns the exit status.
template <class Compare>
int run_in_turns(int argc, char** argv, int num_turns, std::vector<std::string> options, const Compare& compare) {
  try {
    if (argc > 1) num_turns = std::atoi(argv[1]);
    if (argc > 2) options.insert(options.end(), argv + 2, argv + argc);
    bind_this_thread({allowed_cpus().front()});
    compare(read_run_config({.path = {}, .arguments = options, .read_model = {}}), num_turns);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}

}  // namespace echelon
