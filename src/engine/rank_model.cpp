#include "engine/rank_model.h"

#include "nn/init.h"

#include <cstddef>

namespace echelon {
namespace {

/// `place` says which stage and unit.
std::vector<BucketMemory> unit_memory(const ShardedUnit& unit, BufferKey place, RankMemory& memory) {
  const ShardOptions& options = unit.options();
  std::vector<BucketMemory> buckets;
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const Bucket& bucket = unit.buckets()[b];
    const auto take = [&](BufferRole role, DType dtype, std::int64_t count) {
      return memory.tensor(ProgramKind::training, {role, place.index, place.stage, static_cast<int>(b)}, dtype,
                           {count});
    };
    const std::int64_t owned = unit.owned(bucket).count;
    buckets.push_back(
        {.param = take(BufferRole::param, options.dtype, options.shards_parameters() ? owned : bucket.num_elements),
         .grad = take(BufferRole::grad, options.grad_dtype, options.shards_gradients() ? owned : bucket.num_elements),
         .master = options.has_master() ? take(BufferRole::master, options.master_dtype(), owned) : Tensor(),
         .m = take(BufferRole::m, options.moments_dtype, owned),
         .v = take(BufferRole::v, options.moments_dtype, owned)});
  }
  return buckets;
}

/// Parameters seen from the host: in place where the backend computes in its memory, else by a copy of one parameter at
/// a time.
class HostAccess {
 public:
  explicit HostAccess(Ops& ops) : ops_(ops) { ops.publish(); }

  /// `fill` writes all of a parameter; of one that is cut, the part that lies here is taken.
  template <class F>
  void fill(const ShardedUnit& unit, F&& fill) {
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      for (const Segment& segment : unit.buckets()[b].segments) {
        const Tensor& value = segment.param->value;
        const bool is_whole = !unit.options().shards_parameters();
        std::byte* in_place = is_whole ? ops_.host_address(value) : nullptr;
        if (in_place == nullptr) copy_.resize(static_cast<std::size_t>(value.num_bytes()));
        fill(*segment.param, in_place != nullptr ? in_place : copy_.data());
        if (in_place != nullptr) continue;
        if (is_whole)
          ops_.upload(value, copy_.data());
        else
          upload_owned(unit, b, segment);
      }
  }
  const std::byte* read(const Tensor& x) {
    if (const std::byte* in_place = ops_.host_address(x)) return in_place;
    copy_.resize(static_cast<std::size_t>(x.num_bytes()));
    ops_.download(copy_.data(), x);
    return copy_.data();
  }

 private:
  void upload_owned(const ShardedUnit& unit, std::size_t bucket, const Segment& segment) {
    const Range mine = unit.owned(unit.buckets()[bucket]), part = overlap(segment, mine);
    if (part.count == 0) return;
    const Tensor held = unit.param_part(bucket).rows(part.first - mine.first, part.count);
    ops_.upload(held, copy_.data() + (part.first - segment.offset) * size_of(held.dtype));
  }

  Ops& ops_;
  std::vector<std::byte> copy_;
};

/// The first gather of a unit in the evaluation program, between whose runs the memory of its buffers is free.
int first_gather(const Program& program, const ModelPart& part, const ShardedUnit& unit) {
  for (const Action& action : program)
    if (action.kind == ActionKind::gather_parameters && &part.unit(action) == &unit) return action.id;
  throw Failure("a unit whose parameters are cut is never gathered");
}

}  // namespace

RankModel::RankModel(const Blueprint& blueprint, int rank, RankMemory& memory, Ops& ops)
    : part_(make_model_part(blueprint.config(), blueprint.schedule(), rank)), memory_(memory) {
  for (StagePart& each : part_.stages)
    for (std::size_t unit = 0; unit < each.units.size(); ++unit)
      each.units[unit].bind(
          unit_memory(each.units[unit], {.index = static_cast<int>(unit), .stage = each.index}, memory));
  const Sizes table = part_.rope_table_sizes();
  if (table.num_dims() == 0) return;
  const DType wide = accumulate_dtype(part_.options.dtype);
  const Tensor cos = memory.tensor(ProgramKind::training, {BufferRole::rope_cos}, wide, table);
  const Tensor sin = memory.tensor(ProgramKind::training, {BufferRole::rope_sin}, wide, table);
  for (StagePart& each : part_.stages) each.stage->bind_rope_tables(ops, cos, sin);
}

void RankModel::initialize(std::int64_t seed, Ops& ops) {
  HostAccess host(ops);
  for (const ShardedUnit* unit : part_.units())
    host.fill(*unit, [&](const Param& param, void* out) { echelon::initialize(param, seed, param.value.dtype, out); });
  refresh_masters(ops);
}

void RankModel::load(const ModelReader& reader, Ops& ops) {
  HostAccess host(ops);
  for (const ShardedUnit* unit : part_.units())
    host.fill(*unit, [&](const Param& param, void* out) { reader.read(param, param.value.dtype, out); });
  refresh_masters(ops);
}

void RankModel::save(ModelWriter& writer, Ops& ops, Mesh& mesh) {
  HostAccess host(ops);
  for (ShardedUnit* unit : part_.units()) {
    const ShardOptions& options = unit->options();
    if (!options.is_first_copy) continue;
    if (options.shards_parameters()) gather(*unit, ops, mesh);
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments)
        if (options.shard_index == 0 && segment.param->is_first_copy)
          writer.write(*segment.param, options.dtype, host.read(segment.param->value));
    if (options.shards_parameters()) unit->release_parameters();
  }
}

void RankModel::gather(ShardedUnit& unit, Ops& ops, Mesh& mesh) {
  const int id = first_gather(memory_.blueprint().program(ProgramKind::evaluation), part_, unit);
  unit.bind_parameters(
      memory_.unit_buffers(ProgramKind::evaluation, {BufferRole::gathered_param, id}, unit, unit.options().dtype));
  for (Pending& pending : unit.gather_parameters(ops, mesh)) pending.wait();
}

void RankModel::refresh_masters(Ops& ops) {
  for (ShardedUnit* unit : part_.units()) unit->refresh_master(ops);
}

}  // namespace echelon
