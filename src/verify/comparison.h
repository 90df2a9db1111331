// Compares a layout's values with one rank's, on every rank and every copy: error = max|a - b| / max(max|b|, floor).
// The floor of gradients is the root mean square of all gradients, since some are zero in theory. The floor of weights
// is the learning rate.
#pragma once

#include "verify/reference.h"

#include <array>
#include <optional>

namespace echelon {

/// In the order in which a step computes them. Weights of step 0 are the initial ones. `router`: what is counted of
/// experts, the losses and the biases of a mixture; by the router's weight.
enum class Quantity : std::uint8_t { loss, router, gradient, norm, weight };
inline constexpr int num_quantities = 5;
[[nodiscard]] std::string_view name_of(Quantity quantity);  // "loss", "router", ...

/// By quantity.
using Tolerances = std::array<double, num_quantities>;
/// The tolerance for rounding after some steps in "float64" or "float32".
[[nodiscard]] Tolerances tolerances_of(DType dtype);

/// Elements of a rank's piece that differ, as indices in the whole tensor.
struct RankDifference {
  int rank = 0;
  double error = 0;
  std::int64_t first = 0, last = 0, count = 0, of = 0;  // first to last, and how many of the piece's `of` elements
};

struct Difference {
  std::int64_t step = 0;
  Quantity quantity{};
  std::string tensor;  // empty: a loss or a norm
  double error = 0;
  std::vector<RankDifference> ranks;  // ascending
};

struct WorstError {
  double error = -1;  // nothing was compared
  std::string tensor;
  std::int64_t step = 0;
  int rank = 0;
};

/// The differences that each rank found, by (step, rank).
using RankResults = std::map<std::pair<std::int64_t, int>, StepResult>;
using RankRouters = std::map<std::pair<std::int64_t, int>, RouterValues>;

class Comparison final : public RunObserver {
 public:
  Comparison(const Reference& reference, const RunConfig& config, const Tolerances& tolerances)
      : reference_(reference), floor_of_weights_(config.optimizer.lr), tolerances_(tolerances) {}

  [[nodiscard]] const WorstError& worst(Quantity quantity) const { return worst_[static_cast<std::size_t>(quantity)]; }
  /// All differences above the tolerance, in the order of steps and of the forward pass. A tensor with elements that no
  /// rank owns, or that count twice, has an infinite error and no ranks.
  [[nodiscard]] std::vector<Difference> differences() const;
  [[nodiscard]] const RankResults& results() const { return results_; }
  [[nodiscard]] const RankRouters& routers() const { return routers_; }

  void starts(const RankView& rank) override;
  void has_gradients(const RankView& rank, std::int64_t step, double factor) override;
  void ended_step(const RankView& rank, std::int64_t step, const StepResult& result) override;

 private:
  struct Key {
    std::int64_t step;
    Quantity quantity;
    int position;  // position of the tensor in the forward pass
    auto operator<=>(const Key&) const = default;
  };
  void compare_routers(const RankView& rank, std::int64_t step);
  void compare_weights(const RankView& rank, std::int64_t step);
  void compare_number(const RankView& rank, Key key, double actual, double expected);
  void compare_piece(Key key, const RankView& rank, const ParamPiece& piece, double factor);
  void note(Key key, const std::string& tensor, const RankDifference& found);

  const Reference& reference_;
  double floor_of_weights_;
  Tolerances tolerances_;
  std::mutex mutex_;
  std::array<WorstError, num_quantities> worst_;
  std::map<Key, Difference> differences_;
  std::map<Key, std::int64_t> num_counted_;  // elements of the copies that count
  RankResults results_;
  RankRouters routers_;
};

}  // namespace echelon
