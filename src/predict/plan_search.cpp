// Best first: a heap of sets of layouts by their bounds. The first one is taken apart or bounded better, until a layout that was timed comes first; nothing
// that is left can be better than it. So the answer is that of timing all.
#include "base/clock.h"
#include "predict/layout_steps.h"
#include "predict/plan.h"
#include "predict/plan_bounds.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

namespace echelon {
namespace {

enum class Grade : std::uint8_t { shape, pipeline, any_order, layout, played, stepped, timed };

/// What is to be least comes first; of layouts that are equal in both the one with the earlier order.
struct Key {
  double first = 0, second = 0;
  std::int64_t order = 0;
  auto operator<=>(const Key&) const = default;
};
constexpr double rounding_of_bounds = 1 - 1e-9;  // their sums are formed in another order than the simulator's

using Degrees = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

/// A set of layouts: all that have the shape; or the pipeline and one of the recomputations of `chain`, of which `choice` has the first; or all but
/// an order; or one layout.
struct Node {
  Key key;
  Grade grade{};
  PlanChoice choice;
  std::vector<PlanRecompute> chain = {};  // faster ones first
  std::int64_t plan = -1;                 // timed: which
};

struct HeapEntry {
  Key key;
  std::unique_ptr<Node> node;
};

/// The lowest key comes out first.
class Heap {
 public:
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] const HeapEntry& top() const { return entries_.front(); }
  void push(Node node) {
    entries_.push_back({node.key, std::make_unique<Node>(std::move(node))});
    std::push_heap(entries_.begin(), entries_.end(), comes_later);
  }
  std::unique_ptr<Node> pop() {
    std::pop_heap(entries_.begin(), entries_.end(), comes_later);
    std::unique_ptr<Node> node = std::move(entries_.back().node);
    entries_.pop_back();
    return node;
  }

 private:
  static bool comes_later(const HeapEntry& a, const HeapEntry& b) { return a.key > b.key; }
  std::vector<HeapEntry> entries_;
};

class Search {
 public:
  explicit Search(const PlanRequest& request, bool must_fit)
      : request_(request),
        must_fit_(must_fit),
        space_(request),
        bounds_(space_, request),
        steps_(space_, request, bounds_.costs()),
        device_bytes_(most_device_bytes(request.machine)) {}

  PlanResult run(int wanted) {
    const double start = now_seconds();
    PlanResult result;
    result.num_configurations = space_.num_configurations();
    for (const PlanShape& shape : space_.shapes()) push({key(bounds_.shape_seconds(shape), 0), Grade::shape, {.shape = shape}});
    while (static_cast<int>(result.plans.size()) < wanted) {
      drop_found(heap_);
      drop_found(timed_);
      if (heap_.empty() && timed_.empty()) break;
      if (timed_.empty() || (!heap_.empty() && is_behind(timed_.top().key, heap_.top().key))) {
        expand(*heap_.pop());
        continue;
      }
      const Node& best = *timed_.top().node;
      if (result.plans.empty() && !heap_.empty()) result.within = std::max(0.0, 1 - heap_.top().key.first / best.key.first);
      found_.insert(degrees_of(best.choice.shape));
      result.plans.push_back(std::move(plans_[static_cast<std::size_t>(best.plan)]));
    }
    result.num_evaluated = num_evaluated_;
    result.num_played = num_played_;
    result.num_stepped = num_stepped_;
    result.seconds = now_seconds() - start;
    return result;
  }

 private:
  void drop_found(Heap& heap) const {
    while (!heap.empty() && found_.contains(degrees_of(heap.top().node->choice.shape))) heap.pop();
  }

  /// Whether something that is not timed yet may be better by more than is asked for.
  [[nodiscard]] bool is_behind(const Key& timed, const Key& bound) const {
    return request_.within > 0 ? bound.first < timed.first * (1 - request_.within) : bound < timed;
  }

  static Degrees degrees_of(const PlanShape& shape) { return {shape.tp, shape.pp, shape.dp}; }

  static std::int64_t most_device_bytes(const MachineSpec& machine) {
    std::int64_t most = 0;
    for (const NodeSpec& node : machine.nodes) most = std::max(most, node.device.memory_bytes);
    return most;
  }

  [[nodiscard]] Key key(double seconds, std::int64_t bytes) const {
    return memory_first() ? Key{static_cast<double>(bytes), seconds} : Key{seconds, static_cast<double>(bytes)};
  }
  [[nodiscard]] bool may_fit(std::int64_t bytes) const { return !must_fit_ || bytes <= device_bytes_; }

  void push(Node node) { heap_.push(std::move(node)); }
  void push(Grade grade, const PlanChoice& choice, double seconds, std::int64_t bytes) { push(layout_node(grade, choice, seconds, bytes)); }
  [[nodiscard]] Node layout_node(Grade grade, const PlanChoice& choice, double seconds, std::int64_t bytes) const {
    Node node = {key(seconds, bytes), grade, choice};
    const std::vector<AxisOrder>& orders = space_.orders(choice.shape, choice.data);
    node.key.order = std::find(orders.begin(), orders.end(), choice.order) - orders.begin();
    return node;
  }

  void expand(const Node& node) {
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
      // Those of the same operations come one after the other, with more and more blocks: each is slower and keeps less.
      const std::vector<PlanRecompute> all = space_.recomputes(pipeline);
      for (auto first = all.begin(); first != all.end();) {
        const auto end = std::find_if(first, all.end(), [&](const PlanRecompute& each) { return each.operations != first->operations; });
        const auto fits = [&](const PlanRecompute& each) { return may_fit(bounds_.bytes().of_any_schedule({shape, pipeline, each})); };
        push_pipeline({shape, pipeline, {}, {}}, {first, end}, fits);
        first = end;
      }
    }
  }

  [[nodiscard]] bool memory_first() const { return request_.objective == PlanObjective::memory || !must_fit_; }

  /// The layouts with the recomputations of `chain`, without those at its begin of which none fits.
  template <class Fits>
  void push_pipeline(const PlanChoice& choice, std::vector<PlanRecompute> chain, const Fits& fits) {
    const auto first = must_fit_ ? std::partition_point(chain.begin(), chain.end(), [&](const PlanRecompute& each) { return !fits(each); }) : chain.begin();
    chain.erase(chain.begin(), first);
    if (chain.empty()) return;
    Node node = {.key = {}, .grade = Grade::pipeline, .choice = choice};
    node.choice.recompute = chain.front();
    const double seconds = bounds_.pipeline_seconds({choice.shape, choice.pipeline, chain.front()});
    node.key = key(seconds, memory_first() ? bounds_.bytes().of_any_schedule({choice.shape, choice.pipeline, chain.back()}) : 0);
    node.chain = std::move(chain);
    push(std::move(node));
  }

  /// The first layouts of a chain whose schedule says that they fit, one for each way of the data axes; the rest of the chain stays a node.
  void expand_pipeline(const Node& node) {
    PlanChoice choice = node.choice;
    const auto fits = [&](const PlanRecompute& each) { return may_fit(bounds_.bytes().of_pipeline({choice.shape, choice.pipeline, each})); };
    if (!fits(node.chain.front())) return push_pipeline(choice, node.chain, fits);
    const std::size_t num_taken = memory_first() ? node.chain.size() : 1;  // the last ones keep least
    for (std::size_t i = 0; i < num_taken; ++i) {
      choice.recompute = node.chain[i];
      for (const PlanData& data : space_.data_layouts(choice.shape)) {
        choice.data = data;
        const std::int64_t bytes = bounds_.bytes().of_layout(choice);
        if (may_fit(bytes)) push({key(bounds_.seconds_of_any_order(choice), bytes), Grade::any_order, choice});
      }
    }
    if (num_taken < node.chain.size()) push_pipeline(node.choice, {node.chain.begin() + 1, node.chain.end()}, [](const PlanRecompute&) { return true; });
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
    push(Grade::played, node.choice, bounds_.seconds(node.choice, true), bounds_.bytes().of_layout(node.choice));
  }

  void step(const Node& node) {
    const std::optional<LayoutStep> step = steps_.play(node.choice);
    if (!step) return time(node);
    ++num_stepped_;
    if (may_fit(step->live_bytes))
      push(Grade::stepped, node.choice, step->is_exact ? comparable(step->seconds) : rounding_of_bounds * step->seconds, step->live_bytes);
  }

  void time(const Node& node) {
    ++num_evaluated_;
    Plan plan = evaluate(space_, request_, node.choice);
    if (must_fit_ && !plan.outcome.fits()) return;
    Node timed = layout_node(Grade::timed, node.choice, comparable(plan.outcome.step_seconds), plan.outcome.peak_memory_bytes());
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
  std::int64_t num_evaluated_ = 0, num_played_ = 0, num_stepped_ = 0;
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
  PlanResult result = request.objective == PlanObjective::cost ? find_cheapest_plans(request) : find_fitting_plans(request);
  if (!result.plans.empty()) {
    result.in_default_order = in_default_order(result.plans.front(), request);
    return result;
  }
  PlanResult any = Search(request, false).run(1);
  result.nearest = std::move(any.plans.front());
  result.num_evaluated += any.num_evaluated;
  result.seconds += any.seconds;
  result.mends = mends_of(request);
  return result;
}

}  // namespace echelon
