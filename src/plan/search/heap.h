// Sets of layouts in the order of their bounds.
#pragma once

#include "plan/space/orders.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace echelon {

/// How precise the bound of a set is, and how small the set.
enum class PlanGrade : std::uint8_t {
  shape,
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
};

/// The lowest key comes out first.
class PlanHeap {
 public:
  struct Entry {
    PlanKey key;
    std::unique_ptr<PlanNode> node;
  };
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const Entry& top() const { return entries_.front(); }
  /// The lowest one first.
  [[nodiscard]] const std::vector<Entry>& sorted() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
    return entries_;  // which is a heap too
  }
  void push(PlanNode node) {
    entries_.push_back({node.key, std::make_unique<PlanNode>(std::move(node))});
    std::push_heap(entries_.begin(), entries_.end(), comes_later);
  }
  /// Takes those out whose node `is_wanted`.
  template <class IsWanted>
  [[nodiscard]] PlanHeap extract(const IsWanted& is_wanted) {
    const auto first =
        std::partition(entries_.begin(), entries_.end(), [&](const Entry& each) { return !is_wanted(*each.node); });
    PlanHeap taken;
    taken.insert({std::make_move_iterator(first), std::make_move_iterator(entries_.end())});
    entries_.erase(first, entries_.end());
    std::make_heap(entries_.begin(), entries_.end(), comes_later);
    return taken;
  }
  void merge(PlanHeap other) { insert(std::move(other.entries_)); }
  std::unique_ptr<PlanNode> pop() {
    std::pop_heap(entries_.begin(), entries_.end(), comes_later);
    std::unique_ptr<PlanNode> node = std::move(entries_.back().node);
    entries_.pop_back();
    return node;
  }

 private:
  void insert(std::vector<Entry> entries) {
    std::move(entries.begin(), entries.end(), std::back_inserter(entries_));
    std::make_heap(entries_.begin(), entries_.end(), comes_later);
  }
  // a.key > b.key, which most often the first number decides.
  static bool comes_later(const Entry& a, const Entry& b) {
    return a.key.first != b.key.first ? a.key.first > b.key.first : a.key > b.key;
  }
  std::vector<Entry> entries_;
};

}  // namespace echelon
