// The starts and ends of the actions of all ranks, and their order. The checker proves that this graph has no cycle,
// and `simulate_programs` computes its times.
//
//     start(i + 1) after start(i)          a program starts in order
//     start(i) after end(j), j in after    edges
//     start(i + 1) after end(i)            if i computes: compute blocks
//     end of a send and of its receive     after both starts: nothing is buffered
//     end of a collective across ranks     after all its starts
#pragma once

#include "schedule/action.h"

#include <vector>

namespace echelon {

/// Two nodes for each action of each rank: node 2i is the start and 2i + 1 the end of the i-th action, rank after rank.
struct EventGraph {
  std::vector<int> first_node;           // of each rank
  std::vector<std::vector<int>> before;  // [node] nodes that must come before it

  [[nodiscard]] int start(int rank, int id) const { return first_node[rank] + 2 * id; }
  [[nodiscard]] int end(int rank, int id) const { return first_node[rank] + 2 * id + 1; }
};

/// Expects ids that are positions, and matching sends and receives.
[[nodiscard]] EventGraph event_graph(const std::vector<Program>& programs);

/// The nodes in an order in which they can happen (Kahn 1962). Nodes on a cycle, or after one, are omitted.
[[nodiscard]] std::vector<int> sorted_nodes(const EventGraph& graph);

/// The nodes of one cycle, each before the one that it waits for; empty: there is none. `sorted`: sorted_nodes(graph).
[[nodiscard]] std::vector<int> cycle_of(const EventGraph& graph, const std::vector<int>& sorted);

/// A collective in which every pipeline rank takes part, or the first and the last one.
[[nodiscard]] bool crosses_ranks(ActionKind kind);

}  // namespace echelon
