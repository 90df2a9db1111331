// A link between two nodes of thread ranks that takes time and no core. All ranks of a node share it, bytes go one
// after the other, and who waits for them sleeps. Only what experts need is charged: rows, counts and choices.
#pragma once

#include "base/clock.h"
#include "forwarding_mesh.h"
#include "spec/groups.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace echelon {

inline constexpr int num_ranks = 8, num_nodes = 2, ranks_per_node = num_ranks / num_nodes;

/// From each node to the other one.
class Links {
 public:
  /// Of a communicator of all ranks, or of those at one place of nodes: the ranks have the same ones in the same order.
  struct Exchange {
    int place = 0, index = 0;
    auto operator<=>(const Exchange&) const = default;
  };

  explicit Links(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  void send(int node, std::int64_t num_bytes, const Exchange& exchange) {
    const std::scoped_lock lock(mutex_);
    double& free = free_.at(static_cast<std::size_t>(node));
    free = std::max(free, now_seconds()) + static_cast<double>(num_bytes) / bytes_per_second_;
    bytes_.at(static_cast<std::size_t>(node)) += num_bytes;
    ends_[exchange] = std::max(ends_[exchange], free);
  }
  /// Until all has come that its ranks have sent.
  void wait(const Exchange& exchange) const {
    const double end = [&] {
      const std::scoped_lock lock(mutex_);
      return ends_.at(exchange);
    }();
    std::this_thread::sleep_for(std::chrono::duration<double>(end - now_seconds()));
  }
  [[nodiscard]] std::int64_t bytes_of_first() const { return bytes_.front(); }

 private:
  double bytes_per_second_;
  mutable std::mutex mutex_;
  std::array<double, num_nodes> free_ = {};
  std::array<std::int64_t, num_nodes> bytes_ = {};
  std::map<Exchange, double> ends_;
};

class LinkedWait final : public Pending::Operation {
 public:
  LinkedWait(Pending inner, const Links& links, const Links::Exchange& exchange)
      : inner_(std::move(inner)), links_(links), exchange_(exchange) {}
  void wait() override {
    inner_.wait();
    links_.wait(exchange_);
  }
  bool poll() override { return false; }

 private:
  Pending inner_;
  const Links& links_;
  Links::Exchange exchange_;
};

/// A group of one rank on each node, or of all ranks.
class LinkedComm final : public ForwardingComm {
 public:
  LinkedComm(Comm& inner, int rank_of_all, Links& links)
      : ForwardingComm(inner),
        node_(rank_of_all / ranks_per_node),
        links_(links),
        next_{.place = inner.size() == num_ranks ? ranks_per_node : rank_of_all % ranks_per_node} {}

  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    std::int64_t rows = 0;
    for (int peer = 0; peer < size(); ++peer)
      if (is_across(peer)) rows += exchange.sent_parts[static_cast<std::size_t>(peer)].count;
    return linked(rows * exchange.sent.size(1) * size_of(exchange.sent.dtype),
                  [&] { return inner().all_to_all_rows(exchange); });
  }
  /// Of counts and choices, int32; weights are gathered otherwise.
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    if (shard.dtype != DType::int32) return inner().all_gather(full, shard);
    const std::int64_t num_across = size() - size() / num_nodes;
    return linked(num_across * shard.num_bytes(), [&] { return inner().all_gather(full, shard); });
  }

 private:
  [[nodiscard]] bool is_across(int peer) const { return peer * num_nodes / size() != node_; }
  // Who has waited for the others knows that they have sent.
  template <class Start>
  [[nodiscard]] Pending linked(std::int64_t num_bytes, const Start& start) {
    const Links::Exchange exchange = next_;
    ++next_.index;
    links_.send(node_, num_bytes, exchange);
    return Pending(std::make_unique<LinkedWait>(start(), links_, exchange));
  }

  int node_;
  Links& links_;
  Links::Exchange next_;
};

class LinkedMesh final : public ForwardingMesh {
 public:
  LinkedMesh(Mesh& inner, Links& links) : ForwardingMesh(inner), links_(links) {}
  [[nodiscard]] Comm& comm(const Group& group) override {
    if (group != expert_group(num_ranks) && group != expert_across_group(num_ranks, ranks_per_node))
      return inner().comm(group);
    auto& comm = comms_[group];
    if (!comm) comm = std::make_unique<LinkedComm>(inner().comm(group), rank(), links_);
    return *comm;
  }

 private:
  Links& links_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

}  // namespace echelon
