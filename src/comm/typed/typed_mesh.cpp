#include "comm/typed/typed_mesh.h"

#include "base/error.h"
#include "comm/arguments.h"
#include "comm/traffic.h"
#include "spec/groups.h"
#include "types/inference.h"

#include <algorithm>

namespace echelon {
namespace {

/// This rank's part of `full`, with the sizes of `shard`.
Tensor own_part(const Comm& comm, const Tensor& full, const Tensor& shard) {
  const std::int64_t count = shard.num_elements();
  return full.flat().rows(comm.rank() * count, count).reshaped(shard.sizes);
}

}  // namespace

class TypedMesh::TypedComm final : public Comm {
 public:
  TypedComm(TypedMesh& mesh, const Group& group, int rank, int size)
      : mesh_(mesh), group_(group), axes_(mesh.axes_.of(group)), rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    for_ranges(CommKind::all_reduce, x, [&](Inference& call, std::int64_t first, std::int64_t count) {
      const Tensor range = range_of(x, first, count);
      if (const auto type = reduced(call, range, op, replicated_layout)) call.write(range, *type);
    });
    return {};
  }

  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    check_reduce_scatter(*this, shard, full);
    if (gathers_tokens()) return return_sums(shard, full);
    const Tensor own = own_part(*this, full, shard);
    // All of it is summed, and this rank's part is the result; the parts of others keep their types.
    for_ranges(CommKind::reduce_scatter, full, [&](const Inference& call, std::int64_t first, std::int64_t count) {
      require_by_rank(call, range_of(full, first, count));
      (void)reduced(call, range_of(full, first, count), op, sharded_rows);
    });
    for_ranges(CommKind::reduce_scatter, own, [&](Inference& call, std::int64_t first, std::int64_t count) {
      if (const auto type = reduced(call, range_of(own, first, count), op, sharded_rows))
        call.write(range_of(shard, first, count), *type);
    });
    return {};
  }

  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    check_all_gather(*this, full, shard);
    if (mesh_.axes_.row_hop(group_) != RankAxes::RowHop::none) {
      if (gathers_tokens() && shard.dtype != DType::int32) return give_to_all(full, shard);
      Inference call = begin(CommKind::all_gather, shard);
      call.write(full, call.read("what routers chose", shard).piece.type);
      return {};
    }
    for_ranges(CommKind::all_gather, shard, [&](const Inference& call, std::int64_t first, std::int64_t count) {
      require_part(call, range_of(shard, first, count));
    });
    Inference call = begin(CommKind::all_gather, shard);
    write_gathered(call, full, shard);
    return {};
  }

  [[nodiscard]] Pending send(Tensor x, int peer) override {
    check_peer(*this, peer);
    const Inference call = begin(CommKind::send, x);
    const Operand sent = call.read("x", x);
    if (axes_ == ring_axes) {
      in_ring_.push_back({peer - rank_, sent.piece.type});
      return {};
    }
    for (const TypeAxis axis : call.axes())
      if (sent[axis] != mesh_.border_[axis] && !may_be_the_same_on_all_stages(axis, sent[axis]))
        call.fail(fmt::format("{}, but the stage that receives it takes it for {}", call.words(sent, axis),
                              describe(mesh_.border_[axis], x)));
    return {};
  }

  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    check_peer(*this, peer);
    Inference call = begin(CommKind::receive, x);
    call.write(x, axes_ == ring_axes ? received_in_ring(call, peer) : mesh_.border_);
    return {};
  }

  [[nodiscard]] Pending barrier() override { return {}; }
  [[nodiscard]] Pending broadcast(Tensor x, int) override {
    begin(CommKind::broadcast, x).fail("no typing rule exists for broadcast");
  }
  /// Tensors are [parts, rows, columns].
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    check_all_to_all(*this, received, sent);
    Inference call = begin(CommKind::all_to_all, sent);
    const Operand parts = call.read("what is sent", sent);
    LayoutType type = parts.piece.type;
    for (const TypeAxis axis : axes_) type[axis] = exchanged(call, parts, axis);
    call.write(received, type);
    return {};
  }

  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    check_all_to_all_rows(*this, exchange);
    const auto& [received, sent, received_parts, sent_parts, purpose] = exchange;
    Inference call = begin(CommKind::all_to_all, sent);
    const RankAxes::RowHop hop = mesh_.axes_.row_hop(group_);
    if (hop == RankAxes::RowHop::none)
      call.fail(fmt::format("rows are exchanged over '{}', whose ranks have no experts of each other's", over()));
    const bool gathers = hop == RankAxes::RowHop::inside && mesh_.axes_.experts().divide_features;
    const AxisLayout at_home = hop == RankAxes::RowHop::inside ? at_node_layout : sharded_rows,
                     away = hop == RankAxes::RowHop::across ? at_node_layout
                            : gathers                       ? dispatched_addends_layout
                                                            : dispatched_layout;
    for (const RowPart& part : sent_parts)
      if (part.count > 0)
        require_exchangeable(call, call.read("what is sent", sent.rows(part.first, part.count)), at_home, away);
    const TypedPiece* const first = mesh_.memory_.piece_at(sent);
    if (first == nullptr) call.fail("nothing has written what is sent");
    LayoutType type = first->type, of_sent = type;
    const bool come_back = type[axes_.front()] == away;
    for (const TypeAxis axis : axes_) {
      type[axis] = come_back ? (gathers ? addends_at_node_layout : at_home) : (gathers ? dispatched_layout : away);
      of_sent[axis] = departed_layout;
    }
    // A round gives back its own rows alone, and a sender has no use for what it has sent.
    for (const RowPart& part : sent_parts)
      if (!come_back && part.count > 0) call.write(sent.rows(part.first, part.count), of_sent);
    for (const RowPart& part : received_parts)
      if (come_back && part.count > 0) call.write(received.rows(part.first, part.count), type);
    if (!come_back) call.write(received, type);
    return {};
  }

 private:
  /// Over the ranks to each of which all tokens go.
  [[nodiscard]] bool gathers_tokens() const {
    return mesh_.axes_.experts().gather_tokens() && mesh_.axes_.row_hop(group_) != RankAxes::RowHop::none;
  }
  Pending give_to_all(const Tensor& full, const Tensor& shard) {
    Inference call = begin(CommKind::all_gather, shard);
    const Operand tokens = call.read("the tokens of this rank", shard);
    require_exchangeable(call, tokens, sharded_rows, sharded_rows);
    LayoutType type = tokens.piece.type, of_sent = type;
    for (const TypeAxis axis : axes_) {
      type[axis] = at_node_layout;
      of_sent[axis] = departed_layout;
    }
    call.write(full, type);
    call.write(shard, of_sent);
    return {};
  }
  Pending return_sums(const Tensor& shard, const Tensor& full) {
    Inference call = begin(CommKind::reduce_scatter, full);
    const Operand sums = call.read("sums of tokens", full);
    LayoutType type = sums.piece.type;
    for (const TypeAxis axis : axes_) {
      if (sums[axis] != dispatched_addends_layout && type != everywhere(TensorPlacement::zero))
        call.fail(fmt::format("{}, but what ranks computed of all tokens is summed over '{}'", call.words(sums, axis),
                              over()));
      type[axis] = sharded_rows;
    }
    call.write(shard, type);
    return {};
  }

  [[nodiscard]] bool is_of_experts(Group::Part part) const { return group_.axes == expert_axes && group_.part == part; }

  void require_exchangeable(const Inference& call, const Operand& rows, AxisLayout at_home, AxisLayout away) const {
    for (const TypeAxis axis : axes_) {
      if (rows[axis] == dispatched_addends_layout && away == dispatched_addends_layout) continue;
      call.require_complete(rows, axis);
      const bool are_at_home = at_home == sharded_rows ? rows.is_sharded_along(axis, 0) : rows[axis] == at_home;
      if (rows[axis] != away && !are_at_home)
        call.fail(fmt::format("{}, but rows of tokens go to experts and come back over '{}'", call.words(rows, axis),
                              over()));
    }
  }

  /// Blocks of each rank's rows become a rank's blocks of all rows, or the other way round.
  [[nodiscard]] AxisLayout exchanged(const Inference& call, const Operand& parts, TypeAxis axis) const {
    AxisLayout layout = parts[axis];
    const std::int64_t width = parts.tensor.size(-1);
    const bool is_sharded =
        layout.placement == TensorPlacement::sharded || layout.placement == TensorPlacement::addends_of_parts;
    if (!is_sharded || (layout.block != outermost && layout.block != width))
      call.fail(fmt::format("{}, but rows of heads are exchanged over '{}'", call.words(parts, axis), over()));
    if (layout.block != outermost && is_of_tokens()) require_order(call, parts, axis, RowOrder::by_rank);
    if (is_of_tokens()) layout.order = layout.block == outermost ? RowOrder::by_rank : RowOrder::ascending;
    layout.block = layout.block == outermost ? width : outermost;
    return layout;
  }

  /// Within a cp group, whose ranks have lists of tokens.
  [[nodiscard]] bool is_of_tokens() const { return group_.axes == AxisSet{Axis::cp}; }
  void require_order(const Inference& call, const Operand& x, TypeAxis axis, RowOrder order) const {
    if (x[axis].order != order)
      call.fail(fmt::format("{}, in ascending order, but each rank of '{}' takes the rows of its own list",
                            call.words(x, axis), over()));
  }
  void require_by_rank(const Inference& call, const Tensor& x) const {
    const TypedPiece* piece = mesh_.memory_.piece_at(x);
    if (!is_of_tokens() || piece == nullptr || call.is_padding(x)) return;
    for (const TypeAxis axis : axes_) require_order(call, {"x", x, *piece}, axis, RowOrder::by_rank);
  }

  /// Transfers among these ranks are symmetrical: what a rank receives from k places before it, that rank sent by the
  /// same call with which this one sends k places on.
  static inline const std::vector<TypeAxis> ring_axes = {TypeAxis::cp};

  [[nodiscard]] LayoutType received_in_ring(const Inference& call, int peer) {
    const int shift = (rank_ - peer + size_) % size_;
    const auto sent =
        std::ranges::find_if(in_ring_, [&](const auto& each) { return (each.first + size_) % size_ == shift; });
    if (sent == in_ring_.end())
      call.fail(fmt::format("nothing was sent before it by {} places of '{}'", shift, over()));
    LayoutType type = sent->second;
    in_ring_.erase(sent);
    AxisLayout& moved = type[TypeAxis::cp];
    moved.distance = (moved.distance + shift) % size_;
    return type;
  }

  [[nodiscard]] Inference begin(CommKind kind, const Tensor& x) const {
    return {mesh_.memory_, mesh_.axes_, name_of(kind), std::span(&x, 1)};
  }
  [[nodiscard]] std::string over() const { return name_of(group_); }
  /// The output of a stage with only the embedding comes from tokens and a tied weight, so its receiver may treat it as
  /// the sender's own.
  [[nodiscard]] static bool may_be_the_same_on_all_stages(TypeAxis axis, AxisLayout placement) {
    return axis == TypeAxis::pp && placement == replicated_layout;
  }

  /// f(call, first, count) for ranges of one type: in a flat buffer each parameter is named by itself.
  template <class F>
  void for_ranges(CommKind kind, const Tensor& x, F&& f) const {
    mesh_.memory_.for_uniform_ranges(std::span(&x, 1), [&](std::int64_t first, std::int64_t count) {
      Inference call = begin(kind, range_of(x, first, count));
      f(call, first, count);
    });
  }

  /// The type of a sum or maximum of x over the group; nothing where x was never written, which is padding.
  [[nodiscard]] std::optional<LayoutType> reduced(const Inference& call, const Tensor& x, ReduceOp op,
                                                  AxisLayout result) const {
    if (call.is_padding(x)) return {};
    (void)call.read("x", x);
    const TypedPiece* piece = mesh_.memory_.piece_at(x);
    LayoutType type = piece->type;
    if (type == everywhere(TensorPlacement::zero)) return type;
    for (const TypeAxis axis : axes_) {
      const Operand operand = {"x", x, *piece};
      op == ReduceOp::sum ? require_addend(call, operand, axis) : require_local_max(call, operand, axis);
      type[axis] = result == replicated_layout && is_of_experts(Group::Part::strided)
                       ? AxisLayout{TensorPlacement::experts, type[axis].block}
                       : result;
    }
    return type;
  }

  void require_addend(const Inference& call, const Operand& x, TypeAxis axis) const {
    switch (x[axis].placement) {
      case TensorPlacement::partial:
      case TensorPlacement::own:
        if (is_of_experts(Group::Part::strided))
          call.fail(fmt::format("{}, but '{}' are the ranks with the same experts alone", call.words(x, axis), over()));
        return;
      case TensorPlacement::expert_addends:
        if (is_of_experts(Group::Part::strided)) return;
        call.fail(fmt::format("{}, so the sum over '{}' would add up different experts", call.words(x, axis), over()));
      case TensorPlacement::dispatched:
      case TensorPlacement::dispatched_addends:
      case TensorPlacement::addends_at_node:
      case TensorPlacement::at_node:
      case TensorPlacement::departed:
      case TensorPlacement::experts:
      case TensorPlacement::addends_of_parts:
      case TensorPlacement::replicated:
      case TensorPlacement::zero:
        call.fail(fmt::format("{} already, so the sum over '{}' would count it {} times", call.words(x, axis), over(),
                              call.ranks().degree(axis)));
      case TensorPlacement::sharded:
        call.fail(fmt::format("{}, so the sum over '{}' would add up different parts", call.words(x, axis), over()));
      case TensorPlacement::local_sum:
        call.fail(fmt::format("{}: it must be rescaled before it is summed over '{}'", call.words(x, axis), over()));
      case TensorPlacement::attended:
        call.fail(fmt::format("{}, so the sum over '{}' would add up different rows", call.words(x, axis), over()));
      case TensorPlacement::local_max:
        call.fail(fmt::format("{}, and is summed over '{}'", call.words(x, axis), over()));
    }
  }

  void require_local_max(const Inference& call, const Operand& x, TypeAxis axis) const {
    if (x[axis].placement != TensorPlacement::local_max)
      call.fail(fmt::format("{}, and the maximum over '{}' is taken of it", call.words(x, axis), over()));
  }

  /// `shard` is this rank's part of something that is split along its outermost dim over each axis of the group.
  void require_part(const Inference& call, const Tensor& shard) const {
    if (call.is_padding(shard)) return;
    (void)call.read("the shard", shard);
    const TypedPiece* piece = mesh_.memory_.piece_at(shard);
    if (piece->type == everywhere(TensorPlacement::zero)) return;
    const Operand part = {"the shard", shard, *piece};
    for (const TypeAxis axis : axes_) {
      call.require_complete(part, axis);
      if (part[axis] == sharded_rows) continue;
      if (part[axis].placement == TensorPlacement::sharded)
        call.fail(fmt::format("{}, but parts are joined along dim 0 over '{}'", call.words(part, axis), over()));
      call.fail(fmt::format("{}, but is gathered over '{}' as if each rank had a part of its own",
                            call.words(part, axis), over()));
    }
  }

  /// A flat buffer of parameters gets the types of its parameters: which of them are in other ranks' parts is known by
  /// name alone.
  void write_gathered(Inference& call, const Tensor& full, const Tensor& shard) const {
    const Tensor own = own_part(*this, full, shard);
    const int gathered = mesh_.memory_.add_gathered({axes_, own.data, own.data + own.num_bytes()});
    const bool is_flat = full.sizes.num_dims() == 1 && mesh_.memory_.named_at(full) != nullptr;
    if (!is_flat) {
      LayoutType type = call.read("the shard", shard).piece.type;
      for (const TypeAxis axis : axes_) type[axis] = replicated_layout;
      if (is_of_tokens()) type[axes_.front()].order = RowOrder::by_rank;
      call.write_gathered(full, type, gathered);
      return;
    }
    for (const auto& [range, named] : mesh_.memory_.named_in(full)) call.write_gathered(range, named->type, gathered);
  }

  TypedMesh& mesh_;
  Group group_;
  std::vector<TypeAxis> axes_;
  std::vector<std::pair<int, LayoutType>> in_ring_;  // by how many places, until it is received
  int rank_;
  int size_;
};

TypedMesh::TypedMesh(const MeshShape& shape, TypedMemory& memory, const RankAxes& axes, const LayoutType& border)
    : Mesh(shape, axes.rank()), memory_(memory), axes_(axes), border_(border) {}
TypedMesh::~TypedMesh() = default;

Comm& TypedMesh::comm(const Group& group) {
  auto& comm = comms_[group];
  if (comm) return *comm;
  const std::vector<int> ranks = shape().ranks_of(group, rank());
  require(!ranks.empty(), "rank {} is in no group '{}'", rank(), name_of(group));
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  comm = std::make_unique<TypedComm>(*this, group, static_cast<int>(place), static_cast<int>(ranks.size()));
  return *comm;
}

}  // namespace echelon
