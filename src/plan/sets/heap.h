// Sets of layouts in the order of their bounds.
#pragma once

#include "plan/space/orders.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace echelon {

/// How precise the bound of a set is, and how small the set.
enum class PlanGrade : std::uint8_t {
  unexchanged_shape,  // whatever ranks of context parallelism exchange
  shape,
  parts,  // the pipelines of a shape that are left
  pipeline,
  fitting,  // the same, with the data axes that may fit
  clocked,
  any_order,
  clocked_any_order,
  layout,
  stepped,
  timed
};

/// What is to be least comes first; of layouts that are equal in both the one with the earlier order.
struct PlanKey {
  double first = 0, second = 0;
  std::int64_t order = 0;
  auto operator<=>(const PlanKey&) const = default;
};

/// A pipeline of a shape with its bound, before it is a node: most of them are never looked at.
struct PipelinePart {
  PlanKey key = {};
  std::int64_t turn = 0;
  const PlanPipeline* pipeline = nullptr;  // of the space
  std::span<const PlanRecompute> chain = {};
  TensorPlacement placement = any_placement;
  std::size_t kind = 0, operations = 0, place = 0;  // of the pipeline, the chain and the placement, in PipelineParts
  bool is_bounded = false;                          // else the key is lower than that of its layouts
};

class PipelineParts;

/// Of equal keys the one with the earlier turn comes first: the order in which they were pushed.
template <class T>
[[nodiscard]] bool comes_later(const T& a, const T& b) {
  if (a.key.first != b.key.first) return a.key.first > b.key.first;  // which most often decides
  return std::tie(a.key, a.turn) > std::tie(b.key, b.turn);
}

/// A set of layouts: all that have the shape; or the pipeline and one of the recomputations of `chain`, of which
/// `choice` has the first; or all but an order; or one layout.
struct PlanNode {
  PlanKey key = {};
  PlanGrade grade{};
  PlanChoice choice = {};
  std::span<const PlanRecompute> chain = {};  // of the space; faster ones first
  TensorPlacement placement = any_placement;  // of the orders of the set
  std::int64_t plan = -1;                     // timed: which
  std::int64_t num_actions = 0;               // stepped: of its programs
  std::int64_t turn = 0;
  std::shared_ptr<PipelineParts> parts = {};
  const PlanPipeline* pipeline = nullptr;  // that of the choice, in the space
};

[[nodiscard]] inline PlanNode node_of(const PlanShape& shape, const PipelinePart& part) {
  return {.key = part.key,
          .grade = PlanGrade::pipeline,
          .choice = {shape, *part.pipeline, part.chain.front()},
          .chain = part.chain,
          .placement = part.placement,
          .turn = part.turn,
          .pipeline = part.pipeline};
}

/// The lowest key comes out first.
class PlanHeap {
 public:
  /// A node; or a pipeline of a shape, which is made one when it comes out: of millions few do.
  class Entry {
   public:
    Entry(const PlanKey& at, std::int64_t of_turn, std::unique_ptr<PlanNode> own)
        : key(at), turn(of_turn), node_(std::move(own)) {}
    /// It refers to both.
    Entry(const PlanShape& shape, const PipelinePart& part)
        : key(part.key), turn(part.turn), shape_(&shape), part_(&part) {}

    PlanKey key;
    std::int64_t turn = 0;

    [[nodiscard]] PlanGrade grade() const { return node_ ? node_->grade : PlanGrade::pipeline; }
    [[nodiscard]] const PlanShape& shape() const { return node_ ? node_->choice.shape : *shape_; }
    [[nodiscard]] PlanData data() const { return node_ ? node_->choice.data : PlanData(); }
    [[nodiscard]] PlanNode node() const { return node_ ? *node_ : node_of(*shape_, *part_); }
    /// What it is of, where it was pushed as a node.
    [[nodiscard]] const PlanNode& pushed() const { return *node_; }
    [[nodiscard]] std::unique_ptr<PlanNode> take() {
      return node_ ? std::move(node_) : std::make_unique<PlanNode>(node_of(*shape_, *part_));
    }

   private:
    std::unique_ptr<PlanNode> node_;
    const PlanShape* shape_ = nullptr;
    const PipelinePart* part_ = nullptr;
  };
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const Entry& top() const { return entries_.front(); }
  /// The lowest one first.
  [[nodiscard]] const std::vector<Entry>& sorted() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return comes_later(b, a); });
    return entries_;  // which is a heap too
  }
  void push(PlanNode node) {
    node.turn = take_turns(1);
    push_in_turn(std::move(node));
  }
  /// For so many nodes that are pushed later. Returns the first.
  [[nodiscard]] std::int64_t take_turns(std::int64_t count) { return std::exchange(next_turn_, next_turn_ + count); }
  /// Whose turn was taken before.
  void push_in_turn(PlanNode node) {
    const PlanKey key = node.key;
    const std::int64_t turn = node.turn;
    push({key, turn, std::make_unique<PlanNode>(std::move(node))});
  }
  void push(Entry entry) {
    entries_.push_back(std::move(entry));
    std::push_heap(entries_.begin(), entries_.end(), comes_later<Entry>);
  }
  /// Takes those out that `is_wanted`.
  template <class IsWanted>
  [[nodiscard]] PlanHeap extract(const IsWanted& is_wanted) {
    const auto first =
        std::partition(entries_.begin(), entries_.end(), [&](const Entry& each) { return !is_wanted(each); });
    PlanHeap taken;
    taken.next_turn_ = next_turn_;
    taken.insert({std::make_move_iterator(first), std::make_move_iterator(entries_.end())});
    entries_.erase(first, entries_.end());
    std::make_heap(entries_.begin(), entries_.end(), comes_later<Entry>);
    return taken;
  }
  void merge(PlanHeap other) {
    next_turn_ = std::max(next_turn_, other.next_turn_);
    insert(std::move(other.entries_));
  }
  std::unique_ptr<PlanNode> pop() {
    std::pop_heap(entries_.begin(), entries_.end(), comes_later<Entry>);
    std::unique_ptr<PlanNode> node = entries_.back().take();
    entries_.pop_back();
    return node;
  }

 private:
  void insert(std::vector<Entry> entries) {
    std::move(entries.begin(), entries.end(), std::back_inserter(entries_));
    std::make_heap(entries_.begin(), entries_.end(), comes_later<Entry>);
  }
  std::vector<Entry> entries_;
  std::int64_t next_turn_ = 0;
};

}  // namespace echelon
