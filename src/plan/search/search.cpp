// Best first: a heap of sets of layouts by their bounds. The first one is taken apart or bounded better, until a layout
// that was timed comes first; nothing that is left can be better than it. So the answer is that of timing all.
#include "plan/search/search.h"

#include "base/clock.h"
#include "base/error.h"
#include "plan/bounds/bounds.h"
#include "plan/bounds/layout_steps.h"
#include "plan/search/cost.h"
#include "plan/search/expert_choices.h"
#include "plan/search/heap.h"
#include "plan/search/other_formats.h"
#include "plan/search/suggestions.h"
#include "predict/machine/device_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace echelon {
namespace {

using Grade = PlanGrade;
using Key = PlanKey;
using Node = PlanNode;
using Heap = PlanHeap;

constexpr double rounding_of_bounds = 1 - 1e-9;  // they are summed in another order than the simulator's seconds

// Work is about proportional to time on any machine: what a set, a pass of a schedule, an action of a program and of a
// blueprint cost.
constexpr std::int64_t work_of_set = 10, work_of_pass = 1, work_of_action = 1, work_of_lowered_action = 6,
                       work_of_blueprint_action = 20, work_of_blueprint_pass = 40;

// Where the limit is reached:
constexpr double grace = 0.2;                                  // of it, to find some plans nevertheless
constexpr double polish = 0.75;                                // of it, to make the best degrees found better
constexpr double polish_of_one = 0.25;                         // likewise, of one triple
constexpr std::size_t most_planted = 10;                       // triples of degrees as experts choose them
constexpr std::size_t num_polished = 5;                        // whatever number of plans is wanted
constexpr std::size_t most_descents = 400, most_children = 8;  // the lowest
// Of a descent; of it, and of layouts of the same degrees.
constexpr int most_sets = 100, most_timed = 3;
// Descents when that is over too, as long as none has found anything.
constexpr int most_late = 16;

using Degrees = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

class Search {
 public:
  explicit Search(const PlanRequest& request, bool must_fit)
      : request_(request),
        must_fit_(must_fit),
        space_(request),
        bounds_(space_, request),
        steps_(space_, request, bounds_.costs()),
        device_bytes_(most_arena_bytes(0)) {}

  PlanResult run(int wanted) {
    const double start = now_seconds();
    PlanResult result;
    result.num_configurations = space_.num_configurations();
    for (const PlanShape& shape : space_.shapes())
      push({key(bounds_.shape_seconds(shape), 0), Grade::shape, {.shape = shape}});
    const Limit end = limit_after(1, start);
    while (static_cast<int>(result.plans.size()) < wanted) {
      drop_found(heap_);
      drop_found(timed_);
      const bool is_open = !heap_.empty() && (timed_.empty() || is_behind(timed_.top().key, heap_.top().key));
      if (is_open && result.is_complete && !is_early(end)) {
        result.is_complete = false;
        find_some(wanted);
        continue;
      }
      if (is_open && result.is_complete) {
        expand(*heap_.pop());
        continue;
      }
      if (timed_.empty()) break;
      const Node& best = *timed_.top().node;
      if (result.plans.empty() && !heap_.empty())
        result.within = std::max(0.0, 1 - heap_.top().key.first / best.key.first);
      found_.insert(degrees_of(best.choice.shape));
      result.plans.push_back(std::move(plans_[static_cast<std::size_t>(best.plan)]));
    }
    result.num_evaluated = num_evaluated_;
    result.num_played = num_played_;
    result.num_stepped = num_stepped_;
    result.work = work_;
    result.seconds = now_seconds() - start;
    return result;
  }

 private:
  /// What ends a search: always the same amount of work, or a clock if the request names one.
  struct Limit {
    std::int64_t work;
    double seconds;
  };
  [[nodiscard]] Limit limit_after(double part, double start) const {
    Limit limit = {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<double>::infinity()};
    if (request_.work > 0) limit.work = work_ + static_cast<std::int64_t>(part * static_cast<double>(request_.work));
    if (request_.seconds > 0) limit.seconds = start + part * request_.seconds;
    return limit;
  }
  [[nodiscard]] bool is_early(const Limit& end) const { return work_ < end.work && now_seconds() < end.seconds; }

  void drop_found(Heap& heap) const {
    while (!heap.empty() && found_.contains(degrees_of(heap.top().node->choice.shape))) heap.pop();
  }

  /// Whether something that is not timed yet may be better by more than is asked for.
  [[nodiscard]] bool is_behind(const Key& timed, const Key& bound) const {
    return request_.within > 0 ? bound.first < timed.first * (1 - request_.within) : bound < timed;
  }

  /// The limit is reached: descends by the lowest bounds from the lowest set of each way to lay out the model, then
  /// from the lowest sets of the best degrees. The best layouts found are timed. Nothing is taken off the heap, whose
  /// first bound still says how much better another one could be.
  void find_some(int wanted) {
    using Way = std::tuple<Degrees, std::int64_t, ReshardAfterForward>;
    std::map<Way, const Heap::Entry*> lowest;
    for (const Heap::Entry& each : heap_.entries()) {
      const PlanChoice& choice = each.node->choice;
      const Heap::Entry*& of_way = lowest[{degrees_of(choice.shape), choice.data.zero_level, choice.data.reshard}];
      if (of_way == nullptr || each.key < of_way->key) of_way = &each;
    }
    std::vector<const Heap::Entry*> first;
    for (const auto& [way, entry] : lowest) first.push_back(entry);
    Heap reached;
    const double now = now_seconds();
    const Limit end_of_descents = limit_after(grace / 2, now);
    descend_from(std::move(first), reached, end_of_descents);

    std::set<Degrees> best;
    for (const Heap::Entry& each : reached.sorted())
      if (best.size() < num_polished) best.insert(degrees_of(each.node->choice.shape));
    std::vector<const Heap::Entry*> of_best;
    for (const Heap::Entry& each : heap_.entries())
      if (best.contains(degrees_of(each.node->choice.shape))) of_best.push_back(&each);
    descend_from(std::move(of_best), reached, end_of_descents);

    plant(reached, limit_after(grace, now_seconds()));
    time_best(reached, std::max(num_polished, static_cast<std::size_t>(wanted)), limit_after(grace, now_seconds()));
    polish_best(wanted);
  }

  /// Of the shapes that experts choose, full nodes of tensor ranks first: of the triples of degrees whose schedules say
  /// that they are fastest a few layouts each.
  void plant(Heap& reached, const Limit& end) {
    if (memory_first()) return;
    const auto fits = [&](const PlanChoice& choice) { return may_fit(choice, bounds_.bytes().of_layout(choice)); };
    Heap seeds;
    for (auto shape = space_.shapes().rbegin(); shape != space_.shapes().rend(); ++shape) {
      if (!is_expert_shape(*shape, request_.machine.nodes.front().num_devices)) continue;
      if (found_.contains(degrees_of(*shape)) || !is_early(end)) continue;
      for (const PlanChoice& choice : expert_choices(space_, *shape, fits)) {
        work_ += work_of_pass * num_passes(choice);
        seeds.push(
            layout_node(Grade::played, choice, bounds_.seconds(choice, true), bounds_.bytes().of_layout(choice)));
      }
    }
    Heap whole = std::move(heap_);
    heap_ = Heap();
    std::map<Degrees, std::size_t> num_stepped;
    while (!seeds.empty() && num_stepped.size() < most_planted && (heap_.empty() || is_early(end))) {
      const auto node = seeds.pop();
      if (num_stepped[degrees_of(node->choice.shape)]++ < most_timed) step(*node);
    }
    reached.merge(std::move(heap_));
    heap_ = std::move(whole);
  }

  /// The lowest layouts of so many triples of degrees, a few of each.
  void time_best(Heap& reached, std::size_t num_degrees, const Limit& end) {
    std::map<Degrees, int> num_timed;
    while (!reached.empty() && (timed_.empty() || is_early(end))) {
      const auto node = reached.pop();
      const std::size_t before = plans_.size();
      int& of_degrees = num_timed[degrees_of(node->choice.shape)];
      if (of_degrees < most_timed) time(*node);
      of_degrees += plans_.size() > before ? 1 : 0;
      if (num_timed.size() > num_degrees) break;
    }
  }

  /// Makes each triple of degrees better that comes first among the timed ones and is not yet polished: all that are
  /// listed. With more rows more triples follow, so the first row is never worse.
  void polish_best(int wanted) {
    const std::size_t num_listed = std::max(num_polished, static_cast<std::size_t>(wanted));
    const Limit end = limit_after(polish, now_seconds());
    std::set<Degrees> polished;
    while (is_early(end)) {
      std::set<Degrees> listed = found_;
      std::optional<Degrees> next;
      for (const Heap::Entry& each : timed_.sorted()) {
        const Degrees degrees = degrees_of(each.node->choice.shape);
        if (!listed.insert(degrees).second) continue;
        if (!polished.contains(degrees)) next = degrees;
        if (next || listed.size() - found_.size() == num_listed) break;
      }
      if (!next) return;
      polished.insert(*next);
      improve(*next, limit_after(polish_of_one, now_seconds()));
    }
  }

  /// Best first among the layouts of one triple of degrees, until its best one is known or the limit is reached; then
  /// by descents from the lowest sets that are left.
  void improve(const Degrees& degrees, const Limit& end) {
    const auto is_of_degrees = [&](const Node& node) { return degrees_of(node.choice.shape) == degrees; };
    Heap rest = std::move(heap_);
    heap_ = rest.extract(is_of_degrees);
    const auto is_known = [&] {
      return std::any_of(timed_.entries().begin(), timed_.entries().end(), [&](const Heap::Entry& each) {
        return is_of_degrees(*each.node) && !is_behind(each.key, heap_.top().key);
      });
    };
    while (!heap_.empty() && is_early(end) && !is_known()) expand(*heap_.pop());
    if (!heap_.empty() && !is_known()) {
      std::vector<const Heap::Entry*> left;
      for (const Heap::Entry& each : heap_.entries()) left.push_back(&each);
      const Limit end_of_descents = limit_after(polish_of_one / 4, now_seconds());
      Heap reached;
      descend_from(std::move(left), reached, end_of_descents);
      time_best(reached, 1, end_of_descents);
    }
    heap_.merge(std::move(rest));
  }

  void descend_from(std::vector<const Heap::Entry*> entries, Heap& reached, const Limit& end) {
    std::sort(entries.begin(), entries.end(),
              [](const Heap::Entry* a, const Heap::Entry* b) { return a->key < b->key; });
    if (entries.size() > most_descents) entries.resize(most_descents);
    std::vector<Node> nodes;
    for (const Heap::Entry* each : entries) nodes.push_back(*each->node);
    Heap whole = std::move(heap_);
    int num_late = 0;
    for (const Node& node : nodes)
      if (is_early(end) || (reached.empty() && timed_.empty() && ++num_late <= most_late)) descend(node, reached);
    heap_ = std::move(whole);
  }

  /// Depth first.
  void descend(const Node& node, Heap& reached) {
    const std::size_t before = plans_.size();
    const std::int64_t most_evaluated = num_evaluated_ + most_timed;
    std::vector<Node> ahead = {node};
    for (int i = 0; i < most_sets && !ahead.empty() && plans_.size() == before && num_evaluated_ < most_evaluated;
         ++i) {
      const Node next = std::move(ahead.back());
      ahead.pop_back();
      if (next.grade == Grade::stepped) return reached.push(next);
      heap_ = Heap();
      expand(next);
      const std::size_t first = ahead.size();
      while (!heap_.empty() && ahead.size() < first + most_children) ahead.push_back(std::move(*heap_.pop()));
      std::reverse(ahead.begin() + static_cast<std::ptrdiff_t>(first), ahead.end());
    }
  }

  static Degrees degrees_of(const PlanShape& shape) { return {shape.tp, shape.pp, shape.dp}; }

  [[nodiscard]] std::int64_t most_arena_bytes(int num_communicators) const {
    std::int64_t most = 0;
    for (const NodeSpec& node : request_.machine.nodes)
      most = std::max(most, arena_limit_bytes(node.device, num_communicators));
    return most;
  }

  [[nodiscard]] Key key(double seconds, std::int64_t bytes) const {
    return memory_first() ? Key{static_cast<double>(bytes), seconds} : Key{seconds, static_cast<double>(bytes)};
  }
  [[nodiscard]] bool may_fit(std::int64_t bytes) const { return !must_fit_ || bytes <= device_bytes_; }
  [[nodiscard]] bool may_fit(const PlanChoice& choice, std::int64_t bytes) const {
    const MeshShape mesh = space_.mesh_of(choice.shape, choice.data, choice.order);
    return !must_fit_ || bytes <= most_arena_bytes(num_communicators(mesh, request_.base.model.tie_word_embeddings));
  }

  void push(Node node) { heap_.push(std::move(node)); }
  void push(Grade grade, const PlanChoice& choice, double seconds, std::int64_t bytes) {
    push(layout_node(grade, choice, seconds, bytes));
  }
  [[nodiscard]] Node layout_node(Grade grade, const PlanChoice& choice, double seconds, std::int64_t bytes) const {
    Node node = {key(seconds, bytes), grade, choice};
    const std::vector<AxisOrder>& orders = space_.orders(choice.shape, choice.data);
    node.key.order = std::find(orders.begin(), orders.end(), choice.order) - orders.begin();
    return node;
  }

  /// Forward and backward passes of all pipeline ranks.
  static std::int64_t num_passes(const PlanChoice& choice) {
    return 2 * choice.shape.pp * choice.pipeline.num_virtual * choice.shape.num_microbatches;
  }

  void expand(const Node& node) {
    work_ += work_of_set;
    switch (node.grade) {
      case Grade::shape: return expand_shape(node.choice.shape);
      case Grade::pipeline: return expand_pipeline(node);
      case Grade::any_order: return expand_orders(node);
      case Grade::layout: return play(node);
      case Grade::played: return step(node);
      case Grade::stepped: return time(node);
      case Grade::timed: return;
    }
  }

  void expand_shape(const PlanShape& shape) {
    for (const PlanPipeline& pipeline : space_.pipelines(shape)) {
      // Those of the same operations come one after the other, with more and more blocks: each is slower and keeps
      // less.
      const std::vector<PlanRecompute> all = space_.recomputes(pipeline);
      for (auto first = all.begin(); first != all.end();) {
        const auto end = std::find_if(first, all.end(),
                                      [&](const PlanRecompute& each) { return each.operations != first->operations; });
        const auto fits = [&](const PlanRecompute& each) {
          return may_fit(bounds_.bytes().of_any_schedule({shape, pipeline, each}));
        };
        push_pipeline({shape, pipeline, {}, {}}, {first, end}, fits);
        first = end;
      }
    }
  }

  [[nodiscard]] bool memory_first() const { return request_.objective == PlanObjective::memory || !must_fit_; }

  /// The layouts with the recomputations of `chain`, without those at its start of which none fits.
  template <class Fits>
  void push_pipeline(const PlanChoice& choice, std::vector<PlanRecompute> chain, const Fits& fits) {
    const auto first = must_fit_ ? std::partition_point(chain.begin(), chain.end(),
                                                        [&](const PlanRecompute& each) { return !fits(each); })
                                 : chain.begin();
    chain.erase(chain.begin(), first);
    if (chain.empty()) return;
    Node node = {.key = {}, .grade = Grade::pipeline, .choice = choice};
    node.choice.recompute = chain.front();
    const double seconds = bounds_.pipeline_seconds({choice.shape, choice.pipeline, chain.front()});
    node.key = key(seconds,
                   memory_first() ? bounds_.bytes().of_any_schedule({choice.shape, choice.pipeline, chain.back()}) : 0);
    node.chain = std::move(chain);
    push(std::move(node));
  }

  /// The first layouts of a chain whose schedule says that they fit, one for each data-parallel configuration; the rest
  /// of the chain stays a node.
  void expand_pipeline(const Node& node) {
    PlanChoice choice = node.choice;
    const auto fits = [&](const PlanRecompute& each) {
      return may_fit(bounds_.bytes().of_pipeline({choice.shape, choice.pipeline, each}));
    };
    if (!fits(node.chain.front())) return push_pipeline(choice, node.chain, fits);
    const std::size_t num_taken = memory_first() ? node.chain.size() : 1;  // the last ones keep least
    for (std::size_t i = 0; i < num_taken; ++i) {
      choice.recompute = node.chain[i];
      for (const PlanData& data : space_.data_layouts(choice.shape)) {
        choice.data = data;
        const std::int64_t bytes = bounds_.bytes().of_layout(choice);
        if (may_fit(choice, bytes)) push({key(bounds_.seconds_of_any_order(choice), bytes), Grade::any_order, choice});
      }
    }
    if (num_taken < node.chain.size())
      push_pipeline(node.choice, {node.chain.begin() + 1, node.chain.end()}, [](const PlanRecompute&) { return true; });
  }

  /// One of each kind of orders that the machine can tell apart.
  void expand_orders(const Node& node) {
    PlanChoice choice = node.choice;
    for (const AxisOrder& order : bounds_.costs().orders().of(choice.shape, choice.data)) {
      choice.order = order;
      push(Grade::layout, choice, bounds_.seconds(choice, false), bounds_.bytes().of_layout(choice));
    }
  }

  void play(const Node& node) {
    ++num_played_;
    work_ += work_of_pass * num_passes(node.choice);
    push(Grade::played, node.choice, bounds_.seconds(node.choice, true), bounds_.bytes().of_layout(node.choice));
  }

  void step(const Node& node) {
    const std::optional<LayoutStep> step = steps_.play(node.choice);
    if (!step) return time(node);
    work_ += work_of_action * step->num_actions + work_of_lowered_action * step->num_lowered;
    ++num_stepped_;
    if (!may_fit(node.choice, step->live_bytes)) return;
    Node stepped =
        layout_node(Grade::stepped, node.choice,
                    step->is_exact ? comparable(step->seconds) : rounding_of_bounds * step->seconds, step->live_bytes);
    stepped.num_actions = step->num_actions;
    push(std::move(stepped));
  }

  void time(const Node& node) {
    ++num_evaluated_;
    work_ += node.num_actions > 0 ? work_of_blueprint_action * node.num_actions
                                  : work_of_blueprint_pass * num_passes(node.choice);
    Plan plan = evaluate(space_, request_, node.choice);
    if (must_fit_ && !plan.outcome.fits()) return;
    Node timed =
        layout_node(Grade::timed, node.choice, comparable(plan.outcome.step_seconds), plan.outcome.peak_memory_bytes());
    timed.plan = static_cast<std::int64_t>(plans_.size());
    plans_.push_back(std::move(plan));
    timed_.push(std::move(timed));
  }

  const PlanRequest& request_;
  bool must_fit_;
  PlanSpace space_;
  PlanBounds bounds_;
  LayoutSteps steps_;
  std::int64_t device_bytes_;
  Heap heap_, timed_;
  std::vector<Plan> plans_;
  std::set<Degrees> found_;
  std::int64_t num_evaluated_ = 0, num_played_ = 0, num_stepped_ = 0, work_ = 0;
};

std::optional<Plan> in_default_order(const Plan& plan, const PlanRequest& request) {
  if (plan.choice.order == AxisOrder() || request.fixes("parallelism.order")) return std::nullopt;
  PlanChoice choice = plan.choice;
  choice.order = {};
  return evaluate(PlanSpace(request), request, choice);
}

}  // namespace

PlanResult find_fitting_plans(const PlanRequest& request) { return Search(request, true).run(request.top); }

PlanResult find_plans(const PlanRequest& request) {
  PlanResult result =
      request.objective == PlanObjective::cost ? find_cheapest_plans(request) : find_fitting_plans(request);
  if (!result.plans.empty()) {
    result.in_default_order = in_default_order(result.plans.front(), request);
    result.in_other_formats = in_other_formats(result.plans.front(), request);
    return result;
  }
  PlanResult any = Search(request, false).run(1);
  result.is_complete &= any.is_complete;
  require(!any.plans.empty(), "no layout was found with --work={} and --seconds={} (use 0 for no limit)", request.work,
          request.seconds);
  result.nearest = std::move(any.plans.front());
  result.num_evaluated += any.num_evaluated;
  result.seconds += any.seconds;
  result.suggestions = suggestions_for(request);
  return result;
}

}  // namespace echelon
