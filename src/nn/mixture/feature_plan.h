// Which rows ranks exchange where several have features of the same experts, and tokens of their own. Letters: EP parts
// of the experts, ETP parts of their features, P = EP ETP ranks, rank = part ETP + place; R rows that a rank sends.
//
//     across    the rank at a place sends each row to the rank at this place with the row's expert: q rows at most come
//               to a rank in a round (exchange_plan.h)
//     inside    the ETP ranks of a part give each other what has come: ETP q rows at most
//
// After their experts, rows go back inside as addends, which are summed, and then across. A rank sends
// (EP - 1) / EP R + (ETP - 1) R rows each way with even loads, of which it gets as many. Were rows sent to all ETP
// ranks of an expert directly, these would be as many, but ETP times as many would leave a node.
//
// There are as many rounds as the rank needs to which most rows come across, so memory depends on q alone.
#pragma once

#include "nn/mixture/exchange_plan.h"
#include "nn/mixture/row_parts.h"

namespace echelon {

struct FeatureSizes {
  int num_parts = 1, num_places = 1, rank = 0;  // EP, ETP, and the rank among P
  std::int64_t num_experts = 1, num_rows = 0;   // E, R
  std::int64_t most_rows = 1;                   // q

  [[nodiscard]] int part() const { return rank / num_places; }
  [[nodiscard]] int place() const { return rank % num_places; }
  /// Q.
  [[nodiscard]] std::int64_t most_gathered() const { return num_places * most_rows; }
};

/// Of one round: parts across by part, and inside by place.
struct FeatureRound {
  ExchangeRound across;
  std::vector<RowPart> given = {}, gathered = {};  // the rows that have come, to each place; and those of each place
  std::int64_t num_come = 0, num_gathered = 0;
};

class FeaturePlan {
 public:
  /// `offsets`: int32 [ETP, EP, E + 1], of every rank where the rows of each expert start.
  FeaturePlan(const FeatureSizes& sizes, std::vector<std::int32_t> offsets, int least_rounds);
  /// Before loads are known: of the rows of each rank so many go to the parts, the most loaded first; empty: even ones.
  FeaturePlan(const FeatureSizes& sizes, std::span<const double> shares);

  [[nodiscard]] int num_rounds() const { return own().num_rounds(); }
  [[nodiscard]] FeatureRound round(int index) const;
  [[nodiscard]] std::int64_t num_sent() const { return own().num_sent(); }
  [[nodiscard]] std::int64_t num_received(int round) const;

  /// Where the gathered rows of a round are when they are ordered by expert, and where each of E / EP experts starts.
  /// Empty before loads are known.
  struct Order {
    std::vector<std::int32_t> slots, offsets;
  };
  [[nodiscard]] Order order(int round) const;
  /// [num_come, ETP]: where the addends of each row are, place by place.
  [[nodiscard]] std::vector<std::int32_t> addends(int round) const;

 private:
  [[nodiscard]] const ExchangePlan& own() const { return places_[static_cast<std::size_t>(sizes_.place())]; }
  void take_rounds(int at_least);

  FeatureSizes sizes_;
  std::vector<std::int32_t> offsets_;
  std::vector<ExchangePlan> places_;  // of this part's rank at each place
};

}  // namespace echelon
