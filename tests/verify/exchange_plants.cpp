#include "verify/exchange_plants.h"

#include "spec/groups.h"

#include <algorithm>

namespace echelon::testing {
namespace {

bool is_of_context(const Place& place, const Group& group) {
  return is_compute(place.action.kind) && group.axes == AxisSet{Axis::cp};
}

std::vector<double> values_of(const Place& place, const Tensor& x) {
  std::vector<double> values(static_cast<std::size_t>(x.num_elements()));
  place.ops.download(values.data(), x);
  return values;
}

// Gathers come in the order of the kv heads, keys before values.
class GatheredKeys final : public Plant {
 public:
  GatheredKeys(InPlace in_place, int distance, bool is_backward)
      : in_place_(in_place), distance_(distance), is_backward_(is_backward) {}
  void begins(Place& /*place*/) override { num_gathers_ = 0; }
  void gathered(Place& place, const Group& group, Tensor x) override {
    if (!is_of_context(place, group) || (place.action.kind != ActionKind::forward) != is_backward_) return;
    const int n = static_cast<int>(x.size(0)), own = place.coordinate(Axis::cp);
    const Tensor part = x.rows((own - distance_ + n) % n, 1);
    const auto which = static_cast<std::size_t>(num_gathers_++ % 2);
    const std::vector<double> now = values_of(place, part);
    if (in_place_ == InPlace::zeros) place.ops.fill(part, 0);
    if (in_place_ == InPlace::own) place.ops.copy(part, x.rows(own, 1));
    if (in_place_ == InPlace::keys_before && num_gathers_ > 2) place.ops.upload(part, before_[which].data());
    before_[which] = now;
  }

 private:
  InPlace in_place_;
  int distance_;
  bool is_backward_;
  int num_gathers_ = 0;  // in this action
  std::array<std::vector<double>, 2> before_;
};

class LostKeyRows final : public Plant {
 public:
  void received(Place& place, const Action& action, Tensor x) override {
    if (action.kind == ActionKind::forward) place.ops.fill(x, 0);
  }
};

// By a collective, or where rows travel alone by a sum of the parts that arrived.
class MissingGradients final : public Plant {
 public:
  explicit MissingGradients(int distance) : distance_(distance) {}
  int times(Place& place, const Group& group, Tensor x) override {
    if (!is_of_context(place, group) || x.size(0) != place.mesh.shape().degree(Axis::cp)) return 1;
    if (distance_ == 0) return 0;
    const int n = static_cast<int>(x.size(0));
    place.ops.fill(x.rows((place.coordinate(Axis::cp) - distance_ + n) % n, 1), 0);
    return 1;
  }
  bool replaces(Place& place, const Operation& operation) override {
    const auto* join = operation.get_if<JoinHeadsArgs>();
    const int n = place.mesh.shape().degree(Axis::cp), own = place.coordinate(Axis::cp);
    if (join == nullptr || join->copies != n || n == 1) return false;
    for (int part = 0; part < n; ++part)
      if (distance_ == 0 ? part != own : part == (own + distance_) % n) place.ops.fill(join->x.rows(part, 1), 0);
    return false;
  }

 private:
  int distance_;
};

class GradientsOfNextRank final : public Plant {
 public:
  int times(Place& place, const Group& group, Tensor x) override {
    return is_of_context(place, group) && x.size(0) == place.mesh.shape().degree(Axis::cp) ? scattered_later : 1;
  }
  void scattered(Place& place, Tensor shard, Tensor full) override {
    place.ops.copy(shard, full.rows((place.coordinate(Axis::cp) + 1) % full.size(0), 1));
  }
};

// Forward exchanges queries, keys and values, and then the result, which comes home.
class LostPartOfExchange final : public Plant {
 public:
  LostPartOfExchange(int from, bool comes_home) : from_(from), comes_home_(comes_home) {}
  void begins(Place& /*place*/) override { num_exchanges_ = 0; }
  void exchanged(Place& place, const Group& group, Tensor x) override {
    if (!is_of_context(place, group) || place.action.kind != ActionKind::forward) return;
    if ((num_exchanges_++ % 4 == 3) == comes_home_) place.ops.fill(x.rows(from_, 1), 0);
  }

 private:
  int from_;
  bool comes_home_;
  int num_exchanges_ = 0;
};

class ExchangedResults final : public Plant {
 public:
  void begins(Place& /*place*/) override { num_exchanges_ = 0; }
  void exchanged(Place& place, const Group& group, Tensor x) override {
    if (!is_of_context(place, group) || place.action.kind != ActionKind::forward) return;
    if (num_exchanges_++ % 4 != 3) return;
    const std::vector<double> first = values_of(place, x.rows(0, 1));
    place.ops.copy(x.rows(0, 1), x.rows(1, 1));
    place.ops.upload(x.rows(1, 1), first.data());
  }

 private:
  int num_exchanges_ = 0;
};

class GradientsOfOneReplica final : public Plant {
 public:
  explicit GradientsOfOneReplica(int replica) : replica_(replica) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* join = operation.get_if<JoinHeadsArgs>();
    if (join == nullptr || join->copies == 1) return false;
    for (std::int64_t part = 0; part < join->x.size(0); ++part)
      if (part % join->copies != replica_) place.ops.fill(join->x.rows(part, 1), 0);
    return false;
  }

 private:
  int replica_;
};

template <class P, class... Args>
Seed exchange_seed_of(Args... args) {
  return [=] { return std::make_unique<P>(args...); };
}

}  // namespace

Seed gathered_keys(InPlace in_place, int distance, bool is_backward) {
  return exchange_seed_of<GatheredKeys>(in_place, distance, is_backward);
}
Seed lost_key_rows() { return exchange_seed_of<LostKeyRows>(); }
Seed missing_gradients(int distance) { return exchange_seed_of<MissingGradients>(distance); }
Seed gradients_of_next_rank() { return exchange_seed_of<GradientsOfNextRank>(); }
Seed lost_part_of_exchange(int from, bool comes_home) { return exchange_seed_of<LostPartOfExchange>(from, comes_home); }
Seed exchanged_results() { return exchange_seed_of<ExchangedResults>(); }
Seed gradients_of_one_replica(int replica) { return exchange_seed_of<GradientsOfOneReplica>(replica); }

}  // namespace echelon::testing
