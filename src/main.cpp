#include "base/error.h"
#include "cli/cli.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

// After a failure threads of a library may still free what a device has: no destructors run under them.
int main(int argc, char** argv) {
  const int status = echelon::run_cli({argv + 1, argv + argc});
  if (status != static_cast<int>(echelon::ExitStatus::failure)) return status;
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);
}
