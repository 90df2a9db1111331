// Experts over ranks: rows go to the ranks of their experts and come back (GShard, Lepikhin et al. 2020,
// arXiv:2006.16668), without padding and without dropping any (exchange_plan.h). The ranks of an expert group have all
// experts together, E / P each, and tokens of their own.
//
//     dispatch     [R, columns], ordered by expert -> [Q, columns], ordered by the rank they came from
//     give_back    the inverse; rows that are in no part of the round keep their values
//
// Each rank needs the counts of all ranks to know what it receives, so the host reads them: on a GPU it waits for the
// router once for each layer and pass.
#pragma once

#include "nn/context.h"
#include "nn/mixture/exchange_plan.h"

namespace echelon {

class ExpertExchange {
 public:
  explicit ExpertExchange(const LayerOptions& options);

  /// False where this rank has all experts.
  [[nodiscard]] bool is_needed() const { return num_ranks_ > 1; }
  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  /// This rank's experts: the first one, and how many.
  [[nodiscard]] std::int64_t first_expert() const { return rank_ * num_experts(); }
  [[nodiscard]] std::int64_t num_experts() const { return num_experts_ / num_ranks_; }
  /// Q: as many as the bound or the capacity of experts says, and no more than could ever come.
  [[nodiscard]] std::int64_t most_rows() const { return most_rows_; }

  /// of_ranks int32 [P, E + 1] = the offsets of all ranks.
  void gather(Context& context, Tensor of_ranks, Tensor offsets) const;
  /// Waits for them. Without values it is what is planned; with values it has as many rounds at least.
  [[nodiscard]] ExchangePlan plan(Context& context, Tensor of_ranks) const;

  /// Two matrices with the same rows.
  struct Matrices {
    Tensor arrived;   // [Q, columns]
    Tensor of_ranks;  // [R, columns]: of tokens of this rank
  };
  void dispatch(Context& context, const ExchangePlan& plan, int round, std::span<const Matrices> all) const;
  void give_back(Context& context, const ExchangePlan& plan, int round, std::span<const Matrices> all) const;
  /// Counts what is computed with the rows of a round.
  void count_flops(Context& context, const ExchangePlan& plan, int round, std::int64_t of_row) const;

 private:
  enum class Way : std::uint8_t { there, back };
  void exchange(Context& context, const ExchangePlan& plan, int round, std::span<const Matrices> all, Way way) const;
  [[nodiscard]] Comm& comm(Context& context) const;
  /// What is planned, before loads are known.
  [[nodiscard]] ExchangePlan planned(const Context& context) const;

  int num_ranks_, rank_;
  std::int64_t num_experts_, most_rows_, num_rows_;
  std::vector<double> shares_, kept_shares_;  // LayerOptions
};

}  // namespace echelon
