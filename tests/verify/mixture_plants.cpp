#include "verify/mixture_plants.h"

#include "engine/param_pieces.h"
#include "spec/groups.h"

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

bool is_of_experts(const Param& param) { return param.name.find(".experts.") != std::string::npos; }

template <class P, class... Arguments>
Seed mixture_seed(Arguments... arguments) {
  return [=] { return std::make_unique<P>(arguments...); };
}

class ScaledExperts final : public Plant {
 public:
  explicit ScaledExperts(double factor) : factor_(factor) {}
  void begins(Place& place) override {
    if (place.action.kind != ActionKind::clip) return;
    visit_gradients(place.run->model(), [&](const ParamPiece& piece) {
      if (is_of_experts(piece.param)) place.ops.scale(piece.numbers, factor_);
    });
  }

 private:
  double factor_;
};

class AveragedInNorm final : public Plant {
 public:
  explicit AveragedInNorm(int n) : n_(n) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<SumOfSquaresArgs>();
    if (args == nullptr || place.action.kind != ActionKind::clip) return false;
    const Param* param = place.param_of(args->x);
    if (param == nullptr || !is_of_experts(*param)) return false;
    place.ops.scale(args->x, std::sqrt(1.0 / n_));
    place.ops.sum_of_squares(args->x, args->sum);
    place.ops.scale(args->x, std::sqrt(static_cast<double>(n_)));
    return true;
  }

 private:
  int n_;
};

class BiasOfOwnCounts final : public Plant {
 public:
  int times(Place& place, const Group& /*group*/, Tensor x) override {
    if (place.action.kind != ActionKind::report || x.sizes.num_dims() != 2) return 1;
    own_.resize(static_cast<std::size_t>(x.num_elements()));
    place.ops.download(own_.data(), x);
    return 1;
  }
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<BalanceExpertsArgs>();
    if (args == nullptr) return false;
    std::vector<double> all(own_.size());
    place.ops.download(all.data(), args->counts);
    place.ops.upload(args->counts, own_.data());
    place.ops.perform(operation);
    place.ops.upload(args->counts, all.data());
    return true;
  }

 private:
  std::vector<double> own_;
};

class LossOfAPart final : public Plant {
 public:
  int times(Place& place, const Group& group, Tensor /*x*/) override {
    return is_compute(place.action.kind) && (group == sequence_group || group == cp_group) ? 0 : 1;
  }
};

/// After rows of a round are put into the order in which they came, in a forward pass. A token's two rows are summed
/// after the last round.
class GivenBack : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CombineExpertsArgs>();
    if (args == nullptr || place.action.kind != ActionKind::forward) return false;
    if (args->slots.size(1) == 2) round_ = 0;
    if (args->slots.size(1) != 1) return false;
    place.ops.perform(operation);
    spoil(place, args->out);
    ++round_;
    return true;
  }

 protected:
  virtual void spoil(Place& place, Tensor rows) = 0;
  int round_ = 0;
};

class RowsInAnotherOrder final : public GivenBack {
  void spoil(Place& place, Tensor rows) override {
    if (rows.size(0) < 2) return;
    std::vector<double> values(static_cast<std::size_t>(rows.num_elements()));
    place.ops.download(values.data(), rows);
    const auto D = static_cast<std::ptrdiff_t>(rows.size(1));
    std::swap_ranges(values.begin(), values.begin() + D, values.begin() + D);
    place.ops.upload(rows, values.data());
  }
};

class LostLastRound final : public GivenBack {
  void spoil(Place& place, Tensor rows) override {
    if (round_ > 0) place.ops.fill(rows, 0.0);
  }
};

/// Nothing is written over what was sent in the last round.
class UnreturnedRows final : public GivenBack {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    if (const auto* args = operation.get_if<PermuteToExpertsArgs>();
        args != nullptr && args->slots.size(1) == 1 && place.action.kind == ActionKind::forward) {
      came_.resize(static_cast<std::size_t>(args->x.num_elements()));
      place.ops.download(came_.data(), args->x);
    }
    return GivenBack::replaces(place, operation);
  }

 private:
  void spoil(Place& place, Tensor rows) override {
    if (round_ > 0) place.ops.upload(rows, came_.data());
  }
  std::vector<double> came_;
};

class RowsOfOneAddend final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CombineExpertsArgs>();
    constexpr std::int64_t num_addends = 4;  // a token has two rows
    if (args == nullptr || args->slots.size(1) != num_addends) return false;
    std::vector<std::int32_t> slots(static_cast<std::size_t>(args->slots.num_elements()));
    place.ops.download(slots.data(), args->slots);
    for (std::int64_t row = 0; row < args->out.size(0); ++row)
      place.ops.copy(args->out.rows(row, 1), args->y.rows(slots[static_cast<std::size_t>(row * num_addends)], 1));
    return true;
  }
};

class CountedByRecomputation final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CountExpertsArgs>();
    if (args == nullptr || !args->num_nan.exists()) return false;
    for (int i = 0; i < 2; ++i) place.ops.perform(operation);
    return true;
  }
};

class WrongChoices final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<ChooseExpertsArgs>();
    if (args == nullptr || place.action.kind != ActionKind::forward) return false;
    place.ops.perform(operation);
    change_second_experts(place.ops, args->experts, args->logits.size(1));
    return true;
  }
};

}  // namespace

void change_second_experts(Ops& ops, Tensor experts, std::int64_t num_experts) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(experts.num_elements()));
  ops.download(values.data(), experts);
  for (std::size_t i = 1; i < values.size(); i += 2) do
      values[i] = (values[i] + 1) % static_cast<std::int32_t>(num_experts);
    while (values[i] == values[i - 1]);
  ops.upload(experts, values.data());
}

Seed divided_experts(int n) { return mixture_seed<ScaledExperts>(1.0 / n); }
Seed multiplied_experts(int n) { return mixture_seed<ScaledExperts>(static_cast<double>(n)); }
Seed averaged_experts_in_norm(int n) { return mixture_seed<AveragedInNorm>(n); }
Seed bias_of_own_counts() { return mixture_seed<BiasOfOwnCounts>(); }
Seed loss_of_a_part() { return mixture_seed<LossOfAPart>(); }
Seed rows_in_another_order() { return mixture_seed<RowsInAnotherOrder>(); }
Seed rows_of_one_addend() { return mixture_seed<RowsOfOneAddend>(); }
Seed lost_last_round() { return mixture_seed<LostLastRound>(); }
Seed unreturned_rows() { return mixture_seed<UnreturnedRows>(); }
Seed counted_by_recomputation() { return mixture_seed<CountedByRecomputation>(); }
Seed wrong_choices() { return mixture_seed<WrongChoices>(); }

}  // namespace echelon::testing
