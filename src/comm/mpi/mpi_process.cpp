#include "comm/mpi/mpi_process.h"

#include "base/text/tell.h"
#include "comm/launch_environment.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace echelon {
namespace {

int num_cores_online() { return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

std::vector<int> hosts_of_processes(MPI_Comm comm, int size) {
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  int first_of_host = 0;
  MPI_Comm_rank(comm, &first_of_host);
  MPI_Bcast(&first_of_host, 1, MPI_INT, 0, local);
  MPI_Comm_free(&local);
  std::vector<int> hosts(static_cast<std::size_t>(size));
  MPI_Allgather(&first_of_host, 1, MPI_INT, hosts.data(), 1, MPI_INT, comm);
  std::map<int, int> numbers;
  for (int& host : hosts) host = numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second;
  return hosts;
}

}  // namespace

MpiProcess& MpiProcess::get() {
  static MpiProcess process;  // MPI cannot be initialised twice
  return process;
}

MpiProcess::MpiProcess() {
  const auto launched = launch_environment();
  if (launched) require_mpi_possible(*launched);
  // Where processes share cores, one that waits inside MPI (during init and finalize) must yield its core.
  const bool shares_cores = launched && launched->local_size.value_or(1) > num_cores_online();
  if (shares_cores) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  has_threads_ = provided >= MPI_THREAD_SERIALIZED;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  hosts_ = hosts_of_processes(comm_, size_);
  has_own_core_ = std::ranges::count(hosts_, hosts_[static_cast<std::size_t>(rank_)]) <= num_cores_online();
  wire_ = std::make_unique<Wire>(comm_);
}

MpiProcess::~MpiProcess() {
  wire_.reset();
  MPI_Comm_free(&comm_);
  MPI_Finalize();
}

std::vector<MpiProcess::EarlyNote> MpiProcess::take_early_notes(const OperationId& id) {
  const auto found = early_notes_.find(id);
  if (found == early_notes_.end()) return {};
  std::vector<EarlyNote> notes = std::move(found->second);
  early_notes_.erase(found);
  return notes;
}

void MpiProcess::end_job(const std::string& sentence, ExitStatus status) const {
  std::string line = sentence;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fflush(stdout);
  tell("echelon: {}\n", line);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(status));
  std::_Exit(static_cast<int>(status));
}

void MpiProcess::await_end(int ending) {
  constexpr std::chrono::seconds patience(30);
  std::this_thread::sleep_for(patience);
  tell("echelon: rank {} ends the job, and has not said why for {} s\n", ending, patience.count());
  std::_Exit(static_cast<int>(ExitStatus::failure));
}

}  // namespace echelon
