#include "engine/verify/explain.h"
#include "engine/verify/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace echelon {
namespace {

/// What differs on one rank, as places in its piece.
struct WrongPlaces {
  const RankPiece* piece = nullptr;
  std::vector<std::size_t> places;
  bool is_stale = true;  // all of them have the value of the step before

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
    if (findings_.empty()) try_shards();
    if (findings_.empty()) try_shift();
    if (findings_.empty() && is_stale_) add(FaultKind::stale_weight, "", "it has the values of the step before");
    return std::move(findings_);
  }

 private:
  void find_wrong_places(const RankPiece& piece) {
    const auto& expected = at_.reference.weight(difference_.step, difference_.tensor);
    const auto& before = at_.reference.weight(std::max<std::int64_t>(0, difference_.step - 1), difference_.tensor);
    WrongPlaces wrong;
    wrong.piece = &piece;
    double worst = 0;
    for (std::size_t i = 0; i < piece.numbers.size(); ++i)
      worst = std::max(worst, std::abs(piece.numbers[i] - expected[static_cast<std::size_t>(piece.indices[i])]));
    if (std::ranges::find(difference_.ranks, piece.rank, &RankDifference::rank) == difference_.ranks.end()) return;
    for (std::size_t i = 0; i < piece.numbers.size(); ++i) {
      const auto index = static_cast<std::size_t>(piece.indices[i]);
      if (std::abs(piece.numbers[i] - expected[index]) <= 1e-6 * worst) continue;  // rounding
      const double moved = std::abs(expected[index] - before[index]);
      wrong.places.push_back(i);
      wrong.is_stale = wrong.is_stale && difference_.step > 0 && std::abs(piece.numbers[i] - before[index]) <= at_.precision * moved;
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
        fmt::format("the copy of the tied weight for the {} {}, while the other one is right", is_head ? "head" : "embedding",
                    is_stale_ ? "has the values of the step before" : "has other values"));
  }

  /// The owned piece of the shard on the ranks that differ from the piece's in dp_shard alone: the owners of the gradient are the shards.
  [[nodiscard]] const RankPiece* shard_of(const WrongPlaces& wrong, int shard) const {
    for (const int rank : at_.mesh().ranks_of({AxisSet{Axis::dp_shard}}, wrong.piece->rank))
      for (const RankPiece& piece : owned_.pieces)
        if (piece.rank == rank && at_.mesh().coordinate(rank, Axis::dp_shard) == shard && !piece.indices.empty()) return &piece;
    return nullptr;
  }

  // What begins or ends at the borders of shards is a matter of them.
  void try_shards() {
    for (int shard = 0; shard < at_.mesh().degree(Axis::dp_shard) && at_.mesh().degree(Axis::dp_shard) > 1 && findings_.empty(); ++shard) try_shard(shard);
  }

  void try_shard(int shard) {
    bool is_inside = true, owner_is_right = true, at_begin = true, at_end = true;
    for (const WrongPlaces& wrong : wrong_) {
      const RankPiece* piece = shard_of(wrong, shard);
      is_inside = is_inside && piece && piece->indices.front() <= wrong.first() && wrong.last() <= piece->indices.back();
      if (!is_inside) return;
      owner_is_right = owner_is_right && wrong.piece->rank != piece->rank;
      at_begin = at_begin && wrong.first() == piece->indices.front();
      at_end = at_end && wrong.last() == piece->indices.back();
    }
    const WrongPlaces& wrong = wrong_.front();
    const RankPiece& piece = *shard_of(wrong, shard);
    const char* state = is_stale_ ? "have the values of the step before" : "have other values";
    if (owner_is_right) {
      add(is_stale_ ? FaultKind::stale_weight : FaultKind::missing_gather, "dp_shard",
          fmt::format("the elements of shard {} {} on ranks that do not own it: it was not gathered", shard, state));
    } else if (at_begin && at_end) {
      add(is_stale_ ? FaultKind::stale_weight : FaultKind::wrong_boundary, "dp_shard",
          fmt::format("exactly the elements of shard {}, {} to {}, {}", shard, piece.indices.front(), piece.indices.back(), state));
    } else if (at_begin || at_end) {
      add(FaultKind::wrong_boundary, "dp_shard",
          fmt::format("shard {} has elements {} to {} of it on rank {}; {} to {}, {} of them {} its border, {}", shard, piece.indices.front(),
                      piece.indices.back(), piece.rank, wrong.first(), wrong.last(), wrong.places.size(), at_begin ? "from" : "up to", state));
    }
  }

  // Initial values that lie elsewhere in the tensor: a slice that was cut at another place.
  void try_shift() {
    if (difference_.step > 0) return;
    const auto& expected = at_.reference.weight(0, difference_.tensor);
    const auto size = static_cast<std::int64_t>(expected.size());
    for (std::int64_t distance = 1; distance < size; ++distance)
      for (const std::int64_t shift : {distance, -distance}) {
        const bool fits = std::ranges::all_of(wrong_, [&](const WrongPlaces& wrong) {
          std::size_t inside = 0;
          for (const std::size_t place : wrong.places) {
            const std::int64_t from = wrong.piece->indices[place] + shift;
            if (from < 0 || from >= size) continue;
            if (expected[static_cast<std::size_t>(from)] != wrong.piece->numbers[place]) return false;
            ++inside;
          }
          return 2 * inside > wrong.places.size();
        });
        if (!fits) continue;
        add(FaultKind::wrong_boundary, at_.mesh().degree(Axis::tp) > 1 ? "tp" : "",
            fmt::format("the slice has the values that belong {} elements {}", distance, shift > 0 ? "behind" : "before"));
        return;
      }
  }

  void add(FaultKind kind, const std::string& axis, const std::string& evidence) {
    const std::string when = difference_.step == 0 ? "initial values" : fmt::format("weights after step {}", difference_.step);
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

std::vector<Finding> explain_weight(const Case& at, const Difference& difference) { return WeightExplainer(at, difference).explain(); }

}  // namespace echelon
