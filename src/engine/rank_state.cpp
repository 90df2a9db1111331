#include "engine/rank_state.h"

#include "base/error.h"
#include "optim/state_parts.h"
#include "tensor/remainder.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace echelon {
namespace {

bool is_split(const ShardedUnit& unit, const StatePart& part) {
  return part.role == StateRole::master && unit.options().stores_remainders;
}

void copy_out(Ops& ops, const Tensor& x, std::byte* out) {
  if (const std::byte* in_place = ops.host_address(x))
    std::memcpy(out, in_place, static_cast<std::size_t>(x.num_bytes()));
  else
    ops.download(out, x);
}

/// `fill(out)` writes all of x, for a moment in host memory.
template <class F>
void write_from_host(Ops& ops, const Tensor& x, F&& fill) {
  if (std::byte* in_place = ops.host_address(x)) return fill(in_place);
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.num_bytes()));
  fill(bytes.data());
  ops.upload(x, bytes.data());
}

/// Every rank with these values has read its share; now each gets all of them: first from the innermost group of
/// copies, whose shares are neighbours.
void exchange_shares(const StatePart& part, std::byte* owned, Mesh& host) {
  std::vector<Copies> copies = part.segment->copies;
  for (std::size_t level = copies.size(); level-- > 0;) {
    Comm& comm = host.comm(copies[level].group);
    const int own_place = copies[level].place.index;
    for (int root = 0; root < copies[level].place.size; ++root) {
      copies[level].place.index = root;
      const Range share = share_of(part.owned, copies, level + 1);
      if (share.count == 0) continue;
      std::byte* first = owned + (share.first - part.owned.first) * size_of(part.dtype);
      comm.broadcast({first, part.dtype, {share.count}}, root).wait();
    }
    copies[level].place.index = own_place;
  }
}

/// Where values come from, and the first error on the way.
struct Source {
  const StateReader& reader;
  Mesh& host;
  std::optional<Error> error = {};
  StateReader::Cache cache = {};

  void read(const StatePart& part, std::byte* owned) {
    try {
      if (part.share.count > 0 && !error)
        reader.read(part.slice_of(part.share), owned + (part.share.first - part.owned.first) * size_of(part.dtype),
                    cache);
    } catch (const Error& caught) {
      error = caught;
    }
    exchange_shares(part, owned, host);
  }
};

void load_split(const ShardedUnit& unit, const StatePart& part, Source& source, Ops& ops) {
  const auto count = static_cast<std::size_t>(part.owned.count);
  std::vector<float> weights(count);
  source.read(part, reinterpret_cast<std::byte*>(weights.data()));
  std::vector<std::uint16_t> upper(count);
  std::vector<std::int16_t> remainders(count);
  for (std::size_t i = 0; i < count; ++i) {
    const SplitFloat halves = split(weights[i]);
    upper[i] = halves.upper;
    remainders[i] = halves.remainder;
  }
  ops.upload(unit.state_in(StateRole::param, part.bucket, part.owned), upper.data());
  ops.upload(unit.state_in(StateRole::master, part.bucket, part.owned), remainders.data());
}

/// Parameters are what the optimizer leaves of its weights: rounded, and gathered if they are stored whole.
void refresh_parameters(ShardedUnit& unit, Ops& ops, Mesh& mesh) {
  const ShardOptions& options = unit.options();
  if (options.has_master() && !options.stores_remainders)
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      if (unit.buckets()[b].trains)
        ops.copy(unit.param_part(b), unit.state_in(StateRole::master, b, unit.buckets()[b].owned()));
  if (options.shards_parameters()) return;
  const bool is_cut = std::any_of(unit.buckets().begin(), unit.buckets().end(),
                                  [](const Bucket& bucket) { return bucket.is_saved && bucket.shard.size > 1; });
  if (!is_cut) return;
  for (Pending& pending : unit.gather_saved(ops, mesh)) pending.wait();
}

/// The state of a unit as it is stored: in its memory, or in a snapshot's copy.
class StoredValues {
 public:
  StoredValues(const ShardedUnit& unit, const std::byte* copy, Ops& ops) : unit_(unit), copy_(copy), ops_(ops) {
    if (copy != nullptr) runs_ = snapshot_runs(unit);
  }

  /// Some values of a part; of split weights the joined ones.
  void read(const StatePart& part, Range range, std::byte* out) const {
    if (!is_split(unit_, part)) return copy_to(out, part.role, part, range);
    std::vector<std::uint16_t> upper(static_cast<std::size_t>(range.count));
    std::vector<std::int16_t> remainders(upper.size());
    copy_to(reinterpret_cast<std::byte*>(upper.data()), StateRole::param, part, range);
    copy_to(reinterpret_cast<std::byte*>(remainders.data()), StateRole::master, part, range);
    auto* joint = reinterpret_cast<float*>(out);
    for (std::size_t i = 0; i < upper.size(); ++i) joint[i] = joined({upper[i], remainders[i]});
  }

 private:
  void copy_to(std::byte* out, StateRole role, const StatePart& part, Range range) const {
    if (copy_ == nullptr) return copy_out(ops_, unit_.state_in(role, part.bucket, range), out);
    for (const SnapshotRun& run : runs_) {
      const std::int64_t first = range.first - run.range.first;
      if (run.role != role || run.bucket != part.bucket || first < 0 || first + range.count > run.range.count) continue;
      const std::int64_t size = size_of(run.dtype);
      std::memcpy(out, copy_ + run.first_byte + first * size, static_cast<std::size_t>(range.count * size));
      return;
    }
    throw Failure("a snapshot lacks values of a unit");
  }

  const ShardedUnit& unit_;
  const std::byte* copy_;
  std::vector<SnapshotRun> runs_;
  Ops& ops_;
};

}  // namespace

std::vector<StateSource> state_sources(const ModelPart& part, Ops& ops, const std::vector<const std::byte*>& copies) {
  std::vector<StateSource> sources;
  const std::vector<const ShardedUnit*> units = part.units();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const StoredValues values(*units[u], copies.empty() ? nullptr : copies[u], ops);
    for (const StatePart& state : state_parts(*units[u]))
      if (state.share.count > 0)
        sources.push_back({u, [values, state](Range elements, std::byte* out) {
                             values.read(state, {state.share.first + elements.first, elements.count}, out);
                           }});
  }
  return sources;
}

std::vector<const std::byte*> snapshot_copies(const RankMemory& memory, const ModelPart& part) {
  std::vector<const std::byte*> copies;
  for (const StagePart& stage : part.stages)
    for (std::size_t unit = 0; unit < stage.units.size(); ++unit) {
      Stack region = memory.region(ProgramKind::training_with_snapshot,
                                   {BufferRole::snapshot, static_cast<int>(unit), stage.index});
      copies.push_back(region.capacity_bytes() == 0 ? nullptr : region.take(DType::int32, {0}).data);
    }
  return copies;
}

void load_state(ModelPart& part, const StateReader& reader, const LoadedStates& states, Ops& ops, Mesh& mesh,
                Mesh& host) {
  ops.publish();
  Source source{reader, host};
  for (ShardedUnit* unit : part.units()) {
    for (const StatePart& state : state_parts(*unit)) {
      const bool is_weight = state.role == StateRole::param || state.role == StateRole::master;
      if (!is_weight && !states.moments) continue;
      if (is_split(*unit, state)) {
        load_split(*unit, state, source, ops);
        continue;
      }
      write_from_host(ops, unit->state_in(state.role, state.bucket, state.owned),
                      [&](std::byte* owned) { source.read(state, owned); });
    }
    refresh_parameters(*unit, ops, mesh);
  }
  if (source.error) throw Error(*source.error);
}

}  // namespace echelon
