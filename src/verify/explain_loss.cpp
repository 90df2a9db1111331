#include "blueprint/batch_layout.h"
#include "verify/explain.h"
#include "verify/gradient/gradient_addends.h"

#include <fmt/format.h>

#include <functional>

namespace echelon {
namespace {

class LossExplainer {
 public:
  LossExplainer(const Case& at, const Difference& difference)
      : at_(at),
        step_(difference.step),
        actual_(at.results.at({step_, difference.ranks.front().rank}).loss),
        expected_(at.reference.step(step_).loss) {}

  std::vector<Finding> explain() {
    for (const LayoutAxis& axis : axes_of(at_.config())) {
      const double n = axis.degree;
      if (is_loss(n * expected_))
        add(FaultKind::repeated_sum, axis.name,
            fmt::format("it is {} times one rank's, the degree of {}", n, axis.name));
      if (is_loss(expected_ / n))
        add(FaultKind::mean_for_sum, axis.name,
            fmt::format("it is one rank's divided by {}, the degree of {}", n, axis.name));
    }
    // The loss of a part of the batch does not depend on the tensor whose gradient is computed with it.
    for (const GradientAddends& list : gradient_addends(at_, at_.reference.tensors().back(), step_)) try_subsets(list);
    return std::move(findings_);
  }

 private:
  void try_subsets(const GradientAddends& list) {
    const BatchLayout layout(at_.config());
    for (const Axis axis : {Axis::dp_replicate, Axis::dp_shard})
      if (list.has_replicas && at_.mesh().degree(axis) > 1)
        try_groups(list, std::string(name_of(axis)),
                   [&](const BatchSubset& subset) { return layout.coordinate_of(subset.replica, axis); });
    if (list.has_parts) try_groups(list, "cp", [](const BatchSubset& subset) { return subset.part; });
    if (list.has_microbatches)
      try_groups(list, "microbatches", [](const BatchSubset& subset) { return subset.microbatch; });
  }

  void try_groups(const GradientAddends& list, const std::string& axis,
                  const std::function<int(const BatchSubset&)>& group_of) {
    std::map<int, double> sums, counts;
    double all_targets = 0;
    for (std::size_t i = 0; i < list.subsets.size(); ++i) {
      sums[group_of(list.subsets[i])] += list.mean_losses[i] * list.num_targets[i];
      counts[group_of(list.subsets[i])] += list.num_targets[i];
      all_targets += list.num_targets[i];
    }
    double mean_of_means = 0;
    for (const auto& [group, sum] : sums) {
      if (counts[group] > 0) mean_of_means += sum / counts[group] / static_cast<double>(sums.size());
      if (is_loss(sum / all_targets))
        add(FaultKind::missing_sum, axis, fmt::format("it has the targets of part {} of {} alone", group, axis));
    }
    if (is_loss(mean_of_means))
      add(FaultKind::mean_of_means, axis,
          fmt::format("it is the mean of {} means, one of each part of {}, which have unequal numbers of targets",
                      sums.size(), axis));
  }

  [[nodiscard]] bool is_loss(double loss) const { return is_near(actual_ / loss, 1.0, at_.precision); }
  void add(FaultKind kind, const std::string& axis, const std::string& evidence) {
    findings_.push_back({.kind = kind,
                         .axis = axis,
                         .tensor = "",
                         .where = fmt::format("loss of step {}; the forward passes are right", step_),
                         .evidence = evidence});
  }

  const Case& at_;
  std::int64_t step_;
  double actual_, expected_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_loss(const Case& at, const Difference& difference) {
  return LossExplainer(at, difference).explain();
}

}  // namespace echelon
