#include "engine/param_pieces.h"

#include "ops/visit.h"

namespace echelon {
namespace {

template <class T>
std::vector<double> widened(const std::vector<std::byte>& bytes, double factor) {
  const T* numbers = reinterpret_cast<const T*>(bytes.data());
  std::vector<double> wide(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = factor * to<double>(numbers[i]);
  return wide;
}

bool is_first_copy(const ShardedUnit& unit, std::size_t bucket, const Segment& segment) {
  return unit.options().is_first_copy && unit.buckets()[bucket].is_first_copy && segment.param->is_first_copy;
}

/// The part of a segment inside the owned part of its bucket; `owned` has the values of that part.
void visit_owned(const ShardedUnit& unit, std::size_t bucket, const Segment& segment, const Tensor& owned,
                 bool is_first, const PieceVisitor& visit) {
  const Range mine = unit.buckets()[bucket].owned(), part = overlap(segment, mine);
  if (part.count == 0) return;
  visit({*segment.param, segment.param->slice.elements({part.first - segment.offset, part.count}),
         owned.rows(part.first - mine.first, part.count), is_first});
}

}  // namespace

void visit_values(RankModel& model, const PieceVisitor& visit) {
  for (const ShardedUnit* unit : model.part().units())
    for (std::size_t b = 0; b < unit->buckets().size(); ++b)
      for (const Segment& segment : unit->buckets()[b].segments) {
        const bool is_first = is_first_copy(*unit, b, segment), is_first_shard = unit->buckets()[b].shard.index == 0;
        if (unit->options().shards_parameters())
          visit_owned(*unit, b, segment, unit->param_part(b), is_first, visit);
        else
          visit({*segment.param, segment.param->slice, segment.param->value.flat(), is_first && is_first_shard});
      }
}

void visit_gradients(RankModel& model, const PieceVisitor& visit) {
  for (const ShardedUnit* unit : model.part().units())
    for (std::size_t b = 0; b < unit->buckets().size(); ++b)
      for (const Segment& segment : unit->buckets()[b].segments)
        if (segment.param->trains)
          visit_owned(*unit, b, segment, unit->grad_part(b), is_first_copy(*unit, b, segment), visit);
}

void visit_local_gradients(RankModel& model, const Action& action, const PieceVisitor& visit) {
  const auto visit_unit = [&](const ShardedUnit& unit) {
    const bool is_cut = unit.options().shards_gradients();
    if (is_cut && action.kind == ActionKind::reduce_gradients) return;
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      for (const Segment& segment : unit.buckets()[b].segments)
        if (is_cut && segment.param->trains)
          visit_owned(unit, b, segment, unit.grad_part(b), false, visit);
        else if (segment.param->trains)
          visit({*segment.param, segment.param->slice, segment.param->grad.flat(), false});
  };
  if (action.unit >= 0) return visit_unit(model.part().unit(action));
  for (const ShardedUnit* unit : model.part().units()) visit_unit(*unit);
}

std::vector<double> downloaded(Ops& ops, const Tensor& x, double factor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.num_bytes()));
  ops.download(bytes.data(), x);
  std::vector<double> wide;
  visit_float(x.dtype, [&](auto t) { wide = widened<decltype(t)>(bytes, factor); });
  return wide;
}

}  // namespace echelon
