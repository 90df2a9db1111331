// An exchange of rows in two hops: tokens go to a rank of every node that has an expert of them, and copies on to the
// ranks of these. Before they return, the copies of a token are summed at its node. With one rank on a node, tokens are
// gathered, and sums are reduced and scattered: copies are where rows are to be, and there is no second hop.
#include "nn/mixture/expert_exchange.h"
#include "nn/mixture/row_parts.h"
#include "spec/groups.h"

namespace echelon {
namespace {

/// A row of weights has one for each copy of its token; other rows are copied whole.
bool are_weights(const ExpertExchange::Matrices& matrices) { return matrices.sent.size(1) != matrices.arrived.size(1); }

/// Those of a round.
struct Copied {
  Tensor tokens, slots, copies;
};
Copied copied(const NodeRound& of, const ExpertExchange::Room::AtNode& rows, Tensor slots, bool are_weights) {
  const Tensor copies = rows.copies.rows(0, of.num_copies), tokens = rows.tokens.rows(0, of.num_tokens);
  if (!are_weights) return {tokens, slots, copies};
  const Sizes column = {tokens.num_elements(), 1};
  return {tokens.reshaped(column), slots.reshaped(column), copies};
}

}  // namespace

ExpertExchange::Room ExpertExchange::take_room(Stack& workspace, std::span<const Matrices> all) const {
  if (features_) return take_room_of_features(workspace, all);
  Room room;
  if (!nodes_) return room;
  for (const Matrices& each : all) {
    const Tensor tokens = take_tokens(workspace, each, nodes_->most_tokens);
    room.rows.push_back({tokens, gathers_tokens() ? Tensor() : take_copies(workspace, each, nodes_->most_copies)});
  }
  room.slots = workspace.take(DType::int32, {nodes_->most_tokens, nodes_->experts_per_token});
  return room;
}

Tensor ExpertExchange::sums_of_tokens(Context& context, const Round& round, Tensor rows, std::int64_t columns) const {
  const NodeRound& of = round.plan.by_node().round(round.index);
  const Tensor sums = context.workspace.take(rows.dtype, {nodes_->most_tokens, columns});
  const Stack::Scope scope(context.workspace);
  const Tensor slots = context.workspace.take(DType::int32, {nodes_->most_tokens, nodes_->experts_per_token});
  if (of.num_copies == 0) {
    context.ops.fill(sums.rows(0, of.num_tokens), 0.0);
    return sums;
  }
  const auto [out, at, y] = copied(of, {sums, rows}, slots.rows(0, of.num_tokens), columns != rows.size(1));
  context.ops.upload_like(slots.rows(0, of.num_tokens), of.copies.data(), y);
  context.ops.combine_experts({.y = y, .slots = at, .out = out});
  return sums;
}

Travel ExpertExchange::start_across(Context& context, const Hop& hop) const {
  if (!gathers_tokens()) return start_hop(context, hop);
  Travel travel;
  Comm& comm = context.mesh.comm(hop.group);
  const bool goes = hop.purpose == RowPurpose::dispatch;
  const RowPart own = (goes ? hop.sent_parts : hop.received_parts).front();
  context.ops.publish();
  context.mesh.together([&] {
    for (const auto& [received, sent] : hop.rows) {
      const Tensor all = (goes ? received : sent).rows(0, own.count * num_ranks_),
                   of_rank = (goes ? sent : received).rows(own.first, own.count);
      travel.pending_.push_back(goes ? comm.all_gather(all, of_rank)
                                     : comm.reduce_scatter(of_rank, all, ReduceOp::sum));
    }
  });
  return travel;
}

Travel ExpertExchange::dispatch_by_node(Context& context, const Round& round, std::span<const Matrices> all,
                                        const Room& room) const {
  const NodeRound& of = round.plan.by_node().round(round.index);
  Hop across = {RowPurpose::dispatch, expert_across_group(num_ranks_, nodes_->ranks_per_node), of.received_across,
                of.sent_across},
      inside = {RowPurpose::dispatch, expert_inner_group(nodes_->ranks_per_node), of.received_inside, of.sent_inside};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [tokens, copies] = at_node(all[i], room.rows[i]);
    across.rows.emplace_back(tokens, all[i].sent);
    inside.rows.emplace_back(all[i].arrived, copies);
  }
  count_bytes(context, round, all, Way::there);
  Travel travel = start_across(context, across);
  travel.go_on_ = [this, &context, room, inside, of, matrices = std::vector(all.begin(), all.end())] {
    if (of.num_tokens > 0)
      context.ops.upload_like(room.slots.rows(0, of.num_tokens), of.copies.data(),
                              at_node(matrices.front(), room.rows.front()).tokens.rows(0, of.num_tokens));
    for (std::size_t i = 0; i < matrices.size() && of.num_copies > 0; ++i) {
      const auto [x, at, y] =
          copied(of, at_node(matrices[i], room.rows[i]), room.slots.rows(0, of.num_tokens), are_weights(matrices[i]));
      context.ops.permute_to_experts({.x = x, .slots = at, .y = y});
    }
    if (!gathers_tokens()) start_hop(context, inside).wait();
  };
  return travel;
}

Travel ExpertExchange::give_back_by_node(Context& context, const Round& round, std::span<const Matrices> all,
                                         const Room& room) const {
  const NodeRound& of = round.plan.by_node().round(round.index);
  count_bytes(context, round, all, Way::back);
  Hop inside = {RowPurpose::combine, expert_inner_group(nodes_->ranks_per_node), of.sent_inside, of.received_inside},
      across = {RowPurpose::combine, expert_across_group(num_ranks_, nodes_->ranks_per_node), of.sent_across,
                of.received_across};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [tokens, copies] = at_node(all[i], room.rows[i]);
    inside.rows.emplace_back(copies, all[i].arrived);
    across.rows.emplace_back(all[i].sent, gathers_tokens() ? all[i].arrived : tokens);
  }
  if (gathers_tokens()) return start_across(context, across);
  start_hop(context, inside).wait();
  if (of.num_copies > 0)
    context.ops.upload_like(room.slots.rows(0, of.num_tokens), of.copies.data(),
                            at_node(all[0], room.rows.front()).copies.rows(0, of.num_copies));
  for (std::size_t i = 0; i < all.size() && of.num_copies > 0; ++i) {
    const auto [out, at, y] =
        copied(of, at_node(all[i], room.rows[i]), room.slots.rows(0, of.num_tokens), are_weights(all[i]));
    context.ops.combine_experts({.y = y, .slots = at, .out = out});
  }
  return start_hop(context, across);
}

}  // namespace echelon
