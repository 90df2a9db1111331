#include "engine/rank_state.h"

#include "optim/state_parts.h"
#include "tensor/remainder.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace echelon {
namespace {

/// The owned part of a bucket's state.
Tensor owned_state(const ShardedUnit& unit, StateRole role, std::size_t bucket) {
  if (role == StateRole::param) return unit.param_part(bucket);
  BucketMemory memory = unit.memory(bucket);
  return memory.of(role);
}

/// Some elements of the bucket, which the owned part has.
Tensor elements_of(const ShardedUnit& unit, StateRole role, std::size_t bucket, Range range) {
  return owned_state(unit, role, bucket).rows(range.first - unit.buckets()[bucket].owned().first, range.count);
}

bool is_split(const ShardedUnit& unit, const StatePart& part) {
  return part.role == StateRole::master && unit.options().stores_remainders;
}

void copy_out(Ops& ops, const Tensor& x, std::byte* out) {
  if (const std::byte* in_place = ops.host_address(x))
    std::memcpy(out, in_place, static_cast<std::size_t>(x.num_bytes()));
  else
    ops.download(out, x);
}

std::vector<std::byte> copied_out(Ops& ops, const Tensor& x) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.num_bytes()));
  copy_out(ops, x, bytes.data());
  return bytes;
}

/// Float32 weights out of their two halves.
void copy_joined(Ops& ops, const Tensor& upper, const Tensor& remainders, std::byte* out) {
  const std::vector<std::byte> high = copied_out(ops, upper), low = copied_out(ops, remainders);
  const auto* upper_bits = reinterpret_cast<const std::uint16_t*>(high.data());
  const auto* remainder = reinterpret_cast<const std::int16_t*>(low.data());
  auto* joint = reinterpret_cast<float*>(out);
  for (std::int64_t i = 0; i < upper.num_elements(); ++i) joint[i] = joined({upper_bits[i], remainder[i]});
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
  ops.upload(elements_of(unit, StateRole::param, part.bucket, part.owned), upper.data());
  ops.upload(elements_of(unit, StateRole::master, part.bucket, part.owned), remainders.data());
}

/// Parameters are what the optimizer leaves of its weights: rounded, and gathered if they are stored whole.
void refresh_parameters(ShardedUnit& unit, Ops& ops, Mesh& mesh) {
  const ShardOptions& options = unit.options();
  if (options.has_master() && !options.stores_remainders)
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      ops.copy(unit.param_part(b), owned_state(unit, StateRole::master, b));
  if (options.shards_parameters()) return;
  const bool is_cut = std::any_of(unit.buckets().begin(), unit.buckets().end(),
                                  [](const Bucket& bucket) { return bucket.shard.size > 1; });
  if (!is_cut) return;
  for (Pending& pending : unit.gather_parameters(ops, mesh)) pending.wait();
}

}  // namespace

std::vector<StateSlice> state_slices(const ModelPart& part) {
  std::vector<StateSlice> slices;
  for (const ShardedUnit* unit : part.units())
    for (const StatePart& state : state_parts(*unit))
      if (state.share.count > 0) slices.push_back(state.slice_of(state.share));
  return slices;
}

void save_state(const ModelPart& part, StateFileWriter& writer, Ops& ops) {
  ops.publish();
  for (const ShardedUnit* unit : part.units())
    for (const StatePart& state : state_parts(*unit)) {
      if (state.share.count == 0) continue;
      writer.write([&](Range elements, std::byte* out) {
        const Range range = {state.share.first + elements.first, elements.count};
        const Tensor stored = elements_of(*unit, state.role, state.bucket, range);
        if (is_split(*unit, state))
          copy_joined(ops, elements_of(*unit, StateRole::param, state.bucket, range), stored, out);
        else
          copy_out(ops, stored, out);
      });
    }
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
      write_from_host(ops, elements_of(*unit, state.role, state.bucket, state.owned),
                      [&](std::byte* owned) { source.read(state, owned); });
    }
    refresh_parameters(*unit, ops, mesh);
  }
  if (source.error) throw Error(*source.error);
}

}  // namespace echelon
