// An exchange of rows with experts whose features are on several ranks: rows go to the rank at this one's place with
// their expert, and from there to all ranks with features of it. What these compute is summed before it returns.
#include "nn/mixture/expert_exchange.h"
#include "nn/mixture/row_parts.h"
#include "spec/groups.h"

namespace echelon {

ExpertExchange::Room ExpertExchange::take_room_of_features(Stack& workspace, std::span<const Matrices> all) const {
  Room room;
  for (const Matrices& each : all)
    room.rows.push_back({workspace.take(each.arrived.dtype, {features_->most_rows, each.arrived.size(1)}),
                         take_copies(workspace, each, features_->most_gathered())});
  room.slots = workspace.take(DType::int32, {features_->most_rows, features_->num_places});
  return room;
}

Travel ExpertExchange::dispatch_to_features(Context& context, const Round& round, std::span<const Matrices> all,
                                            const Room& room) const {
  const FeatureRound of = round.plan.by_features().round(round.index);
  Hop across = {RowPurpose::dispatch, expert_across_group(num_ranks_, features_->num_places), of.across.received,
                of.across.sent},
      inside = {RowPurpose::dispatch, expert_inner_group(features_->num_places), of.gathered, of.given};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [come, addends] = room.rows[i];
    across.rows.emplace_back(come, all[i].sent);
    inside.rows.emplace_back(all[i].arrived, come);
  }
  count_bytes(context, round, all, Way::there);
  Travel travel = start_hop(context, across);
  travel.go_on_ = [&context, inside] { start_hop(context, inside).wait(); };
  return travel;
}

Travel ExpertExchange::give_back_from_features(Context& context, const Round& round, std::span<const Matrices> all,
                                               const Room& room) const {
  const FeaturePlan& plan = round.plan.by_features();
  const FeatureRound of = plan.round(round.index);
  const std::int64_t num_addends = of.num_come * features_->num_places;
  const std::vector<RowPart> of_places =
      in_a_row(std::vector(static_cast<std::size_t>(features_->num_places), of.num_come), num_addends);
  Hop inside = {RowPurpose::combine, expert_inner_group(features_->num_places), of_places, of.gathered},
      across = {RowPurpose::combine, expert_across_group(num_ranks_, features_->num_places), of.across.sent,
                of.across.received};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [come, addends] = at_node(all[i], room.rows[i]);
    inside.rows.emplace_back(addends, all[i].arrived);
    across.rows.emplace_back(all[i].sent, come);
  }
  start_hop(context, inside).wait();
  if (of.num_come > 0) {
    const Tensor slots = room.slots.rows(0, of.num_come);
    const bool has_values = context.ops.computes_values();
    const std::vector<std::int32_t> values = has_values ? plan.addends(round.index) : std::vector<std::int32_t>();
    context.ops.upload_like(slots, values.data(), at_node(all[0], room.rows.front()).copies.rows(0, num_addends));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [come, addends] = at_node(all[i], room.rows[i]);
      context.ops.combine_experts(
          {.y = addends.rows(0, num_addends), .slots = slots, .out = come.rows(0, of.num_come)});
    }
  }
  count_bytes(context, round, all, Way::back);
  return start_hop(context, across);
}

}  // namespace echelon
