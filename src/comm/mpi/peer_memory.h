// Reading the memory of the other processes of this machine, where the system lets them (Linux: process_vm_readv): one
// copy from source to destination, and no shared segment to size or to remove.
//
// Two processes that read one another's memory cannot disagree on whether they do: both have tried, and both must have
// succeeded.
#pragma once

#include <mpi.h>

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace echelon {

class PeerMemory {
 public:
  /// Collective: every process tries to read a word of every other one of its machine.
  explicit PeerMemory(MPI_Comm comm);

  /// Whether this process and that rank can read one another.
  [[nodiscard]] bool reaches(int rank) const { return pids_[static_cast<std::size_t>(rank)] != 0; }

  /// Copies from an address of a rank that it reaches. Throws Failure where that process is gone.
  void read(int rank, std::uint64_t address, std::byte* out, std::int64_t num_bytes) const;

 private:
  int own_rank_ = 0;
  std::vector<pid_t> pids_;  // by rank; 0 for oneself and for what cannot be read
};

}  // namespace echelon
