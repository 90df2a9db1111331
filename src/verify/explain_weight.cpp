#include "engine/lr_schedule.h"
#include "spec/groups.h"
#include "verify/explain.h"
#include "verify/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace echelon {
namespace {

/// The elements that differ on one rank, as indices in its piece.
struct WrongPlaces {
  const RankPiece* piece = nullptr;
  std::vector<std::size_t> places;
  bool is_stale = true;  // all of them have the value of the previous step

  [[nodiscard]] std::int64_t first() const { return piece->indices[places.front()]; }
  [[nodiscard]] std::int64_t last() const { return piece->indices[places.back()]; }
};

class WeightExplainer {
 public:
  WeightExplainer(const Case& at, const Difference& difference) : at_(at), difference_(difference) {
    values_ = pieces_of(at, difference.tensor, Quantity::weight, difference.step);
    if (difference.step > 0) owned_ = pieces_of(at, difference.tensor, Quantity::gradient, difference.step);
    for (const RankPiece& piece : values_.pieces) find_wrong_places(piece);
  }

  std::vector<Finding> explain() {
    if (wrong_.empty()) return {};
    is_stale_ = std::ranges::all_of(wrong_, &WrongPlaces::is_stale);
    try_tied();
    if (findings_.empty() && !is_stale_) try_shift();
    if (findings_.empty()) try_shards();
    if (findings_.empty() && is_stale_)
      add(FaultKind::stale_weight, axis_of_ranks(), "it has the values of the step before");
    return std::move(findings_);
  }

 private:
  void find_wrong_places(const RankPiece& piece) {
    const auto& expected = at_.reference.weight(difference_.step, difference_.tensor);
    const auto& before = at_.reference.weight(std::max<std::int64_t>(0, difference_.step - 1), difference_.tensor);
    WrongPlaces wrong;
    wrong.piece = &piece;
    double worst = 0;
    for (std::size_t i = 0; i < piece.values.size(); ++i)
      worst = std::max(worst, std::abs(piece.values[i] - expected[static_cast<std::size_t>(piece.indices[i])]));
    if (std::ranges::find(difference_.ranks, piece.rank, &RankDifference::rank) == difference_.ranks.end()) return;
    for (std::size_t i = 0; i < piece.values.size(); ++i) {
      const auto index = static_cast<std::size_t>(piece.indices[i]);
      if (std::abs(piece.values[i] - expected[index]) <= 1e-6 * worst) continue;  // rounding
      const double moved = std::abs(expected[index] - before[index]);
      wrong.places.push_back(i);
      wrong.is_stale =
          wrong.is_stale && difference_.step > 0 && std::abs(piece.values[i] - before[index]) <= at_.precision * moved;
    }
    if (!wrong.places.empty()) wrong_.push_back(std::move(wrong));
  }

  void try_tied() {
    const MeshShape& mesh = at_.mesh();
    if (!at_.config().model.tie_word_embeddings || mesh.degree(Axis::pp) == 1 || values_.pieces.empty()) return;
    std::set<int> holders, wrong;
    for (const RankPiece& piece : values_.pieces) holders.insert(mesh.coordinate(piece.rank, Axis::pp));
    for (const WrongPlaces& each : wrong_) wrong.insert(mesh.coordinate(each.piece->rank, Axis::pp));
    if (holders.size() < 2 || wrong.size() == holders.size()) return;
    const bool is_head = !wrong.contains(*holders.begin());
    add(FaultKind::stale_tied_weight, "pp",
        fmt::format("the copy of the tied weight for the {} {}, while the other one is right",
                    is_head ? "head" : "embedding",
                    is_stale_ ? "has the values of the step before" : "has other values"));
  }

  /// The owned piece of the shard on the ranks that are in the shard group of the piece's: the owners of the gradient
  /// are the shards.
  [[nodiscard]] const RankPiece* shard_of(const WrongPlaces& wrong, int shard) const {
    for (const int rank : at_.mesh().ranks_of(shard_group, wrong.piece->rank))
      for (const RankPiece& piece : owned_.pieces)
        if (piece.rank == rank && at_.mesh().place_in(shard_group, rank).index == shard && !piece.indices.empty())
          return &piece;
    return nullptr;
  }

  // Differences that start or end at boundaries of shards are faults of these boundaries.
  void try_shards() {
    const int num_shards = at_.mesh().group_size(shard_group, 0);
    for (int shard = 0; shard < num_shards && num_shards > 1 && findings_.empty(); ++shard) try_shard(shard);
  }

  void try_shard(int shard) {
    bool is_inside = true, owner_is_right = true, at_start = true, at_end = true, is_part = true;
    for (const WrongPlaces& wrong : wrong_) {
      const RankPiece* piece = shard_of(wrong, shard);
      is_inside =
          is_inside && piece && piece->indices.front() <= wrong.first() && wrong.last() <= piece->indices.back();
      if (!is_inside) return;
      is_part = is_part && piece->indices.size() < wrong.piece->indices.size();
      owner_is_right = owner_is_right && wrong.piece->rank != piece->rank;
      at_start = at_start && wrong.first() == piece->indices.front();
      at_end = at_end && wrong.last() == piece->indices.back();
    }
    const WrongPlaces& wrong = wrong_.front();
    const RankPiece& piece = *shard_of(wrong, shard);
    const char* state = is_stale_ ? "have the values of the step before" : "have other values";
    if (owner_is_right) {
      add(is_stale_ ? FaultKind::stale_weight : FaultKind::missing_gather, shard_axes_of(at_.mesh()),
          fmt::format("the elements of shard {} {} on ranks that do not own it: it was not gathered", shard, state));
    } else if (!is_part) {  // the shard has the whole tensor: its boundaries explain nothing
    } else if (at_start && at_end) {
      add(is_stale_ ? FaultKind::stale_weight : FaultKind::wrong_boundary, shard_axes_of(at_.mesh()),
          fmt::format("exactly the elements of shard {}, {} to {}, {}", shard, piece.indices.front(),
                      piece.indices.back(), state));
    } else if (at_start || at_end) {
      add(FaultKind::wrong_boundary, shard_axes_of(at_.mesh()),
          fmt::format("shard {} has elements {} to {} of it on rank {}; {} to {}, {} of them {} its boundary, {}",
                      shard, piece.indices.front(), piece.indices.back(), piece.rank, wrong.first(), wrong.last(),
                      wrong.places.size(), at_start ? "from" : "up to", state));
    }
  }

  // Values or updates that belong to other elements: slices and shards with wrong boundaries or places.
  void try_shift() {
    const auto& expected = at_.reference.weight(difference_.step, difference_.tensor);
    if (try_shift_of("the values", expected, [](double value, std::size_t) { return value; }) || difference_.step == 0)
      return;
    const auto& before = at_.reference.weight(difference_.step - 1, difference_.tensor);
    const double lr = learning_rate(at_.config(), difference_.step);
    for (const double decay : {at_.config().optimizer.weight_decay, 0.0}) {
      const auto update_of = [&](double value, std::size_t index) { return value - (1 - lr * decay) * before[index]; };
      Values updates;
      for (std::size_t i = 0; i < expected.size(); ++i) updates.push_back(update_of(expected[i], i));
      if (try_shift_of("the updates", updates, update_of)) return;
    }
  }

  bool try_shift_of(const char* what, const Values& expected,
                    const std::function<double(double value, std::size_t index)>& of) {
    double most = 0;
    for (const double number : expected) most = std::max(most, std::abs(number));
    std::int64_t shift = 0;
    for (const WrongPlaces& wrong : wrong_) {
      RankPiece piece = *wrong.piece;
      for (std::size_t i = 0; i < piece.values.size(); ++i)
        piece.values[i] = of(piece.values[i], static_cast<std::size_t>(piece.indices[i]));
      const std::int64_t found = shift_of(piece, wrong.places, expected, most * at_.precision * 1e-2);
      if (found == 0 || (shift != 0 && found != shift)) return false;
      shift = found;
    }
    add(FaultKind::wrong_boundary, axis_of_ranks(),
        fmt::format("from element {} on it has {} that belong {} elements {}", wrong_.front().first(), what,
                    std::abs(shift), shift > 0 ? "behind" : "before"));
    return true;
  }

  // The axis whose coordinate separates wrong ranks from right ranks.
  [[nodiscard]] std::string axis_of_ranks() const {
    for (const auto& [name, axis] : {std::pair{"dp_replicate", Axis::dp_replicate},
                                     {"dp_shard", Axis::dp_shard},
                                     {"cp", Axis::cp},
                                     {"tp", Axis::tp},
                                     {"pp", Axis::pp}}) {
      std::set<int> wrong, right;
      for (const RankPiece& piece : values_.pieces) {
        const bool is_wrong =
            std::ranges::any_of(wrong_, [&](const WrongPlaces& each) { return each.piece->rank == piece.rank; });
        (is_wrong ? wrong : right).insert(at_.mesh().coordinate(piece.rank, axis));
      }
      if (!right.empty() && std::ranges::none_of(wrong, [&](int coordinate) { return right.contains(coordinate); }))
        return name;
    }
    return "";
  }

  void add(FaultKind kind, const std::string& axis, const std::string& evidence) {
    const std::string when =
        difference_.step == 0 ? "initial values" : fmt::format("weights after step {}", difference_.step);
    findings_.push_back({.kind = kind,
                         .axis = axis,
                         .tensor = difference_.tensor,
                         .where = fmt::format("{}, {}", when, describe_place(at_, difference_)),
                         .evidence = evidence});
  }

  const Case& at_;
  const Difference& difference_;
  TensorPieces values_, owned_;
  std::vector<WrongPlaces> wrong_;
  bool is_stale_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_weight(const Case& at, const Difference& difference) {
  return WeightExplainer(at, difference).explain();
}

}  // namespace echelon
