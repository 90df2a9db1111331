#include "predict/host/operand_distances.h"

#include "blueprint/program_touches.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace echelon {
namespace {

/// Which operation used each block of an arena last, and how many blocks were used since.
class Recency {
 public:
  Recency(std::int64_t arena_bytes, std::size_t num_operations)
      : block_bytes_(std::max<std::int64_t>(least_block, arena_bytes >> 17U)), counts_(num_operations + 1) {}

  /// Calls f(bytes, operation that used them last, bytes of other blocks used since), for bytes that were used before.
  template <class F>
  void visit(const Touch& touch, F&& f) const {
    const std::int64_t end = touch.offset + touch.num_bytes;
    auto run = std::prev(runs_.upper_bound(block_of(touch.offset)));
    for (std::int64_t at = touch.offset; at < end;) {
      const int last = run->second;
      const std::int64_t until = ++run == runs_.end() ? end : std::min(end, run->first * block_bytes_);
      if (last != never) f(until - at, last, block_bytes_ * num_since(last));
      at = until;
    }
  }
  void use(const Touch& touch, int operation) {
    if (touch.num_bytes == 0) return;
    const std::int64_t end = block_of(touch.offset + touch.num_bytes - 1) + 1;
    const auto first = split(block_of(touch.offset)), last = split(end);
    for (auto run = first; run != last; ++run)
      if (run->second != never) add(run->second, run->first - std::next(run)->first);
    add(operation, end - first->first);
    first->second = operation;
    runs_.erase(std::next(first), last);
    if (last->second == operation) runs_.erase(last);
    if (first != runs_.begin() && std::prev(first)->second == operation) runs_.erase(first);
  }

 private:
  static constexpr int never = -1;
  static constexpr std::int64_t least_block = 4096;
  using Runs = std::map<std::int64_t, int>;

  [[nodiscard]] std::int64_t block_of(std::int64_t offset) const { return offset / block_bytes_; }
  /// The run that starts at this block: if none does, the latter part of one.
  Runs::iterator split(std::int64_t block) {
    const auto run = std::prev(runs_.upper_bound(block));
    return run->first == block ? run : runs_.emplace_hint(std::next(run), block, run->second);
  }
  // counts_ is a binary indexed tree (Fenwick 1994) of how many blocks each operation used last.
  void add(int operation, std::int64_t number) {
    total_ += number;
    for (std::size_t i = static_cast<std::size_t>(operation) + 1; i < counts_.size(); i += i & (~i + 1))
      counts_[i] += number;
  }
  [[nodiscard]] std::int64_t num_since(int operation) const {
    std::int64_t until = 0;
    for (std::size_t i = static_cast<std::size_t>(operation) + 1; i > 0; i -= i & (~i + 1)) until += counts_[i];
    return total_ - until;
  }

  std::int64_t block_bytes_;
  Runs runs_ = {{0, never}};  // by first block: neighbours that the same operation used last; the last run has no end
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
};

std::size_t num_operations_of(const RankBlueprint& rank, ProgramKind kind) {
  std::size_t number = 0;
  for (const Action& action : rank.program(kind)) number += rank.trace(kind).of(action).operations().size();
  return number;
}

/// Follows two steps. In the second one, every operand has been used before.
class Follower final : public TouchListener {
 public:
  Follower(const RankBlueprint& rank, ProgramKind kind, HostTime& time, double ranks_per_core)
      : time_(time),
        others_(std::max(0.0, ranks_per_core - 1)),
        arena_bytes_(rank.arena_bytes()),
        recency_(rank.arena_bytes(), 2 * num_operations_of(rank, kind)) {
    seconds_.resize(rank.program(kind).size());
  }

  void begins(const Action& action) override {
    action_ = static_cast<std::size_t>(action.id);
    seconds_[action_].clear();
  }
  void performed(const OpRecord& operation, std::span<const Touch> touches) override {
    seconds_[action_].push_back(more(operation, touches));
    for (const Touch& touch : touches) {
      recency_.use(touch, now_);
      used_bytes_ += touch.num_bytes;
    }
    turns_.push_back(turn_);
    ++now_;
  }
  void waited() override {
    ++turn_;
    used_before_turn_.push_back(used_bytes_);
  }

  [[nodiscard]] std::vector<std::vector<CoreSeconds>> seconds() && { return std::move(seconds_); }

 private:
  /// An operation's own operands are as far away in the measurement of its size.
  [[nodiscard]] CoreSeconds more(const OpRecord& operation, std::span<const Touch> touches) {
    double num_bytes = 0;
    for (const Touch& touch : touches) num_bytes += static_cast<double>(touch.num_bytes);
    if (num_bytes == 0) return {};
    const CoreSeconds close = time_.per_distant_byte(operation, num_bytes);
    // Of a table of which it uses a few rows, only those count.
    const double part = std::min(1.0, static_cast<double>(operation.bytes) / num_bytes);
    CoreSeconds sum;
    for (const Touch& touch : touches)
      recency_.visit(touch, [&](std::int64_t bytes, int last, std::int64_t since) {
        const CoreSeconds far = time_.per_distant_byte(operation, static_cast<double>(since) + by_others(last));
        const double count = part * static_cast<double>(bytes);
        sum += {count * std::max(0.0, far.busy - close.busy), count * std::max(0.0, far.shared - close.shared)};
      });
    return sum;
  }
  /// Bytes that the other ranks of a core used since that operation, if they do the same as this one.
  [[nodiscard]] double by_others(int operation) const {
    const std::size_t turn = turns_[static_cast<std::size_t>(operation)];
    const std::int64_t bytes = used_before_turn_[turn_] - used_before_turn_[turn];
    return others_ * static_cast<double>(std::min(bytes, arena_bytes_));
  }

  HostTime& time_;
  double others_;  // ranks with which this one shares a core
  std::int64_t arena_bytes_;
  Recency recency_;
  std::size_t action_ = 0, turn_ = 0;
  int now_ = 0;
  std::int64_t used_bytes_ = 0;
  std::vector<std::size_t> turns_;                    // by operation
  std::vector<std::int64_t> used_before_turn_ = {0};  // by turn
  std::vector<std::vector<CoreSeconds>> seconds_;     // by action
};

}  // namespace

std::vector<std::vector<CoreSeconds>> distance_seconds(const Blueprint& blueprint, const RankBlueprint& rank,
                                                       ProgramKind kind, HostTime& time) {
  const double ranks_per_core =
      static_cast<double>(blueprint.mesh().num_ranks()) / static_cast<double>(time.host().num_cores);
  Follower follower(rank, kind, time, ranks_per_core);
  TouchListener* const both[] = {&follower, &follower};
  execute_on_addresses(blueprint, rank, kind, both);
  return std::move(follower).seconds();
}

}  // namespace echelon
