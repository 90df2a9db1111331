#include "engine/rank_model.h"

#include "base/error.h"
#include "engine/param_pieces.h"
#include "executor/action_executor.h"
#include "executor/unit_state.h"
#include "nn/init.h"

#include <algorithm>

#include <cstddef>
#include <optional>

namespace echelon {
namespace {

/// Parameters seen from the host: in place where the backend computes in its memory, else by a copy of one parameter at
/// a time.
class HostAccess {
 public:
  explicit HostAccess(Ops& ops) : ops_(ops) { ops.publish(); }

  /// `fill(out)` writes all of x.
  template <class F>
  void write(const Tensor& x, F&& fill) {
    if (std::byte* in_place = ops_.host_address(x)) return fill(in_place);
    copy_.resize(static_cast<std::size_t>(x.num_bytes()));
    fill(copy_.data());
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

/// The first gather of a unit in the evaluation program, between whose runs the memory of its buffers is free.
int first_gather(const Program& program, const ModelPart& part, const ShardedUnit& unit) {
  for (const Action& action : program)
    if (action.kind == ActionKind::gather_parameters && &part.unit(action) == &unit) return action.id;
  throw Failure("a unit with sharded parameters is never gathered");
}

}  // namespace

RankModel::RankModel(const Blueprint& blueprint, int rank, RankMemory& memory, Ops& ops)
    : part_(make_model_part(blueprint.config(), blueprint.schedule(), rank)), memory_(memory) {
  ProgramBuffers buffers(memory, ProgramKind::training);
  bind_state(part_, buffers);
  bind_rope(part_, ops, buffers);
}

void RankModel::initialize(std::int64_t seed, Ops& ops, int num_threads) {
  HostAccess host(ops);
  visit_values(*this, [&](const ParamPiece& piece) {
    host.write(piece.numbers, [&](void* out) {
      echelon::initialize(piece.param, piece.slice, seed, piece.numbers.dtype, out, num_threads);
    });
  });
  refresh_masters(ops);
  set_routers({}, ops);
}

void RankModel::load(const ModelReader& reader, Ops& ops) {
  HostAccess host(ops);
  visit_values(*this, [&](const ParamPiece& piece) {
    if (is_of_adapter(piece.param.name)) return;
    host.write(piece.numbers, [&](void* out) { reader.read(piece.param.name, piece.slice, piece.numbers.dtype, out); });
  });
  refresh_masters(ops);
  set_routers({.bias = reader.router_bias()}, ops);
}

void RankModel::initialize_adapters(std::int64_t seed, Ops& ops) {
  HostAccess host(ops);
  visit_values(*this, [&](const ParamPiece& piece) {
    if (!is_of_adapter(piece.param.name)) return;
    host.write(piece.numbers,
               [&](void* out) { echelon::initialize(piece.param, piece.slice, seed, piece.numbers.dtype, out); });
  });
  refresh_masters(ops);
}

void RankModel::load_adapters(const AdapterReader& reader, Ops& ops) {
  HostAccess host(ops);
  visit_values(*this, [&](const ParamPiece& piece) {
    if (!piece.param.trains) return;
    host.write(piece.numbers, [&](void* out) { reader.read(piece.param.name, piece.slice, piece.numbers.dtype, out); });
  });
  refresh_masters(ops);
}

void RankModel::set_routers(const SavedRouters& routers, Ops& ops) {
  const auto set = [&](const Tensor& x, const auto& values, auto zero) {
    if (!x.exists()) return;
    std::vector<decltype(zero)> written(static_cast<std::size_t>(x.num_elements()), zero);
    if (values.size() == written.size()) std::copy(values.begin(), values.end(), written.begin());
    ops.upload(x, written.data());
  };
  set(router_tensor(BufferRole::router_loads, DType::float64, part_.router_loads_sizes()), routers.counts, 0.0);
  set(router_tensor(BufferRole::router_bias, DType::float32, part_.router_bias_sizes()), routers.bias, 0.0F);
}

Tensor RankModel::router_tensor(BufferRole role, DType dtype, const Sizes& sizes) {
  return sizes.num_dims() == 0 ? Tensor() : memory_.tensor(ProgramKind::training, {role}, dtype, sizes);
}

void RankModel::save(ModelWriter& writer, Ops& ops, Mesh& mesh) {
  HostAccess host(ops);
  std::optional<Failure> failure;
  const auto write = [&](const Param& param, DType dtype) {
    if (failure) return;
    try {
      writer.write(param.name, param.slice, dtype, host.read(param.value));
    } catch (const Failure& error) {
      failure = error;
    }
  };
  for (ShardedUnit* unit : part_.units()) {
    const ShardOptions& options = unit->options();
    if (!unit->has_first_copy()) continue;
    if (options.shards_parameters()) gather(*unit, ops, mesh);
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments)
        if (segment.param->is_saved && bucket.is_first_copy && bucket.shard.index == 0 && segment.param->is_first_copy)
          write(*segment.param, options.dtype);
    if (options.shards_parameters()) unit->release_parameters();
  }
  const Tensor bias = router_tensor(BufferRole::router_bias, DType::float32, part_.router_bias_sizes());
  const bool is_of_base = part_.options.lora.exists();  // which is not written
  if (!failure && mesh.rank() == 0 && bias.exists() && !is_of_base) {
    std::vector<float> values(static_cast<std::size_t>(bias.num_elements()));
    ops.download(values.data(), bias);
    writer.write_router_bias(values);
  }
  if (failure) throw Failure(*failure);
}

void RankModel::gather(ShardedUnit& unit, Ops& ops, Mesh& mesh) {
  const int id = first_gather(memory_.blueprint().program(ProgramKind::evaluation), part_, unit);
  ProgramBuffers buffers(memory_, ProgramKind::evaluation);
  unit.bind_parameters(whole_buffers(buffers, {BufferRole::gathered_param, id}, unit, unit.options().dtype));
  for (Pending& pending : unit.gather_parameters(ops, mesh)) pending.wait();
}

void RankModel::refresh_masters(Ops& ops) {
  for (ShardedUnit* unit : part_.units()) unit->refresh_master(ops);
}

}  // namespace echelon
