#include "plan/search/good_plans.h"

#include "plan/search/expert_choices.h"

#include <algorithm>
#include <map>

namespace echelon {
namespace {

using Entries = std::vector<const PlanHeap::Entry*>;

constexpr double grace = 0.1;                                  // of the limit, to find some plans nevertheless
constexpr double polish = 0.375;                               // of it, to make the best degrees found better
constexpr double polish_of_one = 0.125;                        // likewise, of one triple
constexpr double share_of_orders = 0.025;                      // likewise, of its orders of axes
constexpr double share_of_others = 0.2;                        // of all these, once the first plan is proven
constexpr std::size_t most_planted = 10;                       // triples of degrees as experts choose them
constexpr int most_planted_of_degrees = 12;                    // whether they fit or not
constexpr std::size_t num_polished = 5;                        // whatever number of plans is wanted
constexpr std::size_t most_descents = 400, most_children = 8;  // the lowest
// Of a descent; of it, and of layouts of the same degrees.
constexpr int most_sets = 100, most_timed = 3;
// Descents when that is over too, as long as none has found anything.
constexpr int most_late = 16;

class GoodPlans {
 public:
  explicit GoodPlans(const OpenSearch& search)
      : request_(search.request),
        tree_(search.tree),
        limit_(search.limit),
        open_(search.open),
        timed_(search.tree.timed()),
        found_(search.found) {}

  void find(int wanted) {
    const std::size_t num_listed = std::max(num_polished, static_cast<std::size_t>(wanted));
    // A first plan that is proven leaves less to find.
    const double share = found_.empty() ? 1 : share_of_others;
    PlanHeap reached, planted;
    descend_from_each_way(reached, limit_.after(share * grace / 2));
    plant(planted, effort(share * grace, num_listed));
    // Their seconds are exact more often: those that descents reached may be bounds far below the truth.
    time_best(planted, num_listed, effort(share * grace, num_listed));
    time_best(reached, num_listed, effort(share * grace / 2, num_listed));
    polish_best(num_listed, share);
  }

 private:
  /// Until `end`, or as long as fewer triples of degrees than wanted are found, until `of_wanted`.
  struct Effort {
    SearchLimit::End end, of_wanted;
    std::size_t num_wanted;
  };
  [[nodiscard]] Effort effort(double part, std::size_t num_wanted) const {
    return {limit_.after(part), limit_.after(grace), num_wanted};
  }
  [[nodiscard]] bool goes_on(const Effort& effort, std::size_t num_others) const {
    return limit_.is_before(found_.size() + num_others < effort.num_wanted ? effort.of_wanted : effort.end);
  }

  void descend_from_each_way(PlanHeap& reached, const SearchLimit::End& end) {
    using Way = std::tuple<PlanDegrees, std::int64_t, ReshardAfterForward>;
    std::map<Way, const PlanHeap::Entry*> lowest;
    for (const PlanHeap::Entry& each : open_.entries()) {
      const PlanData data = each.data();
      const PlanHeap::Entry*& of_way = lowest[{degrees_of(each), data.zero_level, data.reshard}];
      if (of_way == nullptr || each.key < of_way->key) of_way = &each;
    }
    Entries first;
    for (const auto& [way, entry] : lowest) first.push_back(entry);
    descend_from(std::move(first), reached, end);

    std::set<PlanDegrees> best;
    for (const PlanHeap::Entry& each : reached.sorted())
      if (best.size() < num_polished) best.insert(degrees_of(each));
    Entries of_best;
    for (const PlanHeap::Entry& each : open_.entries())
      if (best.contains(degrees_of(each))) of_best.push_back(&each);
    descend_from(std::move(of_best), reached, end);
  }

  /// Of all that experts would choose, those of the lowest bounds: of the triples of degrees whose schedules say that
  /// they are fastest a few layouts each.
  void plant(PlanHeap& planted, const Effort& effort) {
    if (tree_.memory_first()) return;
    PlanHeap seeds;
    const std::vector<PlanShape>& shapes = tree_.space().shapes();
    for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
      if (!is_expert_shape(*shape, request_) || found_.contains(degrees_of(*shape))) continue;
      if (!limit_.is_before(effort.of_wanted)) break;
      tree_.add_expert_choices(*shape, seeds);
    }
    std::map<PlanDegrees, int> num_stepped, num_fitting;
    const std::int64_t most_evaluated = tree_.counts().num_evaluated + most_timed;
    const auto has_none = [&] { return num_fitting.empty() && tree_.counts().num_evaluated < most_evaluated; };
    while (!seeds.empty() && num_fitting.size() < most_planted && (has_none() || goes_on(effort, num_fitting.size()))) {
      const auto node = seeds.pop();
      const PlanDegrees degrees = degrees_of(*node);
      const auto fitting = num_fitting.find(degrees);
      if (fitting != num_fitting.end() && fitting->second >= most_timed) continue;
      if (node->grade == PlanGrade::any_order) {
        tree_.add_layout(node->choice, seeds);
        continue;
      }
      if (num_stepped[degrees]++ >= most_planted_of_degrees) continue;
      // Where nodes differ a step is timed at once.
      const auto num_found = [&] { return std::ssize(planted.entries()) + tree_.num_timed(); };
      const std::int64_t before = num_found();
      tree_.step(*node, planted);
      if (num_found() > before) ++num_fitting[degrees];
    }
  }

  /// The lowest layouts of so many triples of degrees, a few of each.
  void time_best(PlanHeap& reached, std::size_t num_degrees, const Effort& effort) {
    std::map<PlanDegrees, int> num_timed;
    while (!reached.empty() && num_timed.size() <= num_degrees &&
           (timed_.empty() || goes_on(effort, num_timed.size()))) {
      const auto node = reached.pop();
      const std::int64_t before = tree_.num_timed();
      const PlanDegrees degrees = degrees_of(*node);
      if (const auto known = num_timed.find(degrees); known != num_timed.end() && known->second == most_timed) continue;
      tree_.time(*node);
      if (tree_.num_timed() > before) ++num_timed[degrees];
    }
  }

  /// Makes each triple of degrees better that comes first among the timed ones and is not yet polished: all that are
  /// listed. With more rows more triples follow, so the first row is never worse.
  void polish_best(std::size_t num_listed, double share) {
    const SearchLimit::End end = limit_.after(share * polish);
    std::set<PlanDegrees> polished;
    while (limit_.is_before(end)) {
      std::set<PlanDegrees> listed = found_;
      std::optional<PlanDegrees> next;
      for (const PlanHeap::Entry& each : timed_.sorted()) {
        const PlanDegrees degrees = degrees_of(each);
        if (!listed.insert(degrees).second) continue;
        if (!polished.contains(degrees)) next = degrees;
        if (next || listed.size() - found_.size() == num_listed) break;
      }
      if (!next) return;
      polished.insert(*next);
      improve(*next, limit_.after(share * polish_of_one));
    }
  }

  /// Best first among the layouts of one triple of degrees, until its best one is known or the limit is reached; then
  /// by descents from the lowest sets that are left.
  void improve(const PlanDegrees& degrees, const SearchLimit::End& end) {
    const auto is_of_degrees = [&](const PlanHeap::Entry& each) { return degrees_of(each) == degrees; };
    PlanHeap rest = std::move(open_);
    open_ = rest.extract(is_of_degrees);
    const auto is_known = [&] {
      return std::any_of(timed_.entries().begin(), timed_.entries().end(), [&](const PlanHeap::Entry& each) {
        return is_of_degrees(each) && !is_behind(request_, each.key, open_.top().key);
      });
    };
    while (!open_.empty() && limit_.is_before(end) && !is_known()) tree_.expand(*open_.pop(), open_);
    if (!open_.empty() && !is_known()) {
      Entries left;
      for (const PlanHeap::Entry& each : open_.entries()) left.push_back(&each);
      const SearchLimit::End end_of_descents = limit_.after(polish_of_one / 4);
      PlanHeap reached;
      descend_from(std::move(left), reached, end_of_descents);
      time_best(reached, 1, {end_of_descents, end_of_descents, 1});
    }
    open_.merge(std::move(rest));
    reorder(degrees, limit_.after(share_of_orders));
  }

  /// Times the best layout of a triple of degrees in other orders of its axes: bounds of orders that do not divide into
  /// nodes are too low to tell which is best.
  void reorder(const PlanDegrees& degrees, const SearchLimit::End& end) {
    std::optional<PlanNode> best;
    for (const PlanHeap::Entry& each : timed_.entries())
      if (degrees_of(each) == degrees && (!best || each.key < best->key)) best = each.pushed();
    if (!best) return;
    PlanHeap others, stepped;
    tree_.add_orders(best->choice, others);
    while (!others.empty() && limit_.is_before(end)) tree_.step(*others.pop(), stepped);
    while (!stepped.empty() && stepped.top().key < best->key && limit_.is_before(end)) tree_.time(*stepped.pop());
  }

  void descend_from(Entries entries, PlanHeap& reached, const SearchLimit::End& end) {
    std::sort(entries.begin(), entries.end(),
              [](const PlanHeap::Entry* a, const PlanHeap::Entry* b) { return a->key < b->key; });
    if (entries.size() > most_descents) entries.resize(most_descents);
    int num_late = 0;
    for (const PlanHeap::Entry* each : entries) {
      const bool is_late = !limit_.is_before(end);
      if (is_late && (!reached.empty() || !timed_.empty() || ++num_late > most_late)) return;
      descend(each->node(), reached);
    }
  }

  /// Depth first, down to a stepped layout.
  void descend(const PlanNode& node, PlanHeap& reached) {
    const std::int64_t before = tree_.num_timed(), most_evaluated = tree_.counts().num_evaluated + most_timed;
    std::vector<PlanNode> ahead = {node};
    for (int i = 0; i < most_sets && !ahead.empty() && tree_.num_timed() == before &&
                    tree_.counts().num_evaluated < most_evaluated;
         ++i) {
      const PlanNode next = std::move(ahead.back());
      ahead.pop_back();
      if (next.grade == PlanGrade::stepped) return reached.push(next);
      PlanHeap children;
      tree_.expand(next, children);
      const std::size_t first = ahead.size();
      while (!children.empty() && ahead.size() < first + most_children) ahead.push_back(std::move(*children.pop()));
      std::reverse(ahead.begin() + static_cast<std::ptrdiff_t>(first), ahead.end());
    }
  }

  const PlanRequest& request_;
  PlanTree& tree_;
  SearchLimit& limit_;
  PlanHeap &open_, &timed_;
  const std::set<PlanDegrees>& found_;
};

}  // namespace

bool is_behind(const PlanRequest& request, const PlanKey& timed, const PlanKey& bound) {
  return request.within > 0 ? bound.first < timed.first * (1 - request.within) : bound < timed;
}

void find_good_plans(const OpenSearch& search, int wanted) { GoodPlans(search).find(wanted); }

}  // namespace echelon
