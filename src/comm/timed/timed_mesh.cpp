#include "comm/timed/timed_mesh.h"

#include "base/clock.h"

namespace echelon {
namespace {

class TimedWait final : public Pending::Operation {
 public:
  TimedWait(Pending inner, const TimedMesh::Listener& listener, const TimedCall& call)
      : inner_(std::move(inner)), listener_(listener), call_(call) {}
  void wait() override {
    call_.start = now_seconds();
    inner_.wait();
    call_.end = now_seconds();
    listener_(call_);
  }
  bool poll() override { return inner_.poll(); }

 private:
  Pending inner_;
  const TimedMesh::Listener& listener_;
  TimedCall call_;
};

}  // namespace

std::string_view name_of(TimedCall::Phase phase) {
  switch (phase) {
    case TimedCall::Phase::start: return "start";
    case TimedCall::Phase::wait: return "wait";
    case TimedCall::Phase::poll: return "poll";
  }
  return "?";
}

class TimedMesh::TimedComm final : public Comm {
 public:
  TimedComm(Comm& inner, const Group& group, const Listener& listener)
      : inner_(inner), group_(group), listener_(listener) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    return start(CommKind::all_reduce, x, [&] { return inner_.all_reduce(x, op); });
  }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    return start(CommKind::all_gather, full, [&] { return inner_.all_gather(full, shard); });
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    return start(CommKind::reduce_scatter, full, [&] { return inner_.reduce_scatter(shard, full, op); });
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override {
    return start(CommKind::broadcast, x, [&] { return inner_.broadcast(x, root); });
  }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    return start(CommKind::all_to_all, sent, [&] { return inner_.all_to_all(received, sent); });
  }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return start(
        CommKind::all_to_all, exchange.sent, [&] { return inner_.all_to_all_rows(exchange); }, exchange.purpose);
  }
  [[nodiscard]] Pending exchange_columns(const ColumnExchange& exchange) override {
    const Tensor& own = exchange.gathers_rows ? exchange.sent : exchange.received;
    return start(CommKind::all_to_all, own, [&] { return inner_.exchange_columns(exchange); });
  }
  [[nodiscard]] bool can_exchange_columns() const override { return inner_.can_exchange_columns(); }
  [[nodiscard]] Pending send(Tensor x, int peer) override {
    return start(CommKind::send, x, [&] { return inner_.send(x, peer); });
  }
  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    return start(CommKind::receive, x, [&] { return inner_.receive(x, peer); });
  }
  [[nodiscard]] Pending barrier() override {
    return start(CommKind::barrier, {nullptr, DType::float32, {0}}, [&] { return inner_.barrier(); });
  }

 private:
  template <class Start>
  Pending start(CommKind kind, const Tensor& buffer, const Start& start_inner, RowPurpose purpose = RowPurpose::other) {
    TimedCall call{.phase = TimedCall::Phase::start,
                   .kind = kind,
                   .group = group_,
                   .purpose = purpose,
                   .num_bytes = buffer.num_bytes(),
                   .start = now_seconds()};
    Pending pending = start_inner();
    call.end = now_seconds();
    listener_(call);
    call.phase = TimedCall::Phase::wait;
    call.under_way_since = call.start;
    return Pending(std::make_unique<TimedWait>(std::move(pending), listener_, call));
  }

  Comm& inner_;
  Group group_;
  const Listener& listener_;
};

TimedMesh::TimedMesh(Mesh& inner, Listener listener)
    : Mesh(inner.shape(), inner.rank()), inner_(inner), listener_(std::move(listener)) {}
TimedMesh::~TimedMesh() = default;

Comm& TimedMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (!comm) comm = std::make_unique<TimedComm>(inner_.comm(group), group, listener_);
  return *comm;
}

void TimedMesh::poll() {
  TimedCall call{.phase = TimedCall::Phase::poll, .start = now_seconds()};
  inner_.poll();
  call.end = now_seconds();
  listener_(call);
}

}  // namespace echelon
