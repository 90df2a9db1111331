#include "verify/ring_plants.h"

#include "nn/decoder/rope_tables.h"
#include "spec/groups.h"

#include <algorithm>
#include <cmath>

namespace echelon::testing {
namespace {

int cp_of(const Place& place) { return place.mesh.shape().degree(Axis::cp); }

/// How many blocks of keys a rank attends to, one after the other.
int blocks_of(const Place& place) {
  const RankTokens* tokens = place.run->model().part().options.tokens.get();
  return tokens == nullptr ? 1 : tokens->blocks.num_blocks();
}

std::vector<double> downloaded_from(const Place& place, const Tensor& x) {
  std::vector<double> values(static_cast<std::size_t>(x.num_elements()));
  place.ops.download(values.data(), x);
  return values;
}

class PositionsFromOwnStart final : public Plant {
 public:
  explicit PositionsFromOwnStart(std::string layer) : layer_(std::move(layer)) {}
  bool replaces(Place& place, const Operation& operation) override {
    if (cp_of(place) == 1) return false;
    if (const auto* positions = operation.get_if<PositionsArgs>()) {
      PositionsArgs counted = *positions;
      counted.positions = {};
      place.ops.add_positions(counted);
      return true;
    }
    const auto* rope = operation.get_if<RopeArgs>();
    if (rope == nullptr || place.product.find(layer_) == std::string::npos) return false;
    if (cos_.empty()) make_tables(place, rope->cos.sizes);
    RopeArgs counted = *rope;
    counted.cos.data = reinterpret_cast<std::byte*>(cos_.data());
    counted.sin.data = reinterpret_cast<std::byte*>(sin_.data());
    place.ops.rope(counted);
    return true;
  }

 private:
  void make_tables(const Place& place, const Sizes& sizes) {
    const LayerOptions& options = place.run->model().part().options;
    const Rotation rotation = rotation_of(options.model, options.model.ropes()[0], options.whole_seq_len());
    for (std::int64_t position = 0; position < sizes[0]; ++position)
      for (const double frequency : rotation.frequencies) {
        cos_.push_back(std::cos(static_cast<double>(position) * frequency));
        sin_.push_back(std::sin(static_cast<double>(position) * frequency));
      }
  }

  std::string layer_;
  std::vector<double> cos_, sin_;
};

class WrongMerge final : public Plant {
 public:
  WrongMerge(Merging merging, int hop) : merging_(merging), hop_(hop) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* merge = operation.get_if<MergeAttentionArgs>();
    if (merge == nullptr) return false;
    merged_ = merged_ % (blocks_of(place) - 1) + 1;
    switch (merging_) {
      case Merging::left_out: return merged_ == hop_;
      case Merging::twice:
        if (merged_ == hop_) place.ops.perform(*merge);
        return false;
      case Merging::averaged:
      case Merging::added: add(place, *merge); return true;
    }
    return false;
  }

 private:
  // The statistics stay right.
  void add(Place& place, const MergeAttentionArgs& merge) const {
    std::vector<double> sum = downloaded_from(place, merge.out);
    const std::vector<double> part = downloaded_from(place, merge.part);
    const bool is_divided = merging_ == Merging::averaged && merged_ + 1 == blocks_of(place);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = (sum[i] + part[i]) / (is_divided ? blocks_of(place) : 1);
    place.ops.perform(merge);
    place.ops.upload(merge.out, sum.data());
  }

  Merging merging_;
  int hop_, merged_ = 0;
};

/// Only the ring adds tensors by heads.
const AddArgs* addition_of_ring(const Operation& operation) {
  const auto* add = operation.get_if<AddArgs>();
  return add != nullptr && add->a.sizes.num_dims() == 4 ? add : nullptr;
}
int num_additions(int num_blocks) { return num_blocks - 1 + 2 * (num_blocks - 2) + 2; }

class MissingAdditions final : public Plant {
 public:
  explicit MissingAdditions(std::vector<int> which) : which_(std::move(which)) {}
  bool replaces(Place& place, const Operation& operation) override {
    if (addition_of_ring(operation) == nullptr) return false;
    return std::ranges::count(which_, seen_++ % num_additions(blocks_of(place))) > 0;
  }

 private:
  std::vector<int> which_;
  int seen_ = 0;
};

// The last hop's sums of dk and dv are the additions before those that arrived; of two ranks, copies.
class GradientsThatStayAbroad final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const AddArgs* add = addition_of_ring(operation);
    if (add == nullptr) return false;
    const int count = num_additions(blocks_of(place)), which = seen_++ % count, i = which - (count - 4);
    if (i < 0) return false;
    if (i < 2) {
      place.ops.add(*add);
      sums_[static_cast<std::size_t>(i)] = downloaded_from(place, add->out);
      return true;
    }
    place.ops.upload(add->b, sums_[static_cast<std::size_t>(i - 2)].data());
    return false;
  }

 private:
  std::array<std::vector<double>, 2> sums_;
  int seen_ = 0;
};

class StaleBlock final : public Plant {
 public:
  StaleBlock(int hop, bool is_backward, bool values_alone)
      : hop_(hop), is_backward_(is_backward), values_alone_(values_alone) {}
  bool replaces(Place& place, const Operation& operation) override {
    if (blocks_of(place) == 1) return false;
    const auto* forward = operation.get_if<AttentionArgs>();
    const auto* backward = operation.get_if<AttentionBackwardArgs>();
    if (is_backward_ ? backward == nullptr : forward == nullptr) return false;
    return is_backward_ ? stale(place, *backward) : stale(place, *forward);
  }

 private:
  template <class Args>
  bool stale(Place& place, Args args) {
    const int hop = seen_++ % blocks_of(place);
    std::vector<double> keys = downloaded_from(place, args.k), values = downloaded_from(place, args.v);
    std::swap(keys, keys_);
    std::swap(values, values_);
    if (hop != hop_) return false;
    if (!values_alone_) args.k.data = reinterpret_cast<std::byte*>(keys.data());
    args.v.data = reinterpret_cast<std::byte*>(values.data());
    place.ops.perform(args);
    return true;
  }

  int hop_;
  bool is_backward_, values_alone_;
  std::vector<double> keys_, values_;  // of the hop before
  int seen_ = 0;
};

class OwnMask final : public Plant {
 public:
  OwnMask(int hop, bool is_backward) : hop_(hop), is_backward_(is_backward) {}
  bool replaces(Place& place, const Operation& operation) override {
    if (blocks_of(place) == 1) return false;
    const auto* forward = operation.get_if<AttentionArgs>();
    const auto* backward = operation.get_if<AttentionBackwardArgs>();
    if (is_backward_ ? backward == nullptr : forward == nullptr) return false;
    return is_backward_ ? masked(place, *backward) : masked(place, *forward);
  }

 private:
  template <class Args>
  bool masked(Place& place, Args args) {
    const int hop = seen_++ % blocks_of(place);
    if (hop == 0) own_ = args.mask;
    if (hop != hop_) return false;
    args.mask = own_;
    place.ops.perform(args);
    return true;
  }

  int hop_;
  bool is_backward_;
  AttentionMask own_;
  int seen_ = 0;
};

class MeanOverOwnTargets final : public Plant {
 public:
  explicit MeanOverOwnTargets(bool in_loss) : in_loss_(in_loss) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CrossEntropyBackwardArgs>();
    if (args == nullptr || !in_loss_) return false;
    CrossEntropyBackwardArgs scaled = *args;
    scaled.scale *= factor(place);
    place.ops.cross_entropy_backward(scaled);
    return true;
  }
  int times(Place& place, const Group& /*group*/, Tensor x) override {
    if (!in_loss_ && place.action.kind == ActionKind::reduce_gradients) place.ops.scale(x, factor(place));
    return 1;
  }

 private:
  [[nodiscard]] static double factor(const Place& place) {
    return place.own_targets == 0 ? 0 : place.all_targets / (place.num_data_ranks() * cp_of(place) * place.own_targets);
  }

  bool in_loss_;
};

class SumOverSamplesAlone final : public Plant {
 public:
  int times(Place& place, const Group& group, Tensor x) override {
    if (place.action.kind != ActionKind::reduce_gradients || group != shard_group) return 1;
    if (place.mesh.shape().degree(Axis::dp_shard) > 1)
      place.mesh.comm({AxisSet{Axis::dp_shard}, Group::Part::all, 0}).all_reduce(x, ReduceOp::sum).wait();
    return 0;
  }
};

class OwnLoss final : public Plant {
 public:
  int times(Place& place, const Group& /*group*/, Tensor /*x*/) override {
    return place.action.kind == ActionKind::report ? 0 : 1;
  }
};

class LossTimesCp final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CrossEntropyBackwardArgs>();
    if (args == nullptr) return false;
    CrossEntropyBackwardArgs scaled = *args;
    scaled.scale *= cp_of(place);
    place.ops.cross_entropy_backward(scaled);
    return true;
  }
};

template <class P, class... Args>
Seed ring_seed_of(Args... args) {
  return [=] { return std::make_unique<P>(args...); };
}

}  // namespace

Seed positions_from_own_start(const std::string& layer) { return ring_seed_of<PositionsFromOwnStart>(layer); }
Seed wrong_merge(Merging merging, int hop) { return ring_seed_of<WrongMerge>(merging, hop); }
Seed missing_additions(std::vector<int> which) { return ring_seed_of<MissingAdditions>(std::move(which)); }
Seed gradients_that_stay_abroad() { return ring_seed_of<GradientsThatStayAbroad>(); }
Seed block_of_hop_before(int hop, bool is_backward, bool values_alone) {
  return ring_seed_of<StaleBlock>(hop, is_backward, values_alone);
}
Seed own_mask(int hop, bool is_backward) { return ring_seed_of<OwnMask>(hop, is_backward); }
Seed mean_over_own_targets(bool in_loss) { return ring_seed_of<MeanOverOwnTargets>(in_loss); }
Seed sum_over_samples_alone() { return ring_seed_of<SumOverSamplesAlone>(); }
Seed own_loss() { return ring_seed_of<OwnLoss>(); }
Seed loss_times_cp() { return ring_seed_of<LossTimesCp>(); }

}  // namespace echelon::testing
