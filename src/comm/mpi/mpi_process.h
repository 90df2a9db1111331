// This process as one of an MPI job: MPI itself, which is initialised once per process, and the ways out of the job.
#pragma once

#include "base/error.h"
#include "comm/mpi/wire.h"

#include <map>

namespace echelon {

class MpiProcess {
 public:
  /// The instance of this process. MPI is initialised at the first call and finalized when the program ends.
  [[nodiscard]] static MpiProcess& get();
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Of each rank the number of its host, from 0 on, in the order of their first ranks.
  [[nodiscard]] const std::vector<int>& hosts() const { return hosts_; }
  /// Whether the processes of this machine have a core each, so that one that spins delays no other.
  [[nodiscard]] bool has_own_core() const { return has_own_core_; }
  /// Whether threads other than the first may call MPI, one at a time.
  [[nodiscard]] bool has_threads() const { return has_threads_; }
  [[nodiscard]] Wire& wire() { return *wire_; }

  /// A number for the next mesh, the same on all processes if all make them in the same order.
  [[nodiscard]] std::int64_t next_run() { return num_runs_++; }
  [[nodiscard]] bool has_run() const { return num_runs_ > 0; }

  /// Notes of operations that this process has not started yet.
  struct EarlyNote {
    Note note;
    std::vector<std::byte> payload;
  };
  [[nodiscard]] std::vector<EarlyNote>& early_notes(const OperationId& id) { return early_notes_[id]; }
  [[nodiscard]] std::vector<EarlyNote> take_early_notes(const OperationId& id);

  /// Says why, once, and ends all processes of the job with this status.
  [[noreturn]] void end_job(const std::string& sentence, ExitStatus status) const;
  /// Until the launcher ends this process, since rank `ending` ends the job.
  [[noreturn]] static void await_end(int ending);

 private:
  MpiProcess();
  ~MpiProcess();

  int rank_ = 0;
  int size_ = 1;
  std::vector<int> hosts_;
  bool has_own_core_ = true;
  bool has_threads_ = false;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<Wire> wire_;
  std::int64_t num_runs_ = 0;
  std::map<OperationId, std::vector<EarlyNote>> early_notes_;
};

}  // namespace echelon
