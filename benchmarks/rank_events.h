// A step of ranks as their calls into the transport, with the CPU seconds before each: how long it takes if each rank
// has a core, and rows of experts go over links that take time and no core. A link carries what a rank sends, one
// exchange after the other; an exchange is done when all ranks have sent their rows.
#pragma once

#include "base/clock.h"
#include "base/median.h"
#include "engine/step.h"
#include "forwarding_mesh.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace echelon {

struct RankEvent {
  enum class Kind : std::uint8_t { start, wait, end };
  Kind kind = Kind::end;
  std::size_t operation = 0;              // counted as they start, on every rank in the same order
  std::int64_t row_bytes = 0;             // to other ranks
  double seconds = 0;                     // of the core, since the event before
  std::optional<ActionKind> action = {};  // that the rank runs
};
using RankEvents = std::vector<RankEvent>;

class EventMesh final : public ForwardingMesh {
 public:
  using ForwardingMesh::ForwardingMesh;
  [[nodiscard]] Comm& comm(const Group& group) override {
    if (inner().comm(group).size() == 1) return inner().comm(group);
    auto& comm = comms_[group];
    if (!comm) comm = std::make_unique<EventComm>(inner().comm(group), *this);
    return *comm;
  }
  /// From now on the rank runs this.
  void enter(std::optional<ActionKind> action) {
    add({});
    action_ = action;
  }
  RankEvents end_step() {
    add({});
    num_operations_ = 0;
    return std::exchange(events_, {});
  }

 private:
  class Wait final : public Pending::Operation {
   public:
    Wait(Pending inner, EventMesh& mesh, const RankEvent& event)
        : inner_(std::move(inner)), mesh_(mesh), event_(event) {}
    // What a core does to move rows does not count.
    void wait() override {
      mesh_.add(event_);
      inner_.wait();
      if (event_.row_bytes > 0) mesh_.last_ = thread_seconds();
    }
    bool poll() override { return false; }

   private:
    Pending inner_;
    EventMesh& mesh_;
    RankEvent event_;
  };

  class EventComm final : public ForwardingComm {
   public:
    EventComm(Comm& inner, EventMesh& mesh) : ForwardingComm(inner), mesh_(mesh) {}
    [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override { return heard(inner().all_reduce(x, op)); }
    [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
      return heard(inner().all_gather(full, shard));
    }
    [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
      return heard(inner().reduce_scatter(shard, full, op));
    }
    [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
      std::int64_t rows = 0;
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank()) rows += exchange.sent_parts[static_cast<std::size_t>(peer)].count;
      return heard(inner().all_to_all_rows(exchange), rows * exchange.sent.size(1) * size_of(exchange.sent.dtype));
    }

   private:
    [[nodiscard]] Pending heard(Pending pending, std::int64_t row_bytes = 0) {
      RankEvent event = {.kind = RankEvent::Kind::start, .operation = mesh_.num_operations_++, .row_bytes = row_bytes};
      mesh_.add(event);
      event.kind = RankEvent::Kind::wait;
      return Pending(std::make_unique<Wait>(std::move(pending), mesh_, event));
    }
    EventMesh& mesh_;
  };

  void add(RankEvent event) {
    const double now = thread_seconds();
    event.seconds = now - std::exchange(last_, now);
    event.action = action_;
    events_.push_back(event);
  }

  RankEvents events_ = {};
  std::size_t num_operations_ = 0;
  double last_ = thread_seconds();
  std::optional<ActionKind> action_ = {};
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

class EventRank final : public RankInterposer, public StepObserver {
 public:
  EventRank(Ops& ops, Mesh& mesh) : ops_(ops), mesh_(mesh) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  [[nodiscard]] StepObserver* observer() override { return this; }
  void begins(const Action& action, ActionPart /*part*/) override { mesh_.enter(action.kind); }
  void ends() override { mesh_.enter({}); }

 private:
  Ops& ops_;
  EventMesh mesh_;
};

/// Steps of equal events: of each, the median seconds.
inline RankEvents median_of(const std::vector<RankEvents>& steps) {
  RankEvents all = steps.front();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> seconds;
    for (const RankEvents& step : steps) seconds.push_back(step.at(i).seconds);
    all[i].seconds = median(std::move(seconds));
  }
  return all;
}

/// Rows that travel in these actions take so long on a link, others no time.
struct LinkUse {
  ActionKind action = ActionKind::forward;
  double seconds_per_byte = 0;
};

/// Of ranks that are all in each of their groups.
inline double seconds_of(const std::vector<RankEvents>& ranks, const LinkUse& use) {
  struct Place {
    std::size_t next = 0;
    double now = 0, link_is_free = 0;
  };
  struct Progress {
    std::size_t num_started = 0;
    double end = 0;
  };
  std::vector<Place> places(ranks.size());
  std::map<std::size_t, Progress> operations;
  const auto advance = [&](const RankEvent& event, Place& at) {
    Progress& operation = operations[event.operation];
    if (event.kind == RankEvent::Kind::wait && operation.num_started < ranks.size()) return false;
    at.now += event.seconds;
    if (event.kind == RankEvent::Kind::wait) at.now = std::max(at.now, operation.end);
    if (event.kind == RankEvent::Kind::start) {
      if (event.row_bytes > 0 && event.action == use.action)
        at.link_is_free =
            std::max(at.now, at.link_is_free) + static_cast<double>(event.row_bytes) * use.seconds_per_byte;
      operation.end = std::max({operation.end, at.now, event.row_bytes > 0 ? at.link_is_free : 0});
      ++operation.num_started;
    }
    return true;
  };
  for (bool advances = true; advances;) {
    advances = false;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (Place& at = places[rank]; at.next < ranks[rank].size() && advance(ranks[rank][at.next], at); ++at.next)
        advances = true;
  }
  double end = 0;
  for (const Place& at : places) end = std::max(end, at.now);
  return end;
}

/// Of a rank in these actions.
inline std::int64_t row_bytes_of(const RankEvents& events, ActionKind action) {
  std::int64_t bytes = 0;
  for (const RankEvent& event : events)
    if (event.kind == RankEvent::Kind::start && event.action == action) bytes += event.row_bytes;
  return bytes;
}
inline double core_seconds_of(const RankEvents& events, ActionKind action) {
  double seconds = 0;
  for (const RankEvent& event : events)
    if (event.action == action) seconds += event.seconds;
  return seconds;
}

}  // namespace echelon
