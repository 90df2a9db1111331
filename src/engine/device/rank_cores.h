// Where a rank computes: on how many threads, and on which cores.
//
// Ranks of one host that may use the same CPUs divide these among themselves, in the order of ranks, each a share of
// whole, neighbouring cores. That is one rule for threads of a process, for processes that a launcher left unbound, and
// for those that it bound to sets of their own: a set that no other rank has is kept whole. Where there are fewer cores
// than ranks, each computes on one thread, and threads of a process take turns, a turn on a core of its own.
#pragma once

#include "comm/mesh.h"
#include "machine/cpus.h"
#include "spec/config/run_config.h"

namespace echelon {

struct RankCores {
  CpuSet cpus;             // what this rank's thread, and threads that it starts, may run on
  int num_threads = 1;     // that compute inside one operation
  int num_neighbours = 1;  // ranks of this host that divide the same CPUs, this one included
  bool is_bound = false;   // to a share that no neighbour has
};

/// Called by every rank, on its own thread, before it starts others; a collective over the world. Binds the thread, or
/// its turns, unless comm.bind = "none". The number of threads is training.num_threads, or else OMP_NUM_THREADS, or
/// else as many as the share has cores and the quota of the process grants.
[[nodiscard]] RankCores claim_cores(const RunConfig& config, Mesh& mesh);

/// "2 threads per rank, rank 0 bound to cpus 0-1 (4 ranks of its host divide the cores)"
[[nodiscard]] std::string describe(const RankCores& cores);

/// OMP_NUM_THREADS, of a list the first; 0 if it is not set. Throws Error if it is no number above 0.
[[nodiscard]] int num_threads_of_environment();

}  // namespace echelon
