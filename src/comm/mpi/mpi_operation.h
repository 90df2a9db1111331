// An operation in progress on one rank: its flows from and to the other ranks of the group.
//
//     all_gather, all_to_all   a flow to every peer and one from it
//     broadcast, transfer      a flow from the one to the other
//     reduce_scatter           a flow to every peer of the peer's part, and the reduction of the own part
//     all_reduce               the same as phase 0, and in phase 1 a flow of the sum to every peer and one of its sum
//                              from it
//     barrier                  a flow of nothing to every peer
#pragma once

#include "comm/device_transport.h"
#include "comm/mpi/mpi_mesh.h"
#include "comm/mpi/reduction.h"

#include <optional>

namespace echelon {

class MpiOperation final : public Pending::Operation {
 public:
  MpiOperation(MpiMesh& mesh, MpiGroup& group, std::uint64_t channel, const Signature& signature,
               std::int64_t& sent_bytes);
  /// Dropping an operation that was not waited for ends the job.
  ~MpiOperation() override;
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  /// Makes the flows and starts them. In place, both are the same address.
  void start(const PartyBuffers& buffers);

  void wait() override;
  bool poll() override;

  /// A note of this operation has come. Throws Failure if its sender started something else.
  void take(const Note& note, const std::byte* payload);
  /// Makes progress, a chunk of each flow. True if more can be done after a check for notes.
  bool advance();

  [[nodiscard]] const OperationId& id() const { return id_; }
  [[nodiscard]] bool is_done() const { return is_done_; }
  /// The ranks that it waits for, and whether they have started it.
  [[nodiscard]] std::vector<int> missing() const;
  [[nodiscard]] bool has_heard_of(int rank) const;
  /// "all_reduce(sum) of 10 float32"
  [[nodiscard]] std::string description() const;
  [[nodiscard]] const MpiGroup& group() const { return group_; }

 private:
  void make_flows(const std::byte* in, std::byte* out);
  void make_flows_of_rows(const PartyBuffers& buffers);
  void add_send_flow(int place, int phase, const std::byte* data, std::int64_t num_bytes);
  void add_receive_flow(int place, int phase, std::byte* data, std::int64_t num_bytes);
  void set_limits();
  void leave();

  MpiMesh& mesh_;
  MpiGroup& group_;
  Signature signature_;
  OperationId id_;
  FlowContext context_;
  std::vector<SendFlow> send_flows_;
  std::vector<ReceiveFlow> receive_flows_;
  std::optional<Reduction> reduction_;
  std::vector<int> heard_of_;
  bool is_done_ = false;
  bool was_waited_for_ = false;
};

}  // namespace echelon
