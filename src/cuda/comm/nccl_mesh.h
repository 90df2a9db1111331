// Ranks with a GPU each: NCCL does their collectives and transfers, on streams separate from the compute stream. An
// operation starts after the work that was on the compute stream when it was started. Work that is enqueued there after
// its wait runs after it. The host waits only while NCCL connects.
//
// What differs from other transports: NCCL adds in an order of its own (rings and trees), and rounds sums of narrow
// formats after each addition; on the same machines and number of ranks two runs give the same bits. The maximum of a
// NaN and another value is undefined. Bytes sent are the closed forms of comm/traffic.h, for direct algorithms. The
// first collective of a kind in a group connects its ranks, and their hosts wait for that. So ranks that share two
// groups start the first collectives of these in the same order.
//
// Failures: while the host waits for the device or for connections, or polls, it checks whether NCCL or another rank
// has failed, or an operation is not done after comm.timeout_seconds. The host is never far ahead of the device. On a
// failure all NCCL kernels are aborted at once, so that the device is free for unwinding. NCCL frees communicators in
// threads of its own; the end of a run waits for these, with a limit.
//
// Recording (backend/work_recorder.h): operations that are started are then captured with the compute stream, which
// waits for them in the capture. The host cannot query captured work; the check for failures sees a replay as one
// operation. CUDA does not guarantee that parts of a graph run concurrently, so each operation waits for the one that
// was started before it. So all ranks must start them in one order, which pipeline ranks do not.
#pragma once

#include "comm/mesh.h"
#include "comm/signature.h"
#include "cuda/comm/nccl_link.h"
#include "cuda/device/device.h"

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace echelon::cuda {

class NcclMesh final : public Mesh, public DeviceWatch {
 public:
  /// The ranks connect through `host`. Both must outlive it.
  NcclMesh(Mesh& host, Device& device, double timeout_seconds);
  ~NcclMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void connect(const std::vector<Group>& groups) override;
  /// For transfers around a group's ring; connect() does so for pipelines and for rings of context parallelism. Other
  /// pairs connect on their first transfer, for which both then wait.
  void connect_neighbours(const Group& group);
  /// One launch for all operations, while recording for those of a communicator that follow each other. So ranks that
  /// send around a ring and receive do not wait for each other.
  void together(const std::function<void()>& start) override;
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return sent_; }
  void abort(const std::string& reason) override;
  void enter_layer(std::string_view layer) override {
    Mesh::enter_layer(layer);
    host_.enter_layer(layer);
  }
  void enter_part(LayerPart part) override {
    Mesh::enter_part(part);
    host_.enter_part(part);
  }

  /// What a rank's operations read and write: all ranks call it with theirs after connect(). `plan` is equal where
  /// buffers have equal offsets. Communicators whose ranks have equal plans read and write peers' memory in place.
  struct RegisteredArena {
    std::byte* base = nullptr;
    std::int64_t num_bytes = 0;
    std::uint64_t plan = 0;
    bool can_register = false;
  };
  /// Returns what came of it, without a reason for can_register = false.
  std::string register_arena(const RegisteredArena& arena, const std::string& reason);
  /// Nothing if it is not `base` that was registered.
  void deregister_arena(const std::byte* base) noexcept;

  void begin_recording();
  void end_recording();
  void cancel_recording() noexcept;
  /// All that was recorded has been enqueued on the compute stream.
  void replayed();
  /// From now on this rank has graphs of what it recorded, without whose end NCCL's communicators do not end: `drop`
  /// destroys them, or ends a recording, when the rank gives up. Empty: there are none any more.
  void hold_graphs(std::function<void()> drop);

  void look() override { poll(); }
  void give_up() noexcept override;

 private:
  friend class NcclComm;
  friend class NcclOperation;

  /// An operation that the device has not done, or that was not waited for.
  struct Flight {
    Event done;
    Signature signature;
    Group group;
    bool is_waited_for = false;
    bool is_replay = false;  // of all that was recorded
  };
  using Enqueue = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  /// An operation that NCCL is to get.
  struct Launch {
    NcclLink& link;
    Flight& flight;
    Enqueue enqueue;
  };
  /// Members of a group, and how they are connected.
  struct Members {
    std::vector<int> ranks;
    int place = 0;
  };

  [[nodiscard]] Members members_of(const Group& group) const;
  enum class Use : std::uint8_t { collectives, ring };
  /// Of the same ranks, whatever the group is called.
  [[nodiscard]] NcclLink& link(const Group& group, Use use = Use::collectives);
  /// Of a group that contains `group`, if all its ranks come here, as they do while they connect; else null.
  [[nodiscard]] NcclLink* parent_link(const Group& group);
  /// From one rank of a group to another one, which is this rank or its peer. In a ring of context parallelism all
  /// ranks start their transfers together, so these have one link: one kernel for what a rank sends and receives.
  struct TransferLink {
    NcclLink& link;
    int source, destination;  // ranks of the link
  };
  [[nodiscard]] TransferLink transfer_link(const Group& group, int source, int destination);
  /// Of these two ranks alone.
  [[nodiscard]] NcclLink& pair_link(const Group& group, int source, int destination);
  /// Once, since a first transfer connects its ranks.
  void try_ring(const Group& group, std::byte* byte);
  void try_transfer(NcclLink& link, bool is_source, std::byte* byte);
  void await_transfer(NcclLink& link);
  /// Waits until the link's ranks are connected, and what was started last is on its stream. `what` that is.
  void settle(const NcclLink& link, const std::function<std::string()>& what);
  /// Ends all communicators together, as their peers do.
  void finalize();
  [[nodiscard]] std::vector<NcclLink*> all_links() const;
  /// After what the compute stream has, now or at the end of together().
  void launch(Launch launch);
  void launch_all(const std::vector<Launch>& launches);
  [[nodiscard]] Flight& take_off(const Group& group, const Signature& signature);
  void retire_completed();
  void require_no_failure();
  void require_well(const NcclLink& link);
  [[nodiscard]] std::string describe(const Flight& flight) const;
  [[noreturn]] void fail(const std::string& sentence);

  using Clock = std::chrono::steady_clock;
  Mesh& host_;
  Device& device_;
  const double timeout_seconds_;
  Event ready_;  // of the compute stream, when an operation starts
  std::map<std::pair<std::vector<int>, Use>, std::unique_ptr<NcclLink>> links_;
  std::map<std::vector<int>, int> most_blocks_;  // of collectives among these ranks
  bool is_connecting_ = false;
  std::vector<std::vector<int>> connected_;  // the ranks of collectives, in the order of connect()
  const std::byte* registered_ = nullptr;
  std::vector<std::vector<int>> split_;  // the ranks of links that share buffers with another one, children last
  std::map<std::pair<int, int>, std::unique_ptr<NcclLink>> transfer_links_;  // by source and destination in the mesh
  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::map<Group, std::int64_t> sent_;
  std::deque<std::unique_ptr<Flight>> flights_;  // oldest first
  std::function<void()> drop_graphs_;
  bool is_recording_ = false, is_together_ = false;
  std::vector<Launch> held_back_;  // of together()
  std::deque<std::unique_ptr<Flight>> recorded_;
  const Flight* last_recorded_ = nullptr;
  std::map<Group, std::int64_t> sent_before_, sent_by_replay_;  // before the recording started, and by one replay
  std::vector<std::unique_ptr<Flight>> reusable_;               // to be used again
  const Flight* oldest_ = nullptr;                              // at the last look
  Clock::time_point oldest_since_, last_look_;
};

}  // namespace echelon::cuda
