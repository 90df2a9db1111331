#include "predict/host/host_step.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

namespace echelon {
namespace {

/// An exchange as it proceeds.
struct Exchange {
  int num_arrived = 0;
  bool is_ready = false, is_done = false;
  double work_left = 0;      // seconds of one core
  int num_workers = 0;       // ranks that copy and sum
  std::deque<int> sleepers;  // ranks that wait without a permit
};

/// What a rank does with its permit.
enum class Activity : std::uint8_t { none, compute, copy };

struct Rank {
  std::size_t next = 0;  // of its pieces
  Activity activity = Activity::none;
  CoreSeconds cost = {};     // of what it computes
  bool is_shared = false;    // others may help
  double fraction_left = 0;  // of it
  int exchange = -1;         // that it copies for, or finishes alone
  bool finishes = false;     // what it computes is an exchange that it does at once
  bool was_woken = false;    // by a switch that is still to be paid
  int action = 0;            // that it is at, or was last
  StepParts parts = {};
  std::vector<int> under_way = {};           // exchanges that it has joined and not waited for
  std::vector<double> start = {}, end = {};  // by action
  std::map<int, double> rows_left = {};      // when, by exchange, of rows of experts that are under way
  std::vector<ExchangeEvent> exchanges = {};
  bool is_over = false;
};

class HostEngine {
 public:
  HostEngine(const RankPieces& pieces, const HostTime& time, int num_threads)
      : pieces_(pieces),
        time_(time),
        ranks_(pieces.ranks.size()),
        exchanges_(pieces.exchanges.size()),
        num_cores_(static_cast<int>(time.host().num_cores)),
        num_threads_per_rank_(num_threads),
        num_threads_(std::min(num_cores_, num_threads * static_cast<int>(pieces.ranks.size()))),
        lends_(time.ranks() == HostRanks::threads),
        is_scarce_(static_cast<int>(ranks_.size()) > num_cores_),
        num_free_(num_cores_) {
    for (std::size_t i = 0; i < exchanges_.size(); ++i) exchanges_[i].work_left = pieces.exchanges[i].work;
  }

  void run() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) ready_.push_back(rank);
    for (;;) {
      give_permits();
      if (running_.empty()) break;
      pass_time();
    }
    if (!std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.is_over; }))
      throw Failure("the predicted step deadlocks");
  }

  [[nodiscard]] double seconds() const { return now_; }
  [[nodiscard]] double busy_core_seconds() const { return busy_core_seconds_; }
  [[nodiscard]] std::vector<StepParts> parts() const {
    std::vector<StepParts> parts;
    for (const Rank& rank : ranks_) parts.push_back(rank.parts);
    return parts;
  }
  [[nodiscard]] double start_of(int rank, int action) const {
    return ranks_[static_cast<std::size_t>(rank)].start[static_cast<std::size_t>(action)];
  }
  [[nodiscard]] const std::vector<ExchangeEvent>& exchanges_of(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].exchanges;
  }
  [[nodiscard]] double end_of(int rank, int action) const {
    return ranks_[static_cast<std::size_t>(rank)].end[static_cast<std::size_t>(action)];
  }

 private:
  static constexpr int patience = 16;  // polls without work after which a rank yields (comm/thread/thread_mesh.cpp)

  void give_permits() {
    while (num_free_ > 0 && !ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      --num_free_;
      running_.push_back(rank);
      go_on(rank);
    }
  }

  void release(int rank) {
    running_.erase(std::find(running_.begin(), running_.end(), rank));
    ++num_free_;
  }

  // --- what a rank does until something takes time, or until it waits ---

  void go_on(int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    if (std::exchange(rank.was_woken, false) && is_scarce_ && time_.switch_seconds() > 0)
      return compute(rank, {time_.switch_seconds(), time_.switch_seconds()}, false);
    const std::vector<Piece>& pieces = pieces_.ranks[static_cast<std::size_t>(index)];
    while (rank.next < pieces.size()) {
      const Piece& piece = pieces[rank.next];
      switch (piece.kind) {
        case Piece::Kind::begin:
          rank.action = piece.action;
          note(rank.start, piece.action);
          break;
        case Piece::Kind::end: note(rank.end, piece.action); break;
        case Piece::Kind::compute: ++rank.next; return compute(rank, piece.seconds, true);
        case Piece::Kind::join:
          if (join(rank, piece.exchange)) {
            ++rank.next;
            return;
          }
          break;
        case Piece::Kind::wait:
          if (!wait(index, rank, piece)) return;
          break;
        case Piece::Kind::poll:
          if (!poll(index, rank)) return;
          break;
      }
      ++rank.next;
    }
    rank.is_over = true;
    release(index);
  }

  void note(std::vector<double>& times, int action) const {
    if (std::ssize(times) <= action) times.resize(static_cast<std::size_t>(action) + 1, 0);
    times[static_cast<std::size_t>(action)] = now_;
  }

  void note_arrival(int index, Rank& rank, int exchange) const {
    const auto left = rank.rows_left.find(exchange);
    if (left == rank.rows_left.end()) return;
    const RowPurpose purpose = pieces_.exchanges[static_cast<std::size_t>(exchange)].purpose;
    add_exchange(rank.exchanges, {index, rank.action, name_of(purpose), left->second, now_});
    rank.rows_left.erase(left);
  }

  static void compute(Rank& rank, const CoreSeconds& cost, bool is_shared) {
    rank.activity = Activity::compute;
    rank.cost = cost;
    rank.is_shared = is_shared;
    rank.fraction_left = 1;
  }

  void copy(Rank& rank, int exchange) {
    rank.activity = Activity::copy;
    rank.exchange = exchange;
    ++exchanges_[static_cast<std::size_t>(exchange)].num_workers;
  }

  /// True if the rank has to do it all now.
  bool join(Rank& rank, int index) {
    Exchange& exchange = exchanges_[static_cast<std::size_t>(index)];
    const ExchangeSpec& spec = pieces_.exchanges[static_cast<std::size_t>(index)];
    rank.under_way.push_back(index);
    if (spec.purpose != RowPurpose::other) rank.rows_left[index] = now_;
    if (++exchange.num_arrived < spec.num_parties) return false;
    exchange.is_ready = true;
    if (exchange.work_left <= 0) {
      finish(exchange);
      return false;
    }
    if (spec.is_done_by_the_last) {
      rank.finishes = true;
      rank.exchange = index;
      compute(rank, {exchange.work_left, exchange.work_left}, false);
      return true;
    }
    wake(exchange, std::max(1, num_cores_ - 1));
    return false;
  }

  /// False if the rank has something to do before, or sleeps.
  bool wait(int index, Rank& rank, const Piece& piece) {
    Exchange& exchange = exchanges_[static_cast<std::size_t>(piece.exchange)];
    if (exchange.is_done) {
      std::erase(rank.under_way, piece.exchange);
      note_arrival(index, rank, piece.exchange);
      if (piece.action >= 0) note(rank.end, piece.action);
      return true;
    }
    if (can_be_copied(piece.exchange)) {
      copy(rank, piece.exchange);
      return false;
    }
    exchange.sleepers.push_back(index);
    rank.exchange = piece.exchange;
    release(index);
    return false;
  }

  bool poll(int index, Rank& rank) {
    for (const int exchange : rank.under_way)
      if (can_be_copied(exchange)) {
        copy(rank, exchange);
        return false;
      }
    if (++num_idle_polls_ % patience == 0 && !ready_.empty()) {
      ++rank.next;
      rank.was_woken = true;
      release(index);
      ready_.push_back(index);
      return false;
    }
    return true;
  }

  [[nodiscard]] bool can_be_copied(int index) const {
    const Exchange& exchange = exchanges_[static_cast<std::size_t>(index)];
    return exchange.is_ready && !exchange.is_done &&
           !pieces_.exchanges[static_cast<std::size_t>(index)].is_done_by_the_last;
  }

  void wake(Exchange& exchange, int count) {
    for (; count > 0 && !exchange.sleepers.empty(); --count) {
      const int rank = exchange.sleepers.front();
      exchange.sleepers.pop_front();
      ranks_[static_cast<std::size_t>(rank)].was_woken = true;
      ready_.push_back(rank);
    }
  }

  void finish(Exchange& exchange) {
    exchange.is_done = true;
    wake(exchange, std::numeric_limits<int>::max());
  }

  // --- time ---

  /// Of what a rank computes, by the cores that are left over for it.
  [[nodiscard]] double seconds_left(const Rank& rank, double num_cores) const {
    const double cost =
        rank.is_shared && num_cores > 1
            ? rank.cost.busy * std::pow(rank.cost.shared / rank.cost.busy, std::log(num_cores) / std::log(num_cores_))
            : rank.cost.busy;
    return rank.fraction_left * cost;
  }

  void pass_time() {
    int num_shared = 0;
    for (const int rank : running_)
      num_shared += ranks_[static_cast<std::size_t>(rank)].is_shared && is_computing(rank) ? 1 : 0;
    const int num_idle = std::max(0, num_threads_ - static_cast<int>(running_.size()));
    const double num_cores = !lends_          ? num_threads_per_rank_
                             : num_shared > 0 ? 1 + static_cast<double>(num_idle) / num_shared
                                              : 1;
    double step = std::numeric_limits<double>::infinity();
    for (const int rank : running_) step = std::min(step, time_of(ranks_[static_cast<std::size_t>(rank)], num_cores));
    now_ += step;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) *part_of(rank) += step;
    busy_core_seconds_ += step * (static_cast<double>(running_.size()) + (num_shared > 0 ? num_idle : 0));
    std::vector<int> ended;
    for (const int index : running_) {
      Rank& rank = ranks_[static_cast<std::size_t>(index)];
      const double left = time_of(rank, num_cores);
      const bool ends = left <= step * (1 + 1e-12);
      if (rank.activity == Activity::compute) rank.fraction_left *= ends ? 0 : 1 - step / left;
      if (ends) ended.push_back(index);
    }
    for (Exchange& exchange : exchanges_at_work()) exchange.work_left -= step * exchange.num_workers;
    for (const int index : ended) end(ranks_[static_cast<std::size_t>(index)]);
    for (const int index : ended) go_on(index);
  }

  /// Where the time of a rank goes at the moment.
  [[nodiscard]] double* part_of(std::size_t index) {
    Rank& rank = ranks_[index];
    const auto exposed = [&] {
      return &rank.parts
                  .exposed_communication_seconds[pieces_.exchanges[static_cast<std::size_t>(rank.exchange)].group];
    };
    const bool runs = std::find(running_.begin(), running_.end(), static_cast<int>(index)) != running_.end();
    if (!runs) {
      const bool awaits_transfer = rank.exchange >= 0 && !rank.was_woken &&
                                   pieces_.exchanges[static_cast<std::size_t>(rank.exchange)].is_transfer;
      return awaits_transfer ? &rank.parts.bubble_seconds : &rank.parts.waiting_seconds;
    }
    if (rank.activity == Activity::copy || rank.finishes) return exposed();
    const ActionKind kind = (*pieces_.programs[index])[static_cast<std::size_t>(rank.action)].kind;
    if (is_compute(kind)) return &rank.parts.compute_seconds;
    return kind == ActionKind::clip || kind == ActionKind::update ? &rank.parts.optimizer_seconds
                                                                  : &rank.parts.other_seconds;
  }

  [[nodiscard]] bool is_computing(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].activity == Activity::compute;
  }

  [[nodiscard]] double time_of(const Rank& rank, double num_cores) const {
    if (rank.activity == Activity::compute) return seconds_left(rank, num_cores);
    const Exchange& exchange = exchanges_[static_cast<std::size_t>(rank.exchange)];
    return exchange.work_left / exchange.num_workers;
  }

  [[nodiscard]] std::vector<std::reference_wrapper<Exchange>> exchanges_at_work() {
    std::vector<int> indices;
    for (const int rank : running_)
      if (ranks_[static_cast<std::size_t>(rank)].activity == Activity::copy)
        indices.push_back(ranks_[static_cast<std::size_t>(rank)].exchange);
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    std::vector<std::reference_wrapper<Exchange>> exchanges;
    for (const int index : indices) exchanges.emplace_back(exchanges_[static_cast<std::size_t>(index)]);
    return exchanges;
  }

  void end(Rank& rank) {
    const Activity activity = std::exchange(rank.activity, Activity::none);
    if (activity == Activity::compute && !std::exchange(rank.finishes, false)) return;
    Exchange& exchange = exchanges_[static_cast<std::size_t>(rank.exchange)];
    if (!exchange.is_done) finish(exchange);
  }

  const RankPieces& pieces_;
  const HostTime& time_;
  std::vector<Rank> ranks_;
  std::vector<Exchange> exchanges_;
  const int num_cores_, num_threads_per_rank_, num_threads_;
  const bool lends_;  // a rank that waits, its cores to others
  const bool is_scarce_;
  int num_free_;
  std::deque<int> ready_;
  std::vector<int> running_;
  int num_idle_polls_ = 0;
  double now_ = 0, busy_core_seconds_ = 0;
};

HostStep played(const Blueprint& blueprint, HostTime& time, const HostLoad& load, ProgramKind kind) {
  const std::optional<LinearDType> linear_dtype = blueprint.config().training.linear_dtype;
  require(!linear_dtype, "training.linear_dtype = '{}' is measured on no CPU (use an empty linear_dtype)",
          name_of(linear_dtype));
  const RankPieces pieces = pieces_of(blueprint, time, load, kind);
  const std::int64_t wanted = blueprint.config().training.num_threads, num_ranks = blueprint.mesh().num_ranks(),
                     num_cores = time.host().num_cores;
  const std::int64_t share = std::max<std::int64_t>(1, num_cores / num_ranks);
  HostEngine engine(pieces, time, static_cast<int>(wanted > 0 ? std::min(wanted, num_cores) : share));
  engine.run();
  HostStep step = {engine.seconds(), engine.busy_core_seconds(), engine.parts(), {}};
  Coordinates coordinates{};
  for (int stage = 0; stage < blueprint.mesh().degree(Axis::pp); ++stage) {
    coordinates[static_cast<std::size_t>(Axis::pp)] = stage;
    const int rank = blueprint.mesh().rank_of(coordinates);
    for (const Action& action : blueprint.programs(kind)[static_cast<std::size_t>(stage)])
      step.timeline.events.push_back(
          {stage, action.id, lane_of(action.kind), engine.start_of(rank, action.id), engine.end_of(rank, action.id)});
    for (ExchangeEvent exchange : engine.exchanges_of(rank)) {
      exchange.rank = stage;
      step.timeline.exchanges.push_back(exchange);
    }
  }
  return step;
}

}  // namespace

double seconds_of_pieces(const RankPieces& pieces, const HostTime& time, int num_threads) {
  HostEngine engine(pieces, time, num_threads);
  engine.run();
  return engine.seconds();
}

HostStep host_step(const Blueprint& blueprint, const HostSpec& host, const HostLoad& load, ProgramKind kind) {
  HostTime time(host, blueprint.mesh().num_ranks());
  return played(blueprint, time, load, kind);
}

HostStep host_step_of_processes(const Blueprint& blueprint, const HostSpec& host, const HostLoad& load,
                                ProgramKind kind) {
  const int num_ranks = blueprint.mesh().num_ranks();
  require(num_ranks <= host.num_cores,
          "{} processes on {} cores: the system decides who computes when, which is not predicted (use {} processes, "
          "or threads)",
          num_ranks, host.num_cores, host.num_cores);
  require(num_ranks == 1 || host.collectives.contains("mpi"),
          "the machine file has no collectives of processes; mpirun -n {} echelon bench --output FILE adds them to it",
          num_ranks);
  HostTime time(host, num_ranks, HostRanks::processes);
  return played(blueprint, time, load, kind);
}

}  // namespace echelon
