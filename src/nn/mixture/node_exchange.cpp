// An exchange of rows in two hops: tokens go to a rank of every node that has an expert of them, and copies on to the
// ranks of these. Before they return, the copies of a token are summed at its node.
#include "nn/mixture/expert_exchange.h"
#include "spec/groups.h"

namespace echelon {
namespace {

std::int64_t to_others(const std::vector<RowPart>& parts, int own) {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (static_cast<int>(i) != own) rows += parts[i].count;
  return rows;
}

/// A row of weights has one for each copy of its token; other rows are copied whole.
bool are_weights(const ExpertExchange::Matrices& matrices) { return matrices.sent.size(1) != matrices.arrived.size(1); }

/// Rows of tokens at their node, and copies of them.
struct AtNode {
  Tensor tokens, copies;
};

std::vector<AtNode> take_rows(Stack& workspace, const NodeSizes& sizes, std::span<const ExpertExchange::Matrices> all) {
  std::vector<AtNode> rows;
  for (const auto& [arrived, sent] : all)
    rows.push_back({workspace.take(sent.dtype, {sizes.most_tokens, sent.size(1)}),
                    workspace.take(arrived.dtype, {sizes.most_copies, arrived.size(1)})});
  return rows;
}

/// Those of a round.
struct Copied {
  Tensor tokens, slots, copies;
};
Copied copied(const NodeRound& of, const AtNode& rows, Tensor slots, bool are_weights) {
  const Tensor copies = rows.copies.rows(0, of.num_copies), tokens = rows.tokens.rows(0, of.num_tokens);
  if (!are_weights) return {tokens, slots, copies};
  const Sizes column = {tokens.num_elements(), 1};
  return {tokens.reshaped(column), slots.reshaped(column), copies};
}

}  // namespace

struct ExpertExchange::Hop {
  Group group;
  std::span<const RowPart> received_parts, sent_parts;
  std::vector<std::pair<Tensor, Tensor>> rows = {};  // received and sent
};

void ExpertExchange::hop(Context& context, const Hop& hop) const {
  Comm& comm = context.mesh.comm(hop.group);
  context.ops.publish();
  std::vector<Pending> pending;
  context.mesh.together([&] {
    for (const auto& [received, sent] : hop.rows)
      pending.push_back(comm.all_to_all_rows({received, sent, hop.received_parts, hop.sent_parts}));
  });
  for (Pending& each : pending) each.wait();
}

void ExpertExchange::reserve(Stack& workspace, std::span<const Matrices> all) const {
  const Stack::Scope scope(workspace);
  if (!nodes_) return;
  (void)take_rows(workspace, *nodes_, all);
  (void)workspace.take(DType::int32, {nodes_->most_tokens, nodes_->experts_per_token});
}

void ExpertExchange::dispatch_by_node(Context& context, const NodePlan& plan, int round,
                                      std::span<const Matrices> all) const {
  const Stack::Scope scope(context.workspace);
  const NodeRound& of = plan.round(round);
  const std::vector<AtNode> rows = take_rows(context.workspace, *nodes_, all);
  const Tensor slots = context.workspace.take(DType::int32, {nodes_->most_tokens, nodes_->experts_per_token});
  Hop across = {expert_across_group(num_ranks_, nodes_->ranks_per_node), of.received_across, of.sent_across},
      inside = {expert_node_group(nodes_->ranks_per_node), of.received_inside, of.sent_inside};
  for (std::size_t i = 0; i < all.size(); ++i) {
    across.rows.emplace_back(rows[i].tokens, all[i].sent);
    inside.rows.emplace_back(all[i].arrived, rows[i].copies);
  }
  hop(context, across);
  if (of.num_tokens > 0) context.ops.upload_like(slots.rows(0, of.num_tokens), of.copies.data(), rows.front().tokens);
  for (std::size_t i = 0; i < all.size() && of.num_copies > 0; ++i) {
    const auto [x, at, y] = copied(of, rows[i], slots.rows(0, of.num_tokens), are_weights(all[i]));
    context.ops.permute_to_experts({.x = x, .slots = at, .y = y});
  }
  hop(context, inside);
  count_bytes(context, plan, round, all, Way::there);
}

void ExpertExchange::give_back_by_node(Context& context, const NodePlan& plan, int round,
                                       std::span<const Matrices> all) const {
  const Stack::Scope scope(context.workspace);
  const NodeRound& of = plan.round(round);
  const std::vector<AtNode> rows = take_rows(context.workspace, *nodes_, all);
  const Tensor slots = context.workspace.take(DType::int32, {nodes_->most_tokens, nodes_->experts_per_token});
  Hop inside = {expert_node_group(nodes_->ranks_per_node), of.sent_inside, of.received_inside},
      across = {expert_across_group(num_ranks_, nodes_->ranks_per_node), of.sent_across, of.received_across};
  for (std::size_t i = 0; i < all.size(); ++i) {
    inside.rows.emplace_back(rows[i].copies, all[i].arrived);
    across.rows.emplace_back(all[i].sent, rows[i].tokens);
  }
  hop(context, inside);
  if (of.num_copies > 0)
    context.ops.upload_like(slots.rows(0, of.num_tokens), of.copies.data(), rows.front().copies.rows(0, of.num_copies));
  for (std::size_t i = 0; i < all.size() && of.num_copies > 0; ++i) {
    const auto [out, at, y] = copied(of, rows[i], slots.rows(0, of.num_tokens), are_weights(all[i]));
    context.ops.combine_experts({.y = y, .slots = at, .out = out});
  }
  hop(context, across);
  count_bytes(context, plan, round, all, Way::back);
}

void ExpertExchange::count_bytes(Context& context, const NodePlan& plan, int round, std::span<const Matrices> all,
                                 Way way) const {
  if (context.microbatch.expert_traffic == nullptr) return;
  ExpertTraffic& traffic = *context.microbatch.expert_traffic;
  const ExpertRounds before = planned(context);
  const NodeRound of_plan = round < before.num_rounds() ? before.by_node().round(round) : NodeRound();
  const auto count = [&](const NodeRound& of, std::int64_t& across, std::int64_t& inside) {
    const bool goes = way == Way::there;
    const std::int64_t to_nodes = to_others(goes ? of.sent_across : of.received_across, nodes_->node()),
                       to_places = to_others(goes ? of.sent_inside : of.received_inside, nodes_->place());
    for (const auto& [arrived, sent] : all) {
      across += to_nodes * sent.size(1) * size_of(sent.dtype);
      inside += to_places * arrived.size(1) * size_of(arrived.dtype);
    }
  };
  count(plan.round(round), traffic.across_bytes, traffic.sent_bytes);
  count(of_plan, traffic.planned_across_bytes, traffic.planned_sent_bytes);
}

}  // namespace echelon
