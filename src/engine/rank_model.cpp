#include "engine/rank_model.h"

#include "nn/init.h"

#include <cstddef>

namespace echelon {
namespace {

/// `place` says which stage and unit.
std::vector<BucketMemory> unit_memory(const ShardedUnit& unit, BufferKey place, RankMemory& memory) {
  const ShardOptions& options = unit.options();
  const DType wide = accumulate_dtype(options.dtype);
  std::vector<BucketMemory> buckets;
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const Bucket& bucket = unit.buckets()[b];
    const auto take = [&](BufferRole role, DType dtype, std::int64_t count) {
      return memory.tensor(ProgramKind::training, {role, place.index, place.stage, static_cast<int>(b)}, dtype, {count});
    };
    const std::int64_t owned = unit.owned(bucket).count;
    buckets.push_back({.param = take(BufferRole::param, options.dtype, bucket.num_elements),
                       .grad = take(BufferRole::grad, options.grad_dtype, bucket.num_elements),
                       .master = options.has_master() ? take(BufferRole::master, wide, owned) : Tensor(),
                       .m = take(BufferRole::m, wide, owned),
                       .v = take(BufferRole::v, wide, owned)});
  }
  return buckets;
}

/// Parameters seen from the host: in place where the backend computes in its memory, else by a copy of one parameter at a time.
class HostAccess {
 public:
  explicit HostAccess(Ops& ops) : ops_(ops) { ops.publish(); }

  template <class F>
  void fill(const Tensor& x, F&& f) {
    if (std::byte* in_place = ops_.host_address(x)) return f(in_place);
    copy_.resize(static_cast<std::size_t>(x.num_bytes()));
    f(copy_.data());
    ops_.upload(x, copy_.data());
  }
  const std::byte* read(const Tensor& x) {
    if (const std::byte* in_place = ops_.host_address(x)) return in_place;
    copy_.resize(static_cast<std::size_t>(x.num_bytes()));
    ops_.download(copy_.data(), x);
    return copy_.data();
  }

 private:
  Ops& ops_;
  std::vector<std::byte> copy_;
};

}  // namespace

RankModel::RankModel(const Blueprint& blueprint, int rank, RankMemory& memory, Ops& ops)
    : part_(make_model_part(blueprint.config(), blueprint.schedule(), rank)) {
  for (StagePart& each : part_.stages)
    for (std::size_t unit = 0; unit < each.units.size(); ++unit)
      each.units[unit].bind(unit_memory(each.units[unit], {.index = static_cast<int>(unit), .stage = each.index}, memory));
  const Sizes table = part_.rope_table_sizes();
  if (table.num_dims() == 0) return;
  const DType wide = accumulate_dtype(part_.options.dtype);
  const Tensor cos = memory.tensor(ProgramKind::training, {BufferRole::rope_cos}, wide, table);
  const Tensor sin = memory.tensor(ProgramKind::training, {BufferRole::rope_sin}, wide, table);
  for (StagePart& each : part_.stages) each.stage->bind_rope_tables(ops, cos, sin);
}

void RankModel::initialize(std::int64_t seed, Ops& ops) {
  HostAccess host(ops);
  for (Param* param : part_.params()) host.fill(param->value, [&](void* out) { echelon::initialize(*param, seed, param->value.dtype, out); });
  refresh_masters(ops);
}

void RankModel::load(const ModelReader& reader, Ops& ops) {
  HostAccess host(ops);
  for (Param* param : part_.params()) host.fill(param->value, [&](void* out) { reader.read(*param, param->value.dtype, out); });
  refresh_masters(ops);
}

void RankModel::save(ModelWriter& writer, Ops& ops) {
  HostAccess host(ops);
  for (const Param* param : part_.written_params()) writer.write(*param, param->value.dtype, host.read(param->value));
}

void RankModel::refresh_masters(Ops& ops) {
  for (ShardedUnit* unit : part_.units()) unit->refresh_master(ops);
}

}  // namespace echelon
