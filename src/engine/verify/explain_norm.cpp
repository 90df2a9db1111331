// The norm of the layout squared less that of one rank: which parameters' squares, how often, is that?
#include "engine/verify/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace echelon {
namespace {

/// Which ranks own which tensor's gradient, and how many of them the same numbers.
class Ownership final : public RunWatcher {
 public:
  explicit Ownership(const MeshShape& mesh) : mesh_(mesh) {}

  void starts(const RankView& rank) override {
    const std::lock_guard lock(mutex_);
    visit_gradients(rank.run.model(), [&](const ParamPiece& piece) {
      if (const std::int64_t first = global_index(piece.param, piece.local.first); first >= 0) owners_[piece.param.name][first].insert(rank.mesh.rank());
    });
  }
  /// The most ranks that differ in `axis` alone and own the same numbers; 1: it is not replicated over the axis.
  [[nodiscard]] int copies(const std::string& tensor, Axis axis) const {
    int most = 1;
    for (const auto& [first, ranks] : owners_.at(tensor))
      for (const int rank : ranks) {
        const auto along = mesh_.ranks_of({AxisSet{axis}}, rank);
        most = std::max(most, static_cast<int>(std::ranges::count_if(along, [&](int other) { return ranks.contains(other); })));
      }
    return most;
  }
  /// Pipeline ranks that own some of it.
  [[nodiscard]] bool is_on(const std::string& tensor, int pp) const {
    for (const auto& [first, ranks] : owners_.at(tensor))
      for (const int rank : ranks)
        if (mesh_.coordinate(rank, Axis::pp) == pp) return true;
    return false;
  }

 private:
  const MeshShape& mesh_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::int64_t, std::set<int>>> owners_;  // by first element of a piece
};

/// A tensor that some ranks own alike.
struct Replicated {
  std::string tensor;
  int copies = 1;
};

/// The name without its numbers: the same for all layers.
std::string role_of(std::string tensor) {
  std::erase_if(tensor, [](char c) { return c >= '0' && c <= '9'; });
  return tensor;
}

constexpr std::size_t most_roles = 10;  // all their sets are tried

class NormExplainer {
 public:
  NormExplainer(const Case& at, const Difference& difference) : at_(at), step_(difference.step), owners_(at.mesh()) {
    run_layout({.blueprint = at.blueprint, .batches = at.batches, .num_steps = 0, .interpose = at.interpose}, owners_);
    for (const std::string& tensor : at.reference.tensors())
      for (const double number : at.reference.gradient(step_, tensor)) squares_[tensor] += number * number;
    expected_ = std::pow(at.reference.step(step_).grad_norm, 2);
    surplus_ = std::pow(at.results.at(step_).grad_norm, 2) - expected_;
  }

  std::vector<Finding> explain() {
    constexpr std::pair<const char*, Axis> axes[] = {{"tp", Axis::tp}, {"pp", Axis::pp}, {"dp_replicate", Axis::dp_replicate}, {"dp_shard", Axis::dp_shard}};
    for (const auto& [name, axis] : axes)
      if (at_.mesh().degree(axis) > 1) try_axis(name, axis);
    for (const std::string& tensor : at_.reference.tensors())
      if (is_near_surplus(-squares_[tensor])) add(FaultKind::not_counted, "", {tensor}, "its squares are missing from the norm");
    if (at_.mesh().degree(Axis::pp) > 1) try_stages();
    return std::move(findings_);
  }

 private:
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

  void try_stages() {
    for (int stage = 0; stage < at_.mesh().degree(Axis::pp); ++stage) {
      double sum = 0;
      for (const std::string& tensor : at_.reference.tensors()) sum += owners_.is_on(tensor, stage) ? squares_[tensor] : 0.0;
      if (is_near_surplus(sum - expected_))
        add(FaultKind::missing_sum, "pp", {}, fmt::format("it is the norm of what lies on pipeline rank {} alone: the squares were not summed over pp", stage));
    }
  }

  [[nodiscard]] bool is_near_surplus(double sum) const {
    return std::abs(sum) > 1e-9 * expected_ && std::abs(surplus_ - sum) <= 1e-2 * at_.precision * std::abs(sum) + 1e-12 * expected_;
  }
  void add_repeated(const char* axis, int copies, const std::vector<std::string>& tensors) {
    add(FaultKind::counted_twice, axis, tensors,
        fmt::format("the norm's square is too large by {} times {} squares: each of the {} copies over {} is counted", copies - 1,
                    tensors.size() == 1 ? "its" : fmt::format("the {} tensors'", tensors.size()), copies, axis));
  }
  void add(FaultKind kind, const std::string& axis, const std::vector<std::string>& tensors, const std::string& evidence) {
    constexpr std::size_t most_names = 4;
    const std::vector<std::string> named(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(std::min(most_names, tensors.size())));
    const std::string rest = tensors.size() > most_names ? fmt::format(" and {} more", tensors.size() - most_names) : "";
    const std::string more = tensors.size() > 1 ? fmt::format(": {}{}", fmt::join(named, ", "), rest) : "";
    findings_.push_back({.kind = kind,
                         .axis = axis,
                         .tensor = tensors.empty() ? "" : tensors.front(),
                         .where = fmt::format("gradient norm of step {}; the gradients are right", step_),
                         .evidence = evidence + more});
  }

  const Case& at_;
  std::int64_t step_;
  Ownership owners_;
  std::map<std::string, double> squares_;
  double expected_ = 0, surplus_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_norm(const Case& at, const Difference& difference) { return NormExplainer(at, difference).explain(); }

}  // namespace echelon
