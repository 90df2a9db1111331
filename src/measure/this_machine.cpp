#include "measure/this_machine.h"

#include "base/clock.h"
#include "base/text/tell.h"
#include "machine/busy_time.h"
#include "measure/kept_machine.h"
#include "measure/measure_machine.h"
#include "spec/machine/probe_errors.h"

#include <fmt/format.h>

#include <cstdio>

namespace echelon {

MachineSpec this_machine() {
  const double start = now_seconds();
  // The short form of echelon bench: every size once.
  const auto measure = [] {
    const OthersMeter others;
    const HostSpec host = measure_machine({.seconds = 0.05, .num_rounds = 1});
    return Measurement{host, others.share()};
  };
  const KeptMachine machine =
      kept_machine(unmeasured_machine(), cache_folder(), {measure, [] { return share_of_others(0.3); }});
  const std::vector<std::string> errors = probe_errors(machine.host);
  const std::string kept = !errors.empty()        ? "and not stored, because its rates contradict each other"
                           : machine.path.empty() ? "and not stored, because no cache folder can be written"
                                                  : fmt::format("and kept in {}", machine.path.string());
  if (machine.is_new)
    tell("no --machine: this one, {}, measured in {:.1f} s {}\n", machine.host.processor, now_seconds() - start, kept);
  else
    tell("no --machine: this one, {}, as {} says; remove that file to have it measured again\n", machine.host.processor,
         machine.path.string());
  for (const std::string& error : errors) tell("{}\n", error);
  if (machine.was_busy)
    tell("other processes used its cores while it was measured; it is measured again when it is idle\n");
  return machine_of(machine.host);
}

}  // namespace echelon
