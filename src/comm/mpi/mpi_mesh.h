// One MPI rank's mesh: its communicators, its operations in progress, and how it waits.
#pragma once

#include "comm/mesh.h"
#include "comm/mpi/background.h"
#include "comm/mpi/mpi_group.h"
#include "comm/mpi/mpi_process.h"
#include "comm/mpi/stall_diagnosis.h"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

namespace echelon {

class MpiOperation;

class MpiMesh final : public Mesh {
 public:
  MpiMesh(MpiProcess& process, const MeshShape& shape, std::int64_t run, double timeout_seconds);
  ~MpiMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override;
  /// Does not return: the job ends.
  void abort(const std::string& reason) override { end_job(reason, ExitStatus::failure); }
  // The background reads where the rank is.
  void enter_layer(std::string_view layer) override {
    const std::lock_guard lock(place_mutex_);
    Mesh::enter_layer(layer);
  }
  void enter_part(LayerPart part) override {
    const std::lock_guard lock(place_mutex_);
    Mesh::enter_part(part);
  }

  /// MPI and the operations belong to one thread at a time: the rank's, or the one that makes progress while the rank
  /// computes. Throws what that one threw.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> take_turn() const {
    std::unique_lock turn(turn_);
    if (failure_) std::rethrow_exception(failure_);
    return turn;
  }
  /// Says why and ends all processes, unless another rank does so.
  [[noreturn]] void end_job(const std::string& sentence, ExitStatus status);
  /// The job will end: the others are silent, and nothing makes progress here. While they can read this rank's memory.
  void announce_end();

  // During a turn:
  [[nodiscard]] Wire& wire() { return process_.wire(); }
  void add(MpiOperation& operation);
  /// `unwinds`: by an exception, which ends the job.
  void remove(const MpiOperation& operation, bool unwinds);
  void deliver_early_notes(MpiOperation& operation);
  void advance(MpiOperation& operation);
  /// Makes progress on all operations until this one is done. After comm.timeout_seconds it throws Failure that names
  /// the late ranks.
  void wait_for(const MpiOperation& operation);
  /// "group tp (ranks 0, 1): as operation 5, rank 1 started ... but rank 0 started ..."
  [[nodiscard]] std::string describe_mismatch(const MpiGroup& group, const Note& note, const Signature& own) const;

 private:
  class Waiting;

  /// True if anything arrived or ended.
  bool progress();
  void progress_in_background();
  void deliver(const Note& note, const std::byte* payload);
  void answer(int rank);
  [[nodiscard]] std::string describe_state() const;
  [[nodiscard]] MpiGroup& group_of(const Group& group, const std::vector<int>& ranks);
  [[nodiscard]] const MpiGroup* find_group(std::uint64_t hash) const;
  [[nodiscard]] std::string describe_timeout(const MpiOperation& operation, const StallDiagnosis& diagnosis) const;

  MpiProcess& process_;
  const std::int64_t run_;
  const double timeout_seconds_;
  std::map<Group, std::int64_t> sent_;
  // Groups with the same ranks share one entry, whatever their names.
  std::map<std::vector<int>, std::unique_ptr<MpiGroup>> groups_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::map<OperationId, MpiOperation*> under_way_;
  const MpiOperation* waits_for_ = nullptr;
  StallDiagnosis* diagnosis_ = nullptr;
  bool has_announced_end_ = false;
  bool has_more_work_ = false;  // an operation can do more at once
  int num_idle_polls_ = 0;
  mutable std::mutex place_mutex_;     // guards place_in_model()
  mutable std::recursive_mutex turn_;  // recursive, since an operation may throw, and so end, while it starts
  std::atomic<std::size_t> num_under_way_ = 0;
  std::exception_ptr failure_;            // of the background
  std::optional<Background> background_;  // last, so that it stops first
};

}  // namespace echelon
