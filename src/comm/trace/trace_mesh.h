// A rank's mesh without peers and without data, which records the communication of a program. Every operation is done
// as soon as it is started.
#pragma once

#include "comm/mesh.h"
#include "comm/traffic.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace echelon {

struct CommRecord {
  CommKind kind = CommKind::barrier;
  Group group;
  int group_size = 1;
  DType dtype = DType::float32;
  std::int64_t num_elements = 0;  // of the full buffer
  std::int64_t sent_bytes = 0;    // by this rank: the closed forms of comm/traffic.h
  int peer = -1;                  // of a send or receive, and the root of a broadcast; within the group
  RowPurpose purpose = RowPurpose::other;
  std::size_t window = 0;  // of the block that sends it, where a trace knows: an index of LayerOptions::windows
  bool operator==(const CommRecord&) const = default;
};

/// Receives callbacks when communication is started and when it is waited for.
class CommListener {
 public:
  virtual ~CommListener() = default;
  virtual void started(const CommRecord& record) = 0;
  /// `start`: the index of the record among those of the mesh.
  virtual void waited(std::size_t start) = 0;
};

class TraceMesh final : public Mesh {
 public:
  TraceMesh(const MeshShape& shape, int rank);
  ~TraceMesh() override;

  [[nodiscard]] Comm& comm(const Group& group) override;
  [[nodiscard]] bool has_peers() const override { return false; }
  void poll() override {}
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return sent_bytes_; }
  void abort(const std::string&) override {}

  /// In the order in which they were started. Reductions, gathers and transfers in groups of one rank are recorded too,
  /// with no bytes sent.
  [[nodiscard]] const std::vector<CommRecord>& records() const { return records_; }
  /// `listener` must outlive the mesh and whatever was started on it.
  void listen(CommListener& listener) { listener_ = &listener; }
  /// Forgets the records and the bytes.
  void clear();

 private:
  class TraceComm;
  class TraceOperation;

  std::map<Group, std::unique_ptr<Comm>> comms_;
  std::map<Group, std::int64_t> sent_bytes_;
  std::vector<CommRecord> records_;
  CommListener* listener_ = nullptr;
};

}  // namespace echelon
