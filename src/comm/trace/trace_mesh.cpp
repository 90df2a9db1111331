#include "comm/trace/trace_mesh.h"

#include "base/error.h"
#include "comm/arguments.h"

#include <algorithm>

namespace echelon {
namespace {

std::int64_t num_rows(std::span<const RowPart> parts) {
  std::int64_t rows = 0;
  for (const RowPart& part : parts) rows += part.count;
  return rows;
}

}  // namespace

/// Done as soon as it is asked.
class TraceMesh::TraceOperation final : public Pending::Operation {
 public:
  TraceOperation(CommListener& listener, std::size_t start) : listener_(listener), start_(start) {}
  void wait() override { listener_.waited(start_); }
  bool poll() override {
    listener_.waited(start_);
    return true;
  }

 private:
  CommListener& listener_;
  std::size_t start_;
};

class TraceMesh::TraceComm final : public Comm {
 public:
  TraceComm(TraceMesh& mesh, const Group& group, int rank, int size)
      : mesh_(mesh), group_(group), rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp) override { return record(CommKind::all_reduce, x); }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    check_all_gather(*this, full, shard);
    return record(CommKind::all_gather, full);
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp) override {
    check_reduce_scatter(*this, shard, full);
    return record(CommKind::reduce_scatter, full);
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override {
    check_root(*this, root);
    return record(CommKind::broadcast, x, root);
  }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    check_all_to_all(*this, received, sent);
    return record(CommKind::all_to_all, sent);
  }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    check_all_to_all_rows(*this, exchange);
    const std::int64_t row_bytes = exchange.sent.size(1) * size_of(exchange.sent.dtype);
    // Links have two directions, and the fuller one takes the time.
    const std::int64_t rows = std::max(num_rows(exchange.sent_parts), num_rows(exchange.received_parts));
    return add({.kind = CommKind::all_to_all,
                .group = group_,
                .group_size = size_,
                .dtype = exchange.sent.dtype,
                .num_elements = rows * exchange.sent.size(1),
                .sent_bytes = sent_rows(*this, exchange.sent_parts) * row_bytes,
                .purpose = exchange.purpose});
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override {
    check_peer(*this, peer);
    return record(CommKind::send, x, peer);
  }
  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    check_peer(*this, peer);
    return record(CommKind::receive, x, peer);
  }
  [[nodiscard]] Pending barrier() override { return record(CommKind::barrier, Tensor(nullptr, DType::float32, {0})); }

 private:
  Pending record(CommKind kind, const Tensor& full, int peer = -1) {
    const std::int64_t sent = echelon::sent_bytes({.kind = kind,
                                                   .rank = rank_,
                                                   .group_size = size_,
                                                   .num_elements = full.num_elements(),
                                                   .dtype = full.dtype,
                                                   .root = peer});
    return add({.kind = kind,
                .group = group_,
                .group_size = size_,
                .dtype = full.dtype,
                .num_elements = full.num_elements(),
                .sent_bytes = sent,
                .peer = peer});
  }
  Pending add(const CommRecord& record) {
    mesh_.records_.push_back(record);
    mesh_.sent_bytes_[group_] += record.sent_bytes;
    if (mesh_.listener_ == nullptr) return {};
    mesh_.listener_->started(mesh_.records_.back());
    return Pending(std::make_unique<TraceOperation>(*mesh_.listener_, mesh_.records_.size() - 1));
  }

  TraceMesh& mesh_;
  Group group_;
  int rank_;
  int size_;
};

TraceMesh::TraceMesh(const MeshShape& shape, int rank) : Mesh(shape, rank) {}
TraceMesh::~TraceMesh() = default;

Comm& TraceMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (comm) return *comm;
  const GroupPlace place = shape().place_in(group, rank());
  require(place.size > 0, "rank {} is in no group '{}'", rank(), name_of(group));
  comm = std::make_unique<TraceComm>(*this, group, place.index, place.size);
  sent_bytes_[group];  // a group that was asked for is listed, even if nothing is sent
  return *comm;
}

void TraceMesh::clear() {
  records_.clear();
  for (auto& [group, bytes] : sent_bytes_) bytes = 0;
}

}  // namespace echelon
