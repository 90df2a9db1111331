// Ranks with a GPU each: their collectives and transfers are NCCL's, on streams of their own beside the compute stream.
// An operation waits for what the compute stream was given before it was started; what is enqueued there after it was
// waited for waits for it. The host waits for nothing but NCCL's connecting.
//
// What differs from other transports: NCCL adds in an order of its own (rings and trees), and rounds sums of narrow
// formats after each addition; on the same machines and number of ranks two runs give the same bits. The maximum of a
// NaN and a number is not determined. Bytes sent are the closed forms of comm/traffic.h, which is what direct
// algorithms would send. The first collective of a kind in a group connects its ranks, for which their hosts wait:
// ranks that are in two groups together start the first ones of these in the same order.
//
// Failures: while the host waits for the device, which it never leaves far behind, or for ranks to connect, or polls,
// it looks whether NCCL or another rank has failed, or whether an operation is not done after comm.timeout_seconds.
// Then NCCL's kernels are ended, all at once, so that the device is free for unwinding.
//
// Recording (backend/work_recorder.h): operations that are started are then captured with the compute stream, which
// waits for them in the capture. Of what is captured the host can ask nothing; a replay is one operation to whoever
// looks for failures. Nothing promises that parts of a graph run beside each other, so each operation waits for the one
// that was started before it: ranks must start them all in one order, as those of a pipeline do not.
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
  /// The ranks connect by way of `host`. Both must outlive it.
  NcclMesh(Mesh& host, Device& device, double timeout_seconds);
  ~NcclMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  void connect(const std::vector<Group>& groups) override;
  /// For transfers around a group's ring, in which ranks may then send and receive in any order; connect() does so for
  /// pipelines. Other pairs connect on their first transfer, for which both then wait.
  void connect_neighbours(const Group& group);
  void poll() override;
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return sent_; }
  void abort(const std::string& reason) override;

  void begin_recording();
  void end_recording();
  void abandon_recording() noexcept;
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
  /// Members of a group, and how they are connected.
  struct Members {
    std::vector<int> ranks;
    int place = 0;
  };

  [[nodiscard]] Members members_of(const Group& group) const;
  /// Of the same ranks, whatever the group is called.
  [[nodiscard]] NcclLink& link(const Group& group);
  /// From one rank of a group to another one, which is this rank or its peer.
  [[nodiscard]] NcclLink& transfer_link(const Group& group, int source, int destination);
  void try_transfer(NcclLink& link, bool is_source, std::byte* byte);
  /// Connects to the others that come here with the same id.
  [[nodiscard]] std::unique_ptr<NcclLink> connected(const ncclUniqueId& id, NcclLink::Place place);
  /// Waits until the link's ranks are connected, and what was started last is on its stream. `what` that is.
  void settle(const NcclLink& link, const std::function<std::string()>& what);
  [[nodiscard]] Flight& take_off(const Group& group, const Signature& signature);
  void land_those_done();
  void require_all_well();
  void require_well(const NcclLink& link);
  [[nodiscard]] std::string describe(const Flight& flight) const;
  [[noreturn]] void fail(const std::string& sentence);

  using Clock = std::chrono::steady_clock;
  Mesh& host_;
  Device& device_;
  const double timeout_seconds_;
  Event ready_;  // of the compute stream, when an operation starts
  std::map<std::vector<int>, std::unique_ptr<NcclLink>> links_;
  std::map<std::pair<int, int>, std::unique_ptr<NcclLink>> transfer_links_;  // by source and destination in the mesh
  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::map<Group, std::int64_t> sent_;
  std::deque<std::unique_ptr<Flight>> flights_;  // oldest first
  std::function<void()> drop_graphs_;
  bool is_recording_ = false;
  std::deque<std::unique_ptr<Flight>> recorded_;
  std::map<Group, std::int64_t> sent_before_, sent_by_replay_;  // before the recording began, and by what it holds
  std::vector<std::unique_ptr<Flight>> landed_;                 // to be used again
  const Flight* oldest_ = nullptr;                              // at the last look
  Clock::time_point oldest_since_, last_look_;
};

}  // namespace echelon::cuda
