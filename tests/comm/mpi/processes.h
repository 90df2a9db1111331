// The processes of a test program under mpirun.
#pragma once

namespace echelon {

[[nodiscard]] int process_rank();
[[nodiscard]] int num_processes();

}  // namespace echelon
