#include "blueprint/save_plan.h"

#include "checkpoint/state/state_file_plan.h"
#include "checkpoint/state/state_names.h"
#include "executor/unit_state.h"
#include "optim/state_parts.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"
#include "spec/lora/lora_parameters.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

namespace echelon {
namespace {

using Numbers = std::unordered_map<std::string, std::int64_t>;  // of parameters, by name

Numbers numbers_of(const RunConfig& config) {
  Numbers numbers;
  for (const NamedShape& parameter : saved_parameters(config.model, config.lora))
    numbers.emplace(parameter.name, std::ssize(numbers));
  return numbers;
}

/// Each once, neighbours as one range.
std::vector<Range> ranges_of(std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  std::vector<Range> ranges;
  for (const std::int64_t number : numbers) {
    if (!ranges.empty() && number < ranges.back().first + ranges.back().count) continue;
    if (!ranges.empty() && number == ranges.back().first + ranges.back().count)
      ++ranges.back().count;
    else
      ranges.push_back({number, 1});
  }
  return ranges;
}

/// Of the parameters of one part of a model.
using PartNumbers = std::unordered_map<const Param*, std::int64_t>;

PartNumbers numbers_of(const ModelPart& part, const Numbers& numbers) {
  PartNumbers of_part;
  for (const ShardedUnit* unit : part.units())
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments)
        if (segment.param->is_saved) of_part.emplace(segment.param, numbers.at(segment.param->name));
  return of_part;
}

std::optional<PlannedFile> file_of(const ModelPart& part, int rank, const PartNumbers& numbers) {
  StateFileSize size;
  std::vector<std::int64_t> written;
  std::vector<SliceRectangle> rectangles;
  const Segment* last = nullptr;
  for (const ShardedUnit* unit : part.units())
    for (const StatePart& state : state_parts(*unit)) {
      if (state.share.count == 0) continue;
      const Param& param = *state.segment->param;
      if (std::exchange(last, state.segment) != state.segment) {  // whose states have the same elements
        rectangles =
            rectangles_of(param.slice.elements({state.share.first - state.segment->offset, state.share.count}));
        written.push_back(numbers.at(&param));
      }
      for (const SliceRectangle& rectangle : rectangles)
        size.add(state.state, param.name, state.dtype, rectangle, param.global_sizes().num_dims() == 1);
    }
  if (written.empty()) return std::nullopt;
  return PlannedFile{.rank = rank, .num_bytes = size.num_bytes(), .parameters = ranges_of(std::move(written))};
}

/// The states that a rank saves, with their formats outside of its memory; of weights that of trained ones, which come
/// first. Frozen ones may have fewer digits.
std::vector<std::pair<std::string, DType>> states_of(const ModelPart& part) {
  std::vector<std::pair<std::string, DType>> states;
  for (const ShardedUnit* unit : part.units())
    for (const StatePart& state : state_parts(*unit)) {
      if (std::ranges::find(states, state.state, &std::pair<std::string, DType>::first) == states.end())
        states.emplace_back(state.state, state.dtype);
    }
  return states;
}

void add_frozen(const ModelPart& part, std::set<std::string>& frozen) {
  for (const ShardedUnit* unit : part.units())
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments)
        if (bucket.is_saved && !bucket.trains) frozen.insert(segment.param->name);
}

/// The first of the ranks that differ from this one along the data axes alone, and its place among those that have all
/// experts together.
std::pair<int, int> kind_of_rank(const RunConfig& config, const MeshShape& mesh, int rank) {
  Coordinates coordinates = mesh.coordinates_of(rank);
  for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard, Axis::cp})
    coordinates[static_cast<std::size_t>(axis)] = 0;
  const int num_ranks = num_expert_ranks(config.parallelism);
  return {mesh.rank_of(coordinates), num_ranks > 1 ? mesh.place_in(expert_group(num_ranks), rank).index : 0};
}

}  // namespace

std::vector<StateSlice> state_slices(const ModelPart& part) {
  std::vector<StateSlice> slices;
  for (const ShardedUnit* unit : part.units())
    for (const StatePart& state : state_parts(*unit))
      if (state.share.count > 0) slices.push_back(state.slice_of(state.share));
  return slices;
}

std::int64_t bytes_in_place(const ModelPart& part, std::int64_t snapshot_bytes) {
  const std::vector<std::int64_t> all = snapshot_bytes_of_units(part, -1),
                                  copied = snapshot_bytes_of_units(part, snapshot_bytes);
  return std::accumulate(all.begin(), all.end(), std::int64_t{0}) -
         std::accumulate(copied.begin(), copied.end(), std::int64_t{0});
}

std::optional<PlannedFile> planned_file(const Blueprint& blueprint, int rank) {
  const RunConfig& config = blueprint.config();
  const ModelPart part = make_model_part(config, blueprint.schedule(), rank);
  return file_of(part, rank, numbers_of(part, numbers_of(config)));
}

SavePlan::SavePlan(const Blueprint& blueprint) : blueprint_(&blueprint) {
  const RunConfig& config = blueprint.config();
  const MeshShape& mesh = blueprint.mesh();
  const Numbers numbers = numbers_of(config);
  std::map<std::pair<int, int>, std::vector<int>> replicas;
  for (int rank = 0; rank < mesh.num_ranks(); ++rank) replicas[kind_of_rank(config, mesh, rank)].push_back(rank);
  for (const auto& [kind, ranks] : replicas) {
    ModelPart part = make_model_part(config, blueprint.schedule(), ranks.front());
    const PartNumbers of_part = numbers_of(part, numbers);
    for (const int rank : ranks) {
      for (ShardedUnit* unit : part.units()) unit->place_at(mesh, rank);
      if (std::optional<PlannedFile> file = file_of(part, rank, of_part)) files_.push_back(std::move(*file));
    }
    if (states_.empty()) states_ = states_of(part);
    add_frozen(part, frozen_);
  }
  std::ranges::sort(files_, {}, &PlannedFile::rank);
}

std::int64_t SavePlan::num_bytes() const {
  std::int64_t sum = 0;
  for (const PlannedFile& file : files_) sum += file.num_bytes;
  return sum;
}

std::int64_t SavePlan::most_bytes() const {
  std::int64_t most = 0;
  for (const PlannedFile& file : files_) most = std::max(most, file.num_bytes);
  return most;
}

Manifest SavePlan::manifest(std::int64_t attempt, std::vector<LineageEntry> lineage) const {
  const RunConfig& config = blueprint_->config();
  Manifest manifest;
  manifest.attempt = attempt;
  manifest.config = to_toml(config);
  manifest.lineage = std::move(lineage);
  for (const NamedShape& parameter : saved_parameters(config.model, config.lora))
    manifest.parameters.push_back(
        {.name = parameter.name,
         .sizes = parameter.sizes,
         .states = frozen_.contains(parameter.name) ? std::vector<std::string>{"weight"} : std::vector<std::string>()});
  manifest.states = states_;
  const MixtureSpec& mixture = config.model.mixture;
  const auto num_counts =
      static_cast<std::size_t>(mixture.num_layers_of(config.model.num_hidden_layers) * mixture.num_experts);
  manifest.scalars.routers = {.counts = std::vector<std::int64_t>(num_counts),
                              .bias = std::vector<float>(mixture.has_bias ? num_counts : 0)};
  for (const PlannedFile& file : files_)
    manifest.files.push_back({.name = state_file_name(attempt, file.rank),
                              .num_bytes = file.num_bytes,
                              .header = {},
                              .parameters = file.parameters});
  return manifest;
}

std::int64_t SavePlan::most_manifest_bytes() const {
  Manifest first = manifest(1, {{.attempt = 1}});
  for (const char* dtype : {"bfloat16", "float16", "float32", "float64"})
    first.products[dtype] = "openblas/SapphireRapids";  // no name is longer
  if (blueprint_->config().lora.exists()) first.base.emplace();
  if (!blueprint_->config().checkpoint.tokenizer.empty())
    first.copies.push_back({std::string(checkpoint_tokenizer_name), std::numeric_limits<std::int32_t>::max(), {}});
  return most_bytes_of(std::move(first));
}

}  // namespace echelon
