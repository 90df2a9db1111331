#include "engine/rank_model.h"

#include "nn/init.h"

#include <cstddef>

namespace echelon {
namespace {

std::vector<BucketMemory> unit_memory(const ShardedUnit& unit, int index, RankMemory& memory) {
  const ShardOptions& options = unit.options();
  const DType wide = accumulate_dtype(options.dtype);
  std::vector<BucketMemory> buckets;
  for (std::size_t b = 0; b < unit.buckets().size(); ++b) {
    const Bucket& bucket = unit.buckets()[b];
    const auto take = [&](BufferRole role, DType dtype, std::int64_t count) {
      return memory.tensor(ProgramKind::training, {role, index, static_cast<int>(b)}, dtype, {count});
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

RankModel::RankModel(const RunConfig& config, const RankBlueprint& blueprint, RankMemory& memory, Ops& ops) : part_(make_model_part(config, blueprint.rank())) {
  for (std::size_t unit = 0; unit < part_.units.size(); ++unit) part_.units[unit].bind(unit_memory(part_.units[unit], static_cast<int>(unit), memory));
  const Sizes table = part_.stage->rope_table_sizes();
  if (table.num_dims() == 0) return;
  const DType wide = accumulate_dtype(part_.options.dtype);
  part_.stage->bind_rope_tables(ops, memory.tensor(ProgramKind::training, {BufferRole::rope_cos}, wide, table),
                                memory.tensor(ProgramKind::training, {BufferRole::rope_sin}, wide, table));
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
  for (ShardedUnit& unit : part_.units) unit.refresh_master(ops);
}

}  // namespace echelon
