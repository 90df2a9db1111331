#include "predict/host/rank_pieces.h"

#include "predict/host/operand_distances.h"

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

class Builder {
 public:
  Builder(const Blueprint& blueprint, HostTime& time, const HostLoad& load, ProgramKind kind)
      : blueprint_(blueprint), time_(time), load_(load), kind_(kind) {}

  RankPieces build() {
    const int num_ranks = blueprint_.mesh().num_ranks();
    all_.ranks.resize(static_cast<std::size_t>(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) add_rank(rank);
    return std::move(all_);
  }

 private:
  /// Who meets; in a transfer, who sends and who receives.
  using Rendezvous = std::tuple<std::vector<int>, int, int>;

  void add_rank(int rank) {
    rank_ = rank;
    const auto slow = load_.slow_ranks.find(rank);
    slowness_ = slow == load_.slow_ranks.end() ? 1 : slow->second;
    attention_share_ = load_.attention_shares.empty() ? 1 : load_.attention_shares[static_cast<std::size_t>(rank)];
    const Representative& representative = representative_of(rank);
    const RankBlueprint& like = representative.blueprint;
    const Program& program = like.program(kind_);
    all_.programs.push_back(
        &blueprint_.programs(kind_)[static_cast<std::size_t>(blueprint_.mesh().coordinate(rank, Axis::pp))]);
    std::vector<std::vector<int>> under_way(program.size());
    for (const Action& action : program) {
      for (const int id : action.after)
        for (const int exchange : std::exchange(under_way[static_cast<std::size_t>(id)], {}))
          add({Piece::Kind::wait, id, exchange, {}});
      add({Piece::Kind::begin, action.id, -1, {}});
      const CallTrace& trace = like.trace(kind_).of(action);
      under_way[static_cast<std::size_t>(action.id)] = add_events(action, trace, representative.more_of(action));
      add({Piece::Kind::end, action.id, -1, {}});
      add({Piece::Kind::poll, -1, -1, {}});
    }
  }

  /// Returns the exchanges that the action does not wait for itself.
  std::vector<int> add_events(const Action& action, const CallTrace& trace, std::span<const CoreSeconds> more) {
    constexpr int of_one_rank = -1, has_ended = -2;
    std::vector<int> exchanges;  // by number of the start
    std::size_t number = 0;
    CoreSeconds computed;
    for (const TraceEvent& event : trace.events) {
      if (const auto* operation = std::get_if<OpRecord>(&event)) {
        computed += seconds_of(action, *operation);
        if (!more.empty()) computed += more[number];
        ++number;
      } else if (const auto* started = std::get_if<CommRecord>(&event)) {
        if (started->group_size > 1) compute(std::exchange(computed, {}));
        exchanges.push_back(started->group_size > 1 ? join(*started) : of_one_rank);
      } else if (int& exchange = exchanges[std::get<CommWait>(event).start]; exchange >= 0) {
        compute(std::exchange(computed, {}));
        add({Piece::Kind::wait, -1, std::exchange(exchange, has_ended), {}});
      }
    }
    compute(computed);
    std::erase_if(exchanges, [](int exchange) { return exchange < 0; });
    return exchanges;
  }

  [[nodiscard]] CoreSeconds seconds_of(const Action& action, const OpRecord& operation) {
    // No cache has a unit's state, which was last touched by its update.
    if (action.kind == ActionKind::take_snapshot && time_.host().distances.empty())
      return time_.of_cold_copy(operation);
    CoreSeconds seconds = time_.of(operation);
    if (operation.kind == OpKind::attention || operation.kind == OpKind::attention_backward)
      seconds = {attention_share_ * seconds.busy, attention_share_ * seconds.shared};
    return seconds;
  }

  void compute(const CoreSeconds& cost) {
    if (cost.busy > 0) add({Piece::Kind::compute, -1, -1, {slowness_ * cost.busy, slowness_ * cost.shared}});
  }

  int join(const CommRecord& record) {
    std::vector<int> ranks = blueprint_.mesh().ranks_of(record.group, rank_);
    Rendezvous rendezvous = {ranks, -1, -1};
    const bool is_transfer = record.kind == CommKind::send || record.kind == CommKind::receive;
    if (is_transfer) {
      const int peer = ranks[static_cast<std::size_t>(record.peer)];
      rendezvous = record.kind == CommKind::send ? Rendezvous{ranks, rank_, peer} : Rendezvous{ranks, peer, rank_};
    }
    const int num_parties = is_transfer ? 2 : record.group_size;
    std::vector<int>& chain = chains_[rendezvous];
    const std::size_t number = num_started_[{rendezvous, rank_}]++;
    if (number == chain.size()) {
      chain.push_back(static_cast<int>(all_.exchanges.size()));
      const std::int64_t bytes = record.num_elements * size_of(record.dtype);
      const bool is_indivisible = time_.ranks() == HostRanks::processes || is_done_by_the_last(bytes, num_parties);
      all_.exchanges.push_back({num_parties, time_.of(record, num_parties), is_indivisible, is_transfer,
                                name_of(record.group), record.purpose});
    }
    add({Piece::Kind::join, -1, chain[number], {}});
    return chain[number];
  }

  void add(const Piece& piece) { all_.ranks[static_cast<std::size_t>(rank_)].push_back(piece); }

  struct Representative {
    RankBlueprint blueprint;
    std::vector<std::vector<CoreSeconds>> more = {};  // for distant operands, by action and operation

    [[nodiscard]] std::span<const CoreSeconds> more_of(const Action& action) const {
      if (more.empty()) return {};
      return more[static_cast<std::size_t>(action.id)];
    }
  };
  /// Ranks that see different sequences do the same, each on its part of the batch and of the shards.
  const Representative& representative_of(int rank) {
    Coordinates like{};
    for (const Axis axis : {Axis::pp, Axis::cp, Axis::tp})
      like[static_cast<std::size_t>(axis)] = blueprint_.mesh().coordinate(rank, axis);
    const int first = blueprint_.mesh().rank_of(like);
    auto& known = representatives_[first];
    if (!known) {
      known = std::make_unique<Representative>(Representative{blueprint_.rank(first, units_)});
      if (!time_.host().distances.empty()) known->more = distance_seconds(blueprint_, known->blueprint, kind_, time_);
    }
    return *known;
  }

  const Blueprint& blueprint_;
  HostTime& time_;
  const HostLoad& load_;
  ProgramKind kind_;
  RankPieces all_;
  UnitTraces units_{blueprint_.config()};
  int rank_ = 0;
  double slowness_ = 1, attention_share_ = 1;
  std::map<Rendezvous, std::vector<int>> chains_;
  std::map<std::pair<Rendezvous, int>, std::size_t> num_started_;
  std::map<int, std::unique_ptr<Representative>> representatives_;
};

}  // namespace

RankPieces pieces_of(const Blueprint& blueprint, HostTime& time, const HostLoad& load, ProgramKind kind) {
  return Builder(blueprint, time, load, kind).build();
}

}  // namespace echelon
