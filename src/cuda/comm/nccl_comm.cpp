#include "cuda/comm/nccl_comm.h"

#include "comm/arguments.h"

#include <exception>

namespace echelon::cuda {
namespace {

ncclDataType_t nccl_type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return ncclFloat32;
    case DType::float64: return ncclFloat64;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float16: return ncclFloat16;
    case DType::int32: return ncclInt32;
    case DType::int16: break;
  }
  throw Failure(fmt::format("NCCL knows no {}", name_of(dtype)));
}

ncclRedOp_t operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ncclSum;
    case ReduceOp::max: return ncclMax;
  }
  return ncclSum;
}

std::size_t count_of(const Tensor& x) { return static_cast<std::size_t>(x.num_elements()); }

}  // namespace

class NcclOperation final : public Pending::Operation {
 public:
  NcclOperation(NcclMesh& mesh, NcclMesh::Flight& flight) : mesh_(mesh), flight_(flight) {}
  ~NcclOperation() override {
    if (flight_.is_waited_for) return;
    if (std::uncaught_exceptions() > 0)
      mesh_.give_up();
    else
      mesh_.abort(
          fmt::format("rank {} dropped, without waiting for it, its {}", mesh_.rank(), mesh_.describe(flight_)));
  }
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  void wait() override {
    mesh_.poll();
    take_results();
  }
  bool poll() override {
    mesh_.poll();
    if (!mesh_.is_recording_ && !flight_.done.is_reached()) return false;
    take_results();
    return true;
  }

 private:
  void take_results() {
    mesh_.device_.compute().wait(flight_.done);
    flight_.is_waited_for = true;
  }

  NcclMesh& mesh_;
  NcclMesh::Flight& flight_;
};

Pending NcclComm::start(NcclLink& link, const Signature& signature, NcclMesh::Enqueue enqueue) {
  if (signature.num_elements == 0) return {};
  const bool is_transfer = signature.kind == CommKind::send || signature.kind == CommKind::receive;
  sent_ += sent_bytes({.kind = signature.kind,
                       .rank = rank_,
                       .group_size = size_,
                       .num_elements = signature.num_elements,
                       .dtype = signature.dtype,
                       .root = is_transfer ? 0 : signature.root});
  return launch(link, signature, std::move(enqueue));
}

Pending NcclComm::launch(NcclLink& link, const Signature& signature, NcclMesh::Enqueue enqueue) {
  NcclMesh::Flight& flight = mesh_.take_off(group_, signature);
  auto operation = std::make_unique<NcclOperation>(mesh_, flight);
  mesh_.launch({.link = link, .flight = flight, .enqueue = std::move(enqueue)});
  return Pending(std::move(operation));
}

Pending NcclComm::all_reduce(Tensor x, ReduceOp op) {
  return start(
      mesh_.link(group_), {.kind = CommKind::all_reduce, .op = op, .dtype = x.dtype, .num_elements = x.num_elements()},
      [=](ncclComm_t comm, cudaStream_t stream) {
        return nccl().all_reduce(x.data, x.data, count_of(x), nccl_type_of(x.dtype), operation_of(op), comm, stream);
      });
}

Pending NcclComm::all_gather(Tensor full, Tensor shard) {
  check_all_gather(*this, full, shard);
  return start(
      mesh_.link(group_), {.kind = CommKind::all_gather, .dtype = full.dtype, .num_elements = full.num_elements()},
      [=](ncclComm_t comm, cudaStream_t stream) {
        return nccl().all_gather(shard.data, full.data, count_of(shard), nccl_type_of(full.dtype), comm, stream);
      });
}

Pending NcclComm::reduce_scatter(Tensor shard, Tensor full, ReduceOp op) {
  check_reduce_scatter(*this, shard, full);
  return start(mesh_.link(group_),
               {.kind = CommKind::reduce_scatter, .op = op, .dtype = full.dtype, .num_elements = full.num_elements()},
               [=](ncclComm_t comm, cudaStream_t stream) {
                 return nccl().reduce_scatter(full.data, shard.data, count_of(shard), nccl_type_of(full.dtype),
                                              operation_of(op), comm, stream);
               });
}

Pending NcclComm::broadcast(Tensor x, int root) {
  check_root(*this, root);
  return start(mesh_.link(group_),
               {.kind = CommKind::broadcast, .dtype = x.dtype, .num_elements = x.num_elements(), .root = root},
               [=](ncclComm_t comm, cudaStream_t stream) {
                 return nccl().broadcast(x.data, x.data, count_of(x), nccl_type_of(x.dtype), root, comm, stream);
               });
}

Pending NcclComm::all_to_all(Tensor received, Tensor sent) {
  check_all_to_all(*this, received, sent);
  const std::int64_t part_bytes = sent.num_bytes() / size_;
  const int num_ranks = size_;
  return start(mesh_.link(group_),
               {.kind = CommKind::all_to_all, .dtype = sent.dtype, .num_elements = sent.num_elements()},
               [=](ncclComm_t comm, cudaStream_t stream) {
                 ncclResult_t result = nccl().group_start();
                 for (int peer = 0; peer < num_ranks && result == ncclSuccess; ++peer) {
                   result = nccl().send(sent.data + peer * part_bytes, static_cast<std::size_t>(part_bytes), ncclUint8,
                                        peer, comm, stream);
                   if (result == ncclSuccess)
                     result = nccl().receive(received.data + peer * part_bytes, static_cast<std::size_t>(part_bytes),
                                             ncclUint8, peer, comm, stream);
                 }
                 const ncclResult_t end = nccl().group_end();
                 return result == ncclSuccess ? end : result;
               });
}

// Its kernels copy a rank's own rows, too. A pair without rows exchanges nothing.
Pending NcclComm::all_to_all_rows(const RowExchange& exchange) {
  check_all_to_all_rows(*this, exchange);
  const std::int64_t row_bytes = exchange.sent.size(1) * size_of(exchange.sent.dtype);
  if (row_bytes == 0) return {};
  sent_ += sent_rows(*this, exchange.sent_parts) * row_bytes;
  const Signature signature = {.kind = CommKind::all_to_all,
                               .dtype = exchange.sent.dtype,
                               .num_elements = exchange.sent.size(1),
                               .has_parts = true};
  return launch(mesh_.link(group_), signature, [=](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = nccl().group_start();
    for (std::size_t peer = 0; peer < exchange.sent_parts.size() && result == ncclSuccess; ++peer) {
      const RowPart &sent = exchange.sent_parts[peer], &received = exchange.received_parts[peer];
      const auto bytes_of = [&](const RowPart& part) { return static_cast<std::size_t>(part.count * row_bytes); };
      if (sent.count > 0)
        result = nccl().send(exchange.sent.data + sent.first * row_bytes, bytes_of(sent), ncclUint8,
                             static_cast<int>(peer), comm, stream);
      if (received.count > 0 && result == ncclSuccess)
        result = nccl().receive(exchange.received.data + received.first * row_bytes, bytes_of(received), ncclUint8,
                                static_cast<int>(peer), comm, stream);
    }
    const ncclResult_t end = nccl().group_end();
    return result == ncclSuccess ? end : result;
  });
}

Pending NcclComm::send(Tensor x, int peer) {
  check_peer(*this, peer);
  const auto [link, source, destination] = mesh_.transfer_link(group_, rank_, peer);
  return start(link, {.kind = CommKind::send, .dtype = x.dtype, .num_elements = x.num_elements(), .root = peer},
               [=, to = destination](ncclComm_t comm, cudaStream_t stream) {
                 return nccl().send(x.data, count_of(x), nccl_type_of(x.dtype), to, comm, stream);
               });
}

Pending NcclComm::receive(Tensor x, int peer) {
  check_peer(*this, peer);
  const auto [link, source, destination] = mesh_.transfer_link(group_, peer, rank_);
  return start(link, {.kind = CommKind::receive, .dtype = x.dtype, .num_elements = x.num_elements(), .root = peer},
               [=, from = source](ncclComm_t comm, cudaStream_t stream) {
                 return nccl().receive(x.data, count_of(x), nccl_type_of(x.dtype), from, comm, stream);
               });
}

Pending NcclComm::barrier() { return mesh_.host_.comm(group_).barrier(); }

}  // namespace echelon::cuda
