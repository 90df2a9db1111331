#include "measure/this_machine.h"

#include "base/clock.h"
#include "measure/kept_machine.h"
#include "measure/measure_machine.h"

#include <fmt/format.h>

#include <cstdio>

namespace echelon {

MachineSpec this_machine() {
  const double start = now_seconds();
  // The short form of echelon bench: every size once.
  const KeptMachine machine = kept_machine(unmeasured_machine(), cache_folder(),
                                           [] { return measure_machine({.seconds = 0.05, .num_rounds = 1}); });
  const std::string kept = machine.path.empty() ? "and not stored, because no cache folder can be written"
                                                : fmt::format("and kept in {}", machine.path.string());
  if (machine.is_new)
    fmt::print(stderr, "no --machine: this one, {}, measured in {:.1f} s {}\n", machine.host.processor,
               now_seconds() - start, kept);
  else
    fmt::print(stderr, "no --machine: this one, {}, as {} says; remove that file to have it measured again\n",
               machine.host.processor, machine.path.string());
  return machine_of(machine.host);
}

}  // namespace echelon
