#include "plan/bounds/layout_steps.h"

#include "blueprint/blueprint.h"
#include "executor/scalars.h"
#include "predict/machine/least_communication.h"
#include "spec/config/pipeline.h"
#include "spec/groups.h"

#include <algorithm>

namespace echelon {
namespace {

constexpr std::int64_t most_known_actions = 1 << 21;  // some hundred MiB

constexpr std::size_t num_action_kinds = static_cast<std::size_t>(ActionKind::report) + 1;
constexpr auto at(ActionKind kind) { return static_cast<std::size_t>(kind); }

/// Seconds of the passes of a unit or a stage: of the first microbatch that forms gradients, and of all others.
using PassSeconds = std::array<std::array<double, num_pass_kinds>, 2>;
using KindSeconds = std::array<double, num_action_kinds>;

/// One stage of a layout: what its units are.
struct StageUnits {
  StageLayers layers;
  std::int64_t num_again = 0;  // blocks that are formed again, the first ones
  [[nodiscard]] int num_units() const {
    return static_cast<int>(layers.num_layers) + (layers.has_embedding ? 1 : 0) + (layers.has_head ? 1 : 0);
  }
};

/// A layout's costs on its own mesh.
class Costs {
 public:
  Costs(const LayerCosts& layers, const UnitStates& state, const LayoutProgram& program, const MeshShape& mesh,
        const MachineSpec& machine, std::vector<StageUnits> stages)
      : layers_(layers), state_(state), program_(program), devices_(mesh, machine), stages_(std::move(stages)) {
    const int num_ranks = static_cast<int>(program.programs.size());
    // A group's nodes may lie below one switch or several.
    const bool ranks_differ = machine.network.nodes_per_leaf > 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      if (rank > 0 && !ranks_differ) {
        ranks_.push_back(ranks_.front());
      } else {
        ranks_.push_back(seconds_of_rank(mesh_rank(rank)));
      }
    }
  }

  /// Fills the seconds of a rank's works in.
  void fill(int rank, std::vector<Work>& works) {
    const OfRank& own = ranks_[static_cast<std::size_t>(rank)];
    const std::vector<PassSeconds> whole = whole_stages(own);
    std::map<std::pair<int, bool>, double> transfers;
    const Program& program = program_.programs[static_cast<std::size_t>(rank)];
    for (const Action& action : program)
      works[static_cast<std::size_t>(action.id)].seconds = seconds_of(rank, action, own, whole, transfers);
  }

  [[nodiscard]] std::int64_t peak_bytes(int rank) const {
    const Program& program = program_.programs[static_cast<std::size_t>(rank)];
    std::vector<std::int64_t> changes(program.size() + 1, 0);
    for (const BufferLife& life : program_.lives[static_cast<std::size_t>(rank)]) {
      const std::int64_t bytes = bytes_of(life);
      changes[static_cast<std::size_t>(life.first)] += bytes;
      changes[static_cast<std::size_t>(life.last) + 1] -= bytes;
    }
    std::int64_t live = 0, peak = 0;
    for (const Action& action : program) {
      live += changes[static_cast<std::size_t>(action.id)];
      peak = std::max(peak, live + workspace_bytes(action));
    }
    return persistent_bytes(rank) + peak;
  }

  std::int64_t batch_bytes = 0;

 private:
  struct OfRank {
    std::array<PassSeconds, 4> passes;                               // embedding, block, recomputed block, head
    std::array<KindSeconds, 5> states;                               // embedding, block, head, tied weight, its copy
    double count_seconds = 0, clip_seconds = 0, report_seconds = 0;  // of scalars
  };
  enum Part : std::uint8_t { embedding, block, recomputed, head };
  enum StatePart : std::uint8_t { of_embedding, of_block, of_head, of_tied, of_copy };

  [[nodiscard]] int mesh_rank(int pipeline_rank) const {
    Coordinates coordinates{};
    coordinates[static_cast<std::size_t>(Axis::pp)] = pipeline_rank;
    return devices_.mesh().rank_of(coordinates);
  }

  [[nodiscard]] double seconds_of(const CommRecord& record, int rank) const {
    return least_communication_seconds(record, rank, devices_);
  }
  [[nodiscard]] double seconds_of(const ActionCost& cost, int rank) const {
    return seconds_of_events(cost.events, [&](const CommRecord& record) { return seconds_of(record, rank); });
  }

  [[nodiscard]] OfRank seconds_of_rank(int rank) const {
    OfRank of;
    const UnitCost* const units[] = {&layers_.embedding, &layers_.block, &layers_.recomputed_block, &layers_.head};
    for (std::size_t part = 0; part < std::size(units); ++part)
      for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
        const bool only_adds = part == head && shares_tied_weight();
        of.passes[part][0][kind] = seconds_of(only_adds ? units[part]->later[kind] : units[part]->first[kind], rank);
        // In buffers of their own the gradients of every microbatch are the first ones.
        of.passes[part][1][kind] =
            program_.options.shards_gradients ? of.passes[part][0][kind] : seconds_of(units[part]->later[kind], rank);
      }
    const UnitState* const states[] = {&state_.embedding, &state_.block, &state_.head, &state_.tied_weight,
                                       &state_.tied_copy};
    for (std::size_t part = 0; part < std::size(states); ++part) {
      of.states[part].fill(0);
      for (const auto& [kind, cost] : states[part]->costs)
        // Middle ranks have none.
        if (kind != ActionKind::sum_tied) of.states[part][at(kind)] = seconds_of(cost, rank);
    }
    const int num_ranks = devices_.mesh().num_ranks(),
              num_copies = num_ranks / (devices_.mesh().degree(Axis::pp) * devices_.mesh().degree(Axis::tp));
    const auto sum_over = [&](const Group& group, int size, std::int64_t count) {
      return seconds_of(CommRecord{.kind = CommKind::all_reduce,
                                   .group = group,
                                   .group_size = size,
                                   .dtype = DType::float64,
                                   .num_elements = count},
                        rank);
    };
    of.count_seconds = sum_over(data_group, num_copies, num_count_scalars);
    of.clip_seconds = sum_over(step_group, num_ranks, num_clip_scalars) + state_.factor_seconds;
    of.report_seconds = sum_over(step_group, num_ranks, num_report_scalars);
    return of;
  }

  [[nodiscard]] Part part_of(int stage, int unit) const {
    const StageUnits& units = stages_[static_cast<std::size_t>(stage)];
    const int block_index = unit - (units.layers.has_embedding ? 1 : 0);
    if (block_index < 0) return embedding;
    if (block_index >= units.layers.num_layers) return head;
    return block_index < units.num_again ? recomputed : block;
  }

  /// Two stages of one rank: neither forms the weight's gradient by a product alone.
  [[nodiscard]] bool shares_tied_weight() const { return program_.options.stages.back().borrows_tied_weight; }
  [[nodiscard]] bool is_tied_alone(int stage) const {
    return rank_of(0) != rank_of(static_cast<int>(stages_.size()) - 1) && stage > 0;
  }
  [[nodiscard]] int rank_of(int stage) const { return program_.rank_of_stage[static_cast<std::size_t>(stage)]; }

  [[nodiscard]] StatePart state_of(int stage, int unit) const {
    if (unit == stages_[static_cast<std::size_t>(stage)].num_units()) return is_tied_alone(stage) ? of_copy : of_tied;
    switch (part_of(stage, unit)) {
      case embedding: return of_embedding;
      case head: return of_head;
      default: return of_block;
    }
  }

  [[nodiscard]] std::vector<PassSeconds> whole_stages(const OfRank& own) const {
    std::vector<PassSeconds> all;
    for (const StageUnits& units : stages_) {
      PassSeconds& stage = all.emplace_back();
      const double counts[] = {units.layers.has_embedding ? 1.0 : 0.0,
                               static_cast<double>(units.layers.num_layers - units.num_again),
                               static_cast<double>(units.num_again), units.layers.has_head ? 1.0 : 0.0};
      for (std::size_t later = 0; later < 2; ++later)
        for (std::size_t kind = 0; kind < num_pass_kinds; ++kind) {
          stage[later][kind] = 0;
          for (std::size_t part = 0; part < std::size(counts); ++part)
            stage[later][kind] += counts[part] * own.passes[part][later][kind];
        }
    }
    return all;
  }

  /// The units of a rank, each once.
  template <class Visit>
  void for_state_parts(int rank, const Visit& visit) const {
    const bool ties = program_.options.stages.front().has_tied_weight;
    for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
      if (rank_of(stage) != rank) continue;
      const StageLayers& layers = stages_[static_cast<std::size_t>(stage)].layers;
      if (layers.has_embedding) visit(of_embedding, 1);
      visit(of_block, layers.num_layers);
      if (layers.has_head) visit(of_head, 1);
      if (ties && program_.options.stages[static_cast<std::size_t>(stage)].has_tied_weight)
        visit(is_tied_alone(stage) ? of_copy : of_tied, 1);
    }
  }

  [[nodiscard]] double of_all_units(int rank, const OfRank& own, ActionKind kind) const {
    double seconds = 0;
    for_state_parts(rank, [&](StatePart part, std::int64_t count) {
      seconds += static_cast<double>(count) * own.states[part][at(kind)];
    });
    // Where head and embedding are of one stage the head's product forms the tied weight's gradient first: nobody
    // zeroes it.
    if (kind == ActionKind::clear_gradients && is_formed_by_head(rank))
      seconds -= own.states[of_tied][at(kind)] - own.states[of_copy][at(kind)];
    return seconds;
  }
  [[nodiscard]] bool is_formed_by_head(int rank) const {
    return stages_.size() == 1 && rank == 0 && !program_.options.shards_gradients;
  }

  double seconds_of(int rank, const Action& action, const OfRank& own, const std::vector<PassSeconds>& whole,
                    std::map<std::pair<int, bool>, double>& transfers) const {
    if (const auto kind = pass_of(action.kind)) {
      const std::size_t later =
          action.microbatch == program_.first_to_form[static_cast<std::size_t>(action.stage)] ? 0 : 1;
      const PassSeconds& of = action.unit == whole_stage ? whole[static_cast<std::size_t>(action.stage)]
                                                         : own.passes[part_of(action.stage, action.unit)];
      return of[later][static_cast<std::size_t>(*kind)];
    }
    switch (action.kind) {
      case ActionKind::load_batch:
      case ActionKind::release_parameters: return 0;
      case ActionKind::clear_gradients: return of_all_units(rank, own, action.kind);
      case ActionKind::clip: return of_all_units(rank, own, action.kind) + own.clip_seconds;
      case ActionKind::count_tokens: return own.count_seconds;
      case ActionKind::report: return own.report_seconds;
      case ActionKind::send_forward:
      case ActionKind::send_backward:
      case ActionKind::receive_forward:
      case ActionKind::receive_backward: {
        const int peer = program_.peer_of(action);
        const auto [known, is_new] = transfers.try_emplace({peer, is_send(action.kind)}, 0);
        if (is_new) known->second = transfer_seconds(rank, peer, action.kind);
        return known->second;
      }
      default: return state_seconds(action, own);
    }
  }

  [[nodiscard]] double state_seconds(const Action& action, const OfRank& own) const {
    const StatePart part = state_of(action.stage, action.unit);
    if (action.kind == ActionKind::sum_tied)
      return seconds_of(state(part).costs.at(action.kind), mesh_rank(rank_of(action.stage)));
    const bool is_formed = part == of_tied && stages_.size() == 1 && action.kind == ActionKind::open_gradients;
    return own.states[is_formed ? of_copy : part][at(action.kind)];
  }

  [[nodiscard]] double transfer_seconds(int rank, int peer, ActionKind kind) const {
    const CommRecord record = {.kind = is_send(kind) ? CommKind::send : CommKind::receive,
                               .group = pipeline_group,
                               .group_size = devices_.mesh().degree(Axis::pp),
                               .dtype = layers_.dtype,
                               .num_elements = layers_.boundary_elements,
                               .peer = peer};
    return seconds_of(record, mesh_rank(rank));
  }

  [[nodiscard]] std::int64_t bytes_of(const BufferLife& life) const {
    const auto sum_of_stage = [&](std::int64_t UnitPasses::*bytes) {
      const StageUnits& units = stages_[static_cast<std::size_t>(life.stage)];
      std::int64_t sum = (units.layers.num_layers - units.num_again) * (layers_.block.passes->*bytes) +
                         units.num_again * (layers_.recomputed_block.passes->*bytes);
      if (units.layers.has_embedding) sum += layers_.embedding.passes->*bytes;
      if (units.layers.has_head) sum += layers_.head.passes->*bytes;
      return sum;
    };
    switch (life.what) {
      case BufferLife::What::stash:
        return sum_of_stage(&UnitPasses::stash_bytes) +
               (stages_[static_cast<std::size_t>(life.stage)].num_units() - 1) * layers_.boundary_bytes;
      case BufferLife::What::input_stash: return sum_of_stage(&UnitPasses::input_stash_bytes);
      case BufferLife::What::gradient_stash: return sum_of_stage(&UnitPasses::gradient_stash_bytes);
      case BufferLife::What::boundary: return layers_.boundary_bytes;
      case BufferLife::What::gathered_parameters: return state(life).whole_param_bytes;
      case BufferLife::What::unreduced_gradients: return state(life).whole_grad_bytes;
      case BufferLife::What::converted_gradients: return state(life).converted_grad_bytes;
    }
    return 0;
  }

  [[nodiscard]] const UnitState& state(const BufferLife& life) const { return state(state_of(life.stage, life.unit)); }
  [[nodiscard]] const UnitState& state(StatePart part) const {
    const UnitState* const states[] = {&state_.embedding, &state_.block, &state_.head, &state_.tied_weight,
                                       &state_.tied_copy};
    return *states[part];
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Action& action) const {
    const auto kind = pass_of(action.kind);
    if (!kind) return 0;
    const UnitCost* const units[] = {&layers_.embedding, &layers_.block, &layers_.recomputed_block, &layers_.head};
    const auto of = [&](std::size_t part) {
      return units[part]->passes->workspace_bytes(static_cast<std::size_t>(*kind));
    };
    if (action.unit != whole_stage) return of(part_of(action.stage, action.unit));
    const StageUnits& stage = stages_[static_cast<std::size_t>(action.stage)];
    std::int64_t most = 0;
    if (stage.layers.has_embedding) most = std::max(most, of(embedding));
    if (stage.layers.num_layers > stage.num_again) most = std::max(most, of(block));
    if (stage.num_again > 0) most = std::max(most, of(recomputed));
    if (stage.layers.has_head) most = std::max(most, of(head));
    return most;
  }

  [[nodiscard]] std::int64_t persistent_bytes(int rank) const {
    std::int64_t bytes = state_.constant_bytes + batch_bytes;
    for_state_parts(rank, [&](StatePart part, std::int64_t count) { bytes += count * state(part).persistent_bytes; });
    return bytes;
  }

  const LayerCosts& layers_;
  const UnitStates& state_;
  const LayoutProgram& program_;
  DeviceMap devices_;
  std::vector<StageUnits> stages_;
  std::vector<OfRank> ranks_;
};

std::vector<StageUnits> units_of(const std::vector<StageLayers>& stages, const PlanRecompute& recompute) {
  std::vector<StageUnits> all;
  for (const StageLayers& layers : stages) {
    std::int64_t again = recompute.operations.empty() ? 0 : layers.num_layers;
    if (recompute.num_blocks > 0) again = std::min(again, recompute.num_blocks);
    all.push_back({layers, again});
  }
  return all;
}

/// What lowering must know of the stages, without making them.
std::vector<StageShape> shapes_of(const std::vector<StageLayers>& stages, const std::vector<int>& rank_of_stage,
                                  const UnitStates& state, bool ties) {
  std::vector<StageShape> shapes;
  const bool shares_weight = stages.size() > 1 && rank_of_stage.front() == rank_of_stage.back();
  for (const StageLayers& layers : stages) {
    StageShape& shape = shapes.emplace_back();
    shape.num_units = StageUnits{layers}.num_units();
    shape.borrows_tied_weight = ties && layers.has_head && !layers.has_embedding && shares_weight;
    shape.has_tied_weight = ties && (layers.has_embedding || layers.has_head) && !shape.borrows_tied_weight;
    if (layers.has_embedding) shape.unit_sums_replicas.push_back(state.embedding.sums_replicas);
    shape.unit_sums_replicas.insert(shape.unit_sums_replicas.end(), static_cast<std::size_t>(layers.num_layers),
                                    state.block.sums_replicas);
    if (layers.has_head) shape.unit_sums_replicas.push_back(state.head.sums_replicas);
    shape.unit_sums_replicas.push_back(shape.has_tied_weight && state.tied_weight.sums_replicas);
  }
  return shapes;
}

}  // namespace

LayoutProgram& LayoutSteps::program_of(const PlanChoice& choice, const RunConfig& config) {
  const UnitStates& state = costs_->traces(choice.shape, choice.data);
  std::vector<std::int64_t> key = {static_cast<std::int64_t>(choice.pipeline.schedule),
                                   choice.shape.pp,
                                   choice.pipeline.num_virtual,
                                   choice.shape.num_microbatches,
                                   choice.shape.dp > 1,
                                   choice.data.shard > 1 ? choice.data.zero_level : 0,
                                   choice.data.replicate > 1,
                                   static_cast<std::int64_t>(choice.data.reshard),
                                   state.embedding.sums_replicas,
                                   state.block.sums_replicas,
                                   state.head.sums_replicas};
  key.insert(key.end(), choice.pipeline.layout.counts.begin(), choice.pipeline.layout.counts.end());
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) { return known.key == key; });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    return *found->program;
  }
  const Schedule schedule = pipeline_schedule(config);
  const auto& stages = space_->stages_of(schedule.num_stages, choice.pipeline.layout);
  const bool ties = config.model.tie_word_embeddings;
  const LoweringOptions options =
      lowering_options(config, schedule.rank_of_stage, shapes_of(stages, schedule.rank_of_stage, state, ties));
  const auto size_of_program = [](const LayoutProgram& program) {
    std::int64_t size = 0;
    for (const Program& each : program.programs) size += static_cast<std::int64_t>(each.size());
    return size;
  };
  known_.push_front({std::move(key), std::make_unique<LayoutProgram>(schedule, options)});
  num_known_actions_ += size_of_program(*known_.front().program);
  while (num_known_actions_ > most_known_actions && known_.size() > 1) {
    num_known_actions_ -= size_of_program(*known_.back().program);
    known_.pop_back();
  }
  return *known_.front().program;
}

std::optional<LayoutStep> LayoutSteps::play(const PlanChoice& choice) {
  const MachineSpec& machine = request_->machine;
  if (machine.host) return std::nullopt;
  const RunConfig config = space_->config_of(choice);
  const MeshShape mesh = config.mesh_shape();
  const DeviceMap devices(mesh, machine);
  if (devices.has_several_kinds()) return std::nullopt;
  LayoutProgram& program = program_of(choice, config);
  const auto num_stages = static_cast<std::int64_t>(program.rank_of_stage.size());
  Costs costs(costs_->layers(choice.shape, choice.recompute.operations), costs_->traces(choice.shape, choice.data),
              program, mesh, machine,
              units_of(space_->stages_of(num_stages, choice.pipeline.layout), choice.recompute));
  costs.batch_bytes = 2 * aligned(choice.shape.num_microbatches * choice.shape.micro_batch_size *
                                  config.training.seq_len * size_of(DType::int32));
  LayoutStep step = {.is_exact = devices.is_regular()};
  for (int rank = 0; rank < static_cast<int>(program.programs.size()); ++rank) {
    costs.fill(rank, program.work.ranks[static_cast<std::size_t>(rank)].works);
    step.live_bytes = std::max(step.live_bytes, costs.peak_bytes(rank));
  }
  step.seconds = echelon::play(program.work).end;
  return step;
}

}  // namespace echelon
