#include "types/inference.h"

#include "base/error.h"

namespace echelon {
namespace {

Writer writer_among(TypedMemory& memory, std::string_view operation, std::span<const Tensor> operands) {
  for (const Tensor& x : operands)
    if (const NamedMemory* named = memory.named_at(x); named != nullptr && !named->is_of_host)
      return {operation, named->name};
  if (const NamedMemory* named = operands.empty() ? nullptr : memory.named_at(operands.front()))
    return {operation, named->name};
  for (const Tensor& x : operands)
    if (const TypedPiece* piece = memory.piece_at(x); piece != nullptr && !memory.writer(*piece).param.empty())
      return {operation, memory.writer(*piece).param, true};
  return {operation, {}};
}

TypedPiece without_zeros(TypedPiece piece) {
  for (AxisLayout& layout : piece.type.axes)
    if (layout.placement == TensorPlacement::zero) layout = replicated_layout;
  return piece;
}

}  // namespace

Inference::Inference(TypedMemory& memory, const RankAxes& axes, std::string_view operation,
                     std::span<const Tensor> operands)
    : memory_(memory),
      axes_(axes),
      self_(writer_among(memory, operation, operands)),
      self_index_(memory.add_writer(self_)) {}

Operand Inference::read(std::string_view role, const Tensor& x) const {
  if (!x.exists() || x.num_elements() == 0) return {role, x, {}};
  std::optional<TypedPiece> differing;
  const auto piece = memory_.find(x, differing);
  if (!piece) fail(fmt::format("{} is read, but not all of it was ever written", role));
  if (!differing) return {role, x, without_zeros(*piece)};
  const Operand first = {role, x, without_zeros(*piece)}, other = {role, x, without_zeros(*differing)};
  for (const TypeAxis axis : axes())
    if (first[axis] != other[axis])
      fail(fmt::format("one part of {}, but another part is {}", words(first, axis), describe(other[axis], x)));
  return first;
}

LayoutType Inference::as_gradient(const Tensor& x, LayoutType type) const {
  const NamedMemory* named = memory_.named_at(x);
  if (named == nullptr || !named->is_gradient) return type;
  for (const TypeAxis axis : axes())
    if (type[axis] == own_layout && named->type[axis] == replicated_layout) type[axis] = partial_layout;
  return type;
}

void Inference::write(const Tensor& x, const LayoutType& type) {
  memory_.write(x, {.type = as_gradient(x, type), .writer = self_index_});
}

void Inference::write_gathered(const Tensor& x, const LayoutType& type, int gathered) {
  memory_.write(x, {.type = type, .writer = self_index_, .gathered = gathered});
}

void Inference::add_to(std::string_view role, const Tensor& x, const LayoutType& type) {
  const LayoutType added = as_gradient(x, type);
  const Operand before = read(role, x);
  const bool is_zero = memory_.piece_at(x)->type == everywhere(TensorPlacement::zero);
  for (const TypeAxis axis : axes())
    if (!is_zero && before[axis] != added[axis])
      fail(fmt::format("{}, and what is added to it {}", words(before, axis), describe(added[axis], x)));
  write(x, type);
}

void Inference::require_complete(const Operand& x, TypeAxis axis) const {
  const TensorPlacement placement = x[axis].placement;
  if (placement == TensorPlacement::attended)
    fail(fmt::format("{}, but is read as if all {} blocks of the ring were in it", words(x, axis), axes_.degree(axis)));
  if (placement == TensorPlacement::departed)
    fail(fmt::format("{}, but is read as if it had come back", words(x, axis)));
  if (x[axis].distance != 0) fail(fmt::format("{}, but is read as if it were this rank's", words(x, axis)));
  if (placement == TensorPlacement::partial || placement == TensorPlacement::addends_of_parts ||
      placement == TensorPlacement::expert_addends || placement == TensorPlacement::dispatched_addends ||
      placement == TensorPlacement::addends_at_node)
    fail(fmt::format("{}, but is read as if it were complete: nothing has summed it over {}", words(x, axis),
                     axes_.name(axis)));
  if (placement == TensorPlacement::local_sum || placement == TensorPlacement::local_max)
    fail(fmt::format("{}, but is read as if it were that of all ranks: nothing has reduced it over {}", words(x, axis),
                     axes_.name(axis)));
}

void Inference::require_whole(const Operand& x, TypeAxis axis) const {
  require_complete(x, axis);
  if (x[axis].placement == TensorPlacement::sharded)
    fail(fmt::format("{}, but is read as if it were whole: nothing has gathered it over {}", words(x, axis),
                     axes_.name(axis)));
  if (x[axis].placement == TensorPlacement::dispatched || x[axis].placement == TensorPlacement::at_node ||
      x[axis].placement == TensorPlacement::experts)
    fail(fmt::format("{}, but is read as if it were that of all experts", words(x, axis)));
}

void Inference::require_the_same(const Operand& x) const {
  for (const TypeAxis axis : axes()) {
    require_whole(x, axis);
    if (x[axis] == own_layout) fail(fmt::format("{}, but decides what all ranks do", words(x, axis)));
  }
}

AxisLayout Inference::shared(const Operand& a, const Operand& b, TypeAxis axis) const {
  if (const auto both = united(a[axis], b[axis], axes_.degree(axis))) return *both;
  if (a[axis] == b[axis] && a[axis].placement != TensorPlacement::attended) return a[axis];
  if (a[axis] == own_layout && b[axis] == replicated_layout) return own_layout;
  if (b[axis] == own_layout && a[axis] == replicated_layout) return own_layout;
  fail_together(a, b, axis);
}

void Inference::require_position(const Operand& x, int dim, std::int64_t first) const {
  std::int64_t index = 0;
  bool is_cut = false;
  for (const TypeAxis axis : axes()) {
    if (!x.is_sharded_along(axis, dim)) continue;
    index = index * axes_.degree(axis) + axes_.index(axis);
    is_cut = true;
  }
  if (!is_cut || first == index * x.tensor.size(dim)) return;
  fail(fmt::format("{} is part {} of its dim {}, so it starts at {}, but {} is given", x.role, index, dim,
                   index * x.tensor.size(dim), first));
}

void Inference::for_uniform_ranges(std::initializer_list<Tensor> tensors,
                                   const std::function<void(std::int64_t, std::int64_t)>& f) const {
  memory_.for_uniform_ranges(tensors, f);
}

void Inference::fail(const std::string& sentence) const {
  throw Failure(fmt::format("{}: {}", self_.words(), sentence));
}

std::string Inference::words(const Operand& x, TypeAxis axis) const {
  const std::string writer = memory_.writer(x.piece).words();
  return fmt::format("{}{} is {} over {}", x.role, writer.empty() ? "" : fmt::format(", which {} wrote,", writer),
                     describe(x[axis], x.tensor), axes_.name(axis));
}

void Inference::fail_together(const Operand& a, const Operand& b, TypeAxis axis) const {
  const bool are_of_a_ring = a[axis].placement == TensorPlacement::attended || a[axis].distance != b[axis].distance;
  for (const Operand& x : {a, b})
    if (!are_of_a_ring) require_complete(x, axis);
  fail(fmt::format("{}, and {}: they do not belong together", words(a, axis), words(b, axis)));
}

}  // namespace echelon
