// Explains the squared norm of the layout minus that of one rank as multiples of parameters' squares.
#include "verify/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace echelon {
namespace {

/// Which ranks own which tensor's gradient, and how many own the same elements.
class Ownership final : public RunObserver {
 public:
  Ownership(const Case& at, std::int64_t step) : mesh_(at.mesh()), reference_(at.reference), step_(step) {}

  void starts(const RankView& rank) override {
    const std::lock_guard lock(mutex_);
    visit_gradients(rank.run.model(), [&](const ParamPiece& piece) {
      const std::vector<double>& gradient = reference_.gradient(step_, piece.param.name);
      piece.slice.for_each_run([&](const Run& run) {
        if (run.local == 0) owners_[piece.param.name][run.global].insert(rank.mesh.rank());
        for (std::int64_t i = 0; piece.is_first && i < run.count; ++i)
          counted_[rank.mesh.rank()] += std::pow(gradient[static_cast<std::size_t>(run.global + i)], 2);
      });
    });
  }
  /// The largest number of ranks that differ only in `axis` and own the same elements; 1: not replicated over the axis.
  [[nodiscard]] int copies(const std::string& tensor, Axis axis) const {
    int most = 1;
    for (const auto& [first, ranks] : owners_.at(tensor))
      for (const int rank : ranks) {
        const auto along = mesh_.ranks_of({AxisSet{axis}}, rank);
        most = std::max(
            most, static_cast<int>(std::ranges::count_if(along, [&](int other) { return ranks.contains(other); })));
      }
    return most;
  }
  /// The squares counted by the ranks with the coordinate of `rank` in `axis`.
  [[nodiscard]] double counted_with(int rank, Axis axis) const {
    double sum = 0;
    for (const auto& [other, squares] : counted_)
      if (mesh_.coordinate(other, axis) == mesh_.coordinate(rank, axis)) sum += squares;
    return sum;
  }
  [[nodiscard]] double counted_on(int rank) const {
    const auto found = counted_.find(rank);
    return found == counted_.end() ? 0.0 : found->second;
  }

 private:
  const MeshShape& mesh_;
  const Reference& reference_;
  std::int64_t step_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::int64_t, std::set<int>>> owners_;  // by first element of a piece
  // Squares of one rank's gradients that a rank should count.
  std::map<int, double> counted_;
};

/// A tensor that several ranks own.
struct Replicated {
  std::string tensor;
  int copies = 1;
};

/// The name without its layer number: the same for all layers.
std::string role_of(std::string tensor) {
  std::erase_if(tensor, [](char c) { return c >= '0' && c <= '9'; });
  return tensor;
}

constexpr std::pair<const char*, Axis> axes[] = {{"tp", Axis::tp},
                                                 {"pp", Axis::pp},
                                                 {"dp_replicate", Axis::dp_replicate},
                                                 {"dp_shard", Axis::dp_shard},
                                                 {"cp", Axis::cp}};

constexpr std::size_t most_roles = 10;  // all their sets are tried

class NormExplainer {
 public:
  NormExplainer(const Case& at, const Difference& difference)
      : at_(at), step_(difference.step), rank_(difference.ranks.front().rank), owners_(at, step_) {
    run_layout({.blueprint = at.blueprint, .batches = at.batches, .num_steps = 0, .interpose = at.interpose}, owners_);
    for (const std::string& tensor : at.reference.tensors())
      for (const double number : at.reference.gradient(step_, tensor)) squares_[tensor] += number * number;
    expected_ = std::pow(at.reference.step(step_).grad_norm, 2);
    surplus_ = std::pow(at.results.at({step_, rank_}).grad_norm, 2) - expected_;
  }

  std::vector<Finding> explain() {
    for (const auto& [name, axis] : axes)
      if (at_.mesh().degree(axis) > 1) try_axis(name, axis);
    for (const std::string& tensor : at_.reference.tensors())
      if (is_near_surplus(-squares_[tensor]))
        add(FaultKind::not_counted, "", {tensor}, "its squares are missing from the norm");
    try_experts();
    for (const auto& [name, axis] : axes)
      if (at_.mesh().degree(axis) > 1 && is_near_surplus(owners_.counted_with(rank_, axis) - expected_))
        add_partial(name, fmt::format("over {}", name));
    if (findings_.empty() && is_near_surplus(owners_.counted_on(rank_) - expected_))
      add_partial(all_axes(), "over the ranks");
    return std::move(findings_);
  }

 private:
  // The squares of all experts, divided by the ranks that have some of them or features of the same, or counted on
  // every one.
  void try_experts() {
    const std::vector<LayoutAxis> of_experts = axes_of_experts(at_.config());
    if (of_experts.empty()) return;
    double sum = 0;
    std::vector<std::string> experts;
    for (const auto& [tensor, squares] : squares_) {
      if (tensor.find(".experts.") == std::string::npos) continue;
      sum += squares;
      experts.push_back(tensor);
    }
    std::ranges::sort(experts, {}, [&](const std::string& tensor) { return at_.reference.position(tensor); });
    for (const LayoutAxis& axis : of_experts) {
      const double n = axis.degree;
      if (is_near_surplus((1 / n - 1) * sum))
        add(FaultKind::mean_for_sum, axis.name, experts,
            fmt::format("the squares of experts are divided by {}, the number of ranks of {}", n, axis.name));
      if (is_near_surplus((n - 1) * sum))
        add(FaultKind::counted_twice, axis.name, experts,
            fmt::format("the squares of experts are counted {} times", n));
    }
    if (is_near_surplus(-sum))
      add(FaultKind::not_counted, of_experts.back().name, experts, "the squares of experts are missing");
  }

  // All tensors that are replicated over the axis, one of them, or those of some roles (all input norms, say).
  void try_axis(const char* name, Axis axis) {
    std::vector<Replicated> all;
    std::map<std::string, std::vector<Replicated>> by_role;
    for (const std::string& tensor : at_.reference.tensors()) {
      const int copies = owners_.copies(tensor, axis);
      if (copies == 1) continue;
      all.push_back({tensor, copies});
      by_role[role_of(tensor)].push_back({tensor, copies});
    }
    try_set(name, all);
    for (const Replicated& each : all) try_set(name, {each});
    std::vector<const std::vector<Replicated>*> roles;
    for (const auto& [role, tensors] : by_role) roles.push_back(&tensors);
    if (roles.size() > most_roles) return;
    for (unsigned chosen = 1; chosen < 1U << roles.size(); ++chosen) {
      std::vector<Replicated> set;
      for (std::size_t i = 0; i < roles.size(); ++i)
        if ((chosen >> i & 1U) != 0) set.insert(set.end(), roles[i]->begin(), roles[i]->end());
      try_set(name, set);
    }
  }

  void try_set(const char* axis, const std::vector<Replicated>& set) {
    double sum = 0;
    int copies = 0;
    std::vector<std::string> tensors;
    for (const Replicated& each : set) {
      sum += (each.copies - 1) * squares_[each.tensor];
      copies = std::max(copies, each.copies);
      tensors.push_back(each.tensor);
    }
    std::ranges::sort(tensors, {}, [&](const std::string& tensor) { return at_.reference.position(tensor); });
    if (is_near_surplus(sum)) add_repeated(axis, copies, tensors);
  }

  [[nodiscard]] bool is_near_surplus(double sum) const {
    return std::abs(sum) > 1e-9 * expected_ &&
           std::abs(surplus_ - sum) <= 1e-2 * at_.precision * std::abs(sum) + 1e-12 * expected_;
  }
  void add_repeated(const char* axis, int copies, const std::vector<std::string>& tensors) {
    add(FaultKind::counted_twice, axis, tensors,
        fmt::format("the norm's square is too large by {} times {} squares: each of the {} copies over {} is counted",
                    copies - 1, tensors.size() == 1 ? "its" : fmt::format("the {} tensors'", tensors.size()), copies,
                    axis));
  }
  [[nodiscard]] std::string all_axes() const {
    std::string names;
    for (const auto& [name, axis] : axes)
      if (at_.mesh().degree(axis) > 1) names += (names.empty() ? "" : "+") + std::string(name);
    return names;
  }
  void add_partial(const std::string& axis, const std::string& over) {
    add(FaultKind::missing_sum, axis, {},
        fmt::format("rank {} has the norm of a part of the model: the squares were not summed {}", rank_, over));
  }
  void add(FaultKind kind, const std::string& axis, const std::vector<std::string>& tensors,
           const std::string& evidence) {
    constexpr std::size_t most_names = 4;
    const std::vector<std::string> named(
        tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(std::min(most_names, tensors.size())));
    const std::string rest =
        tensors.size() > most_names ? fmt::format(" and {} more", tensors.size() - most_names) : "";
    const std::string more = tensors.size() > 1 ? fmt::format(": {}{}", fmt::join(named, ", "), rest) : "";
    findings_.push_back({.kind = kind,
                         .axis = axis,
                         .tensor = tensors.empty() ? "" : tensors.front(),
                         .where = fmt::format("gradient norm of step {}; the gradients are right", step_),
                         .evidence = evidence + more});
  }

  const Case& at_;
  std::int64_t step_;
  int rank_;  // whose norm is examined
  Ownership owners_;
  std::map<std::string, double> squares_;
  double expected_ = 0, surplus_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_norm(const Case& at, const Difference& difference) {
  return NormExplainer(at, difference).explain();
}

}  // namespace echelon
