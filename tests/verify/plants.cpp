#include "verify/plants.h"

#include "nn/head_split.h"
#include "spec/groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace echelon::testing {
namespace {

bool lies_in(const Tensor& x, const Tensor& whole) {
  return x.data != nullptr && whole.data != nullptr && x.data >= whole.data && x.data < whole.data + whole.num_bytes();
}

bool overlaps(const Tensor& a, const Tensor& b) { return lies_in(a, b) || lies_in(b, a); }

class PlantedOps final : public Ops {
 public:
  PlantedOps(Plant& plant, Place& place) : plant_(plant), place_(place) {}
  void perform(const Operation& operation) override {
    note_product(operation);
    if (place_.run == nullptr || !plant_.replaces(place_, operation)) place_.ops.perform(operation);
  }
  void upload(Tensor out, const void* host) override {
    if (place_.run == nullptr || !plant_.replaces_upload(place_, out, host)) place_.ops.upload(out, host);
  }
  void download(void* host, Tensor x) override { place_.ops.download(host, x); }
  [[nodiscard]] std::byte* host_address(const Tensor& x) const override { return place_.ops.host_address(x); }
  void publish() override { place_.ops.publish(); }

 private:
  void note_product(const Operation& operation) {
    const auto* product = operation.get_if<MatmulArgs>();
    const auto* embedding = operation.get_if<EmbeddingArgs>();
    const Param* param = product && !product->transpose_a ? place_.param_of(product->b)
                         : embedding                      ? place_.param_of(embedding->w)
                                                          : nullptr;
    if (param == nullptr) return;
    place_.product = param->name;
    place_.product_is_forward = embedding || product->transpose_b;
  }

  Plant& plant_;
  Place& place_;
};

class Received final : public Pending::Operation {
 public:
  Received(Pending inner, std::function<void()> at_end) : inner_(std::move(inner)), at_end_(std::move(at_end)) {}
  void wait() override {
    inner_.wait();
    at_end_();
  }
  bool poll() override { return false; }

 private:
  Pending inner_;
  std::function<void()> at_end_;
};

Pending then(Pending inner, std::function<void()> at_end) {
  return Pending(std::make_unique<Received>(std::move(inner), std::move(at_end)));
}

class PlantedComm final : public Comm {
 public:
  PlantedComm(Plant& plant, Place& place, const Group& group)
      : plant_(plant), place_(place), group_(group), inner_(place.mesh.comm(group)) {}
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }

  [[nodiscard]] Pending all_reduce(Tensor x, ReduceOp op) override {
    if (op != ReduceOp::sum) return inner_.all_reduce(x, op);
    if (place_.action.kind == ActionKind::count_tokens) return counted(x);
    const int times = plant_.times(place_, group_, x);
    if (times == 0) return {};
    if (times == 1) return inner_.all_reduce(x, op);
    inner_.all_reduce(x, op).wait();
    place_.ops.scale(x, static_cast<double>(size()));
    return {};
  }
  [[nodiscard]] Pending reduce_scatter(Tensor shard, Tensor full, ReduceOp op) override {
    const int times = plant_.times(place_, group_, full);
    if (times == 1) return inner_.reduce_scatter(shard, full, op);
    if (times == 0) {
      const std::int64_t rows = shard.size(0);
      const Tensor own = full.rows(rank() * rows, rows);
      if (own.data != shard.data) place_.ops.copy(shard, own);
      return {};
    }
    if (times == scattered_later) {
      inner_.all_reduce(full, op).wait();
      plant_.scattered(place_, shard, full);
      return {};
    }
    inner_.reduce_scatter(shard, full, op).wait();
    place_.ops.scale(shard, static_cast<double>(size()));
    return {};
  }
  [[nodiscard]] Pending all_gather(Tensor full, Tensor shard) override {
    if (plant_.gathers(place_, group_))
      return then(inner_.all_gather(full, shard), [this, full] { plant_.gathered(place_, group_, full); });
    const std::int64_t rows = shard.size(0);
    if (place_.action.kind == ActionKind::gather_parameters) return {};
    for (int other = 0; other < size(); ++other) {
      const Tensor part = full.rows(other * rows, rows);
      if (other != rank()) place_.ops.fill(part, 0.0);
      if (other == rank() && part.data != shard.data) place_.ops.copy(part, shard);
    }
    return {};
  }
  [[nodiscard]] Pending broadcast(Tensor x, int root) override { return inner_.broadcast(x, root); }
  [[nodiscard]] Pending all_to_all(Tensor received, Tensor sent) override {
    return then(inner_.all_to_all(received, sent), [this, received] { plant_.exchanged(place_, group_, received); });
  }
  [[nodiscard]] Pending all_to_all_rows(const RowExchange& exchange) override {
    return inner_.all_to_all_rows(exchange);
  }
  [[nodiscard]] Pending send(Tensor x, int peer) override { return inner_.send(x, peer); }
  [[nodiscard]] Pending receive(Tensor x, int peer) override {
    return then(inner_.receive(x, peer), [this, x, action = place_.action] { plant_.received(place_, action, x); });
  }
  [[nodiscard]] Pending barrier() override { return inner_.barrier(); }

 private:
  Pending counted(Tensor x) {
    place_.ops.download(&place_.own_targets, x);
    inner_.all_reduce(x, ReduceOp::sum).wait();
    place_.ops.download(&place_.all_targets, x);
    return {};
  }

  Plant& plant_;
  Place& place_;
  Group group_;
  Comm& inner_;
};

class PlantedMesh final : public Mesh {
 public:
  PlantedMesh(Plant& plant, Place& place) : Mesh(place.mesh.shape(), place.mesh.rank()), plant_(plant), place_(place) {}
  [[nodiscard]] Comm& comm(const Group& group) override {
    auto& comm = comms_[group];
    if (!comm) comm = std::make_unique<PlantedComm>(plant_, place_, group);
    return *comm;
  }
  void poll() override { place_.mesh.poll(); }
  [[nodiscard]] std::map<Group, std::int64_t> sent_bytes() const override { return place_.mesh.sent_bytes(); }
  void abort(const std::string& reason) override { place_.mesh.abort(reason); }

 private:
  Plant& plant_;
  Place& place_;
  std::map<Group, std::unique_ptr<Comm>> comms_;
};

class PlantedRank final : public RankInterposer, public StepObserver {
 public:
  PlantedRank(std::unique_ptr<Plant> plant, Ops& ops, Mesh& mesh)
      : plant_(std::move(plant)), place_{mesh, ops}, ops_(*plant_, place_), mesh_(*plant_, place_) {}
  [[nodiscard]] Ops& ops() override { return ops_; }
  [[nodiscard]] Mesh& mesh() override { return mesh_; }
  void attach(RankRun& run) override { place_.run = &run; }
  [[nodiscard]] StepObserver* observer() override { return this; }
  void begins(const Action& action, ActionPart part) override {
    if (part != ActionPart::perform) return;
    place_.action = action;
    if (action.kind == ActionKind::load_batch) ++place_.step;
    plant_->begins(place_);
  }
  void ends() override {}

 private:
  std::unique_ptr<Plant> plant_;
  Place place_;
  PlantedOps ops_;
  PlantedMesh mesh_;
};

class SumBehindProduct final : public Plant {
 public:
  SumBehindProduct(std::string weight, bool is_forward, int times)
      : weight_(std::move(weight)), is_forward_(is_forward), times_(times) {}
  int times(Place& place, const Group& group, Tensor /*x*/) override {
    const bool is_it = group == tp_group && is_compute(place.action.kind) && place.product == weight_ &&
                       place.product_is_forward == is_forward_;
    return is_it ? times_ : 1;
  }

 private:
  std::string weight_;
  bool is_forward_;
  int times_;
};

class SumInMicrobatch final : public Plant {
 public:
  SumInMicrobatch(int microbatch, std::string weight, int times)
      : microbatch_(microbatch), weight_(std::move(weight)), times_(times) {}
  int times(Place& place, const Group& group, Tensor /*x*/) override {
    const bool is_it = group == tp_group && place.action.microbatch == microbatch_ && place.product == weight_ &&
                       place.product_is_forward;
    return is_it ? times_ : 1;
  }

 private:
  int microbatch_;
  std::string weight_;
  int times_;
};

class LostPart final : public Plant {
 public:
  LostPart(int lost, std::string weight) : lost_(lost), weight_(std::move(weight)) {}
  int times(Place& place, const Group& group, Tensor x) override {
    const bool is_it =
        group == tp_group && is_compute(place.action.kind) && place.product == weight_ && place.product_is_forward;
    if (is_it && place.coordinate(Axis::tp) == lost_) place.ops.fill(x, 0.0);
    return 1;
  }

 private:
  int lost_;
  std::string weight_;
};

class WrongScatter final : public Plant {
 public:
  WrongScatter(int shard, std::int64_t count) : shard_(shard), count_(count) {}
  int times(Place& place, const Group& group, Tensor /*x*/) override {
    return place.action.kind == ActionKind::reduce_gradients && group == shard_group ? scattered_later : 1;
  }
  void scattered(Place& place, Tensor shard, Tensor full) override {
    const std::int64_t rows = shard.size(0), first = place.coordinate(Axis::dp_shard) * rows;
    std::vector<double> sum(static_cast<std::size_t>(full.size(0)));
    place.ops.download(sum.data(), full);
    const std::int64_t moved = place.coordinate(Axis::dp_shard) == shard_ ? count_ : 0;
    std::vector<double> later(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i)
      later[static_cast<std::size_t>(i)] = sum[static_cast<std::size_t>((first + i + moved) % full.size(0))];
    place.ops.upload(shard, later.data());
  }

 private:
  int shard_;
  std::int64_t count_;
};

class WrongGradientsInUpdate final : public Plant {
 public:
  WrongGradientsInUpdate(int shard, std::int64_t count) : shard_(shard), count_(count) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AdamWArgs>();
    if (args == nullptr || place.coordinate(Axis::dp_shard) != shard_ || place.mesh.shape().degree(Axis::dp_shard) == 1)
      return false;
    const std::int64_t size = args->grad.num_elements();
    if (size <= count_) return false;
    std::vector<double> gradient(static_cast<std::size_t>(size));
    place.ops.download(gradient.data(), args->grad);
    std::ranges::rotate(gradient, gradient.begin() + count_);
    place.ops.upload(args->grad, gradient.data());
    place.ops.adamw(*args);
    return true;
  }

 private:
  int shard_;
  std::int64_t count_;
};

class MissingGather final : public Plant {
 public:
  bool gathers(Place& place, const Group& /*group*/) override {
    return place.action.kind != ActionKind::gather_parameters;
  }
};

class MissingTokens final : public Plant {
 public:
  explicit MissingTokens(int nth) : nth_(nth) {}
  void begins(Place& /*place*/) override { num_gathers_ = 0; }
  bool gathers(Place& place, const Group& group) override {
    return group != tp_group || place.action.kind != ActionKind::forward || num_gathers_++ != nth_;
  }

 private:
  int nth_, num_gathers_ = 0;
};

class KvGradients : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AttentionBackwardArgs>();
    const int tp = place.mesh.shape().degree(Axis::tp);
    const int replicas = kv_replicas(place.run->model().part().options.model, tp);
    if (args == nullptr || replicas == 1) return false;
    place.ops.perform(operation);
    for (const Tensor& gradient : {args->dk, args->dv}) change(place, gradient, replicas);
    return true;
  }

 private:
  virtual void change(Place& place, const Tensor& gradient, int replicas) const = 0;
};

class KvGradientsOfOneReplica final : public KvGradients {
 public:
  explicit KvGradientsOfOneReplica(int replica) : replica_(replica) {}

 private:
  void change(Place& place, const Tensor& gradient, int replicas) const override {
    if (place.coordinate(Axis::tp) % replicas != replica_) place.ops.fill(gradient, 0);
  }

  int replica_;
};

class SummedKvGradients final : public KvGradients {
  void change(Place& place, const Tensor& gradient, int replicas) const override {
    place.mesh.comm(kv_replica_group(replicas)).all_reduce(gradient, ReduceOp::sum).wait();
  }
};

class StaleReplica final : public Plant {
 public:
  StaleReplica(int coordinate, std::string part) : coordinate_(coordinate), part_(std::move(part)) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AdamWArgs>();
    return args != nullptr && place.mesh.shape().degree(Axis::dp_replicate) > 1 &&
           place.coordinate(Axis::dp_replicate) == coordinate_ &&
           place.param_of(args->param)->name.find(part_) != std::string::npos;
  }

 private:
  int coordinate_;
  std::string part_;
};

class WrongSequences final : public Plant {
 public:
  explicit WrongSequences(int coordinate) : coordinate_(coordinate) {}
  bool replaces_upload(Place& place, Tensor out, const void* host) override {
    const int data_rank = place.coordinate(Axis::dp_replicate) * place.mesh.shape().degree(Axis::dp_shard) +
                          place.coordinate(Axis::dp_shard);
    if (place.action.kind != ActionKind::load_batch || place.num_data_ranks() == 1 || data_rank != coordinate_)
      return false;
    if (has_tokens_ == place.step) return false;  // the targets are after the tokens
    has_tokens_ = place.step;
    const auto* tokens = static_cast<const std::int32_t*>(host);
    std::vector<std::int32_t> moved(tokens, tokens + out.num_elements());
    std::ranges::rotate(moved, moved.begin() + place.run->model().part().options.seq_len);
    place.ops.upload(out, moved.data());
    return true;
  }

 private:
  int coordinate_;
  std::int64_t has_tokens_ = 0;
};

class LateMessages final : public Plant {
 public:
  void received(Place& place, const Action& action, Tensor x) override {
    if (action.kind != ActionKind::receive_forward) return;
    std::vector<double> now(static_cast<std::size_t>(x.num_elements()));
    place.ops.download(now.data(), x);
    if (!before_.empty()) place.ops.upload(x, before_.data());
    before_ = now;
  }

 private:
  std::vector<double> before_;
};

class LocalNorm final : public Plant {
 public:
  int times(Place& place, const Group& /*group*/, Tensor /*x*/) override {
    return place.action.kind == ActionKind::clip ? 0 : 1;
  }
};

class WrongUpdate final : public Plant {
 public:
  explicit WrongUpdate(std::string part) : part_(std::move(part)) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AdamWArgs>();
    if (args == nullptr || place.param_of(args->param)->name.find(part_) == std::string::npos) return false;
    AdamWScalars now;
    place.ops.download(&now, args->scalars);
    const auto step = static_cast<std::int64_t>(now.step);
    AdamWScalars later =
        scalars_of(AdamWOptions{.lr = now.lr, .beta1 = args->beta1, .beta2 = args->beta2, .step = step + 1});
    later.grad_scale = now.grad_scale;
    place.ops.upload(args->scalars, &later);
    place.ops.adamw(*args);
    place.ops.upload(args->scalars, &now);
    return true;
  }

 private:
  std::string part_;
};

class SumOfGradient final : public Plant {
 public:
  SumOfGradient(std::string tensor, ActionKind kind, int times)
      : tensor_(std::move(tensor)), kind_(kind), times_(times) {}
  int times(Place& place, const Group& /*group*/, Tensor x) override {
    if (place.action.kind != kind_) return 1;
    const ShardedUnit& unit = place.run->model().part().unit(place.action);
    for (std::size_t b = 0; b < unit.buckets().size(); ++b)
      for (const Segment& segment : unit.buckets()[b].segments)
        if (segment.param->name == tensor_ && (overlaps(segment.param->grad, x) || overlaps(unit.memory(b).grad, x)))
          return times_;
    return 1;
  }

 private:
  std::string tensor_;
  ActionKind kind_;
  int times_;
};

class MeanOfMeansOverRanks final : public Plant {
 public:
  int times(Place& place, const Group& /*group*/, Tensor x) override {
    if (place.action.kind == ActionKind::reduce_gradients)
      place.ops.scale(x, place.all_targets / (place.num_data_ranks() * place.own_targets));
    return 1;
  }
};

class MeanOfMeansOverMicrobatches final : public Plant {
 public:
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<CrossEntropyBackwardArgs>();
    if (args == nullptr) return false;
    std::vector<std::int32_t> targets(static_cast<std::size_t>(args->targets.num_elements()));
    place.ops.download(targets.data(), args->targets);
    const auto ignored = std::ranges::count(targets, ignored_target);
    const auto num_means = static_cast<double>(place.num_data_ranks() * place.num_microbatches());
    CrossEntropyBackwardArgs scaled = *args;
    scaled.scale *=
        place.all_targets / (num_means * static_cast<double>(static_cast<std::int64_t>(targets.size()) - ignored));
    place.ops.cross_entropy_backward(scaled);
    return true;
  }
};

class CountedInNorm final : public Plant {
 public:
  CountedInNorm(std::string part, std::optional<Axis> axis) : part_(std::move(part)), axis_(axis) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<SumOfSquaresArgs>();
    if (args == nullptr || place.action.kind != ActionKind::clip) return false;
    const Param* param = place.param_of(args->x);
    if (param == nullptr || param->name.find(part_) == std::string::npos) return false;
    const int degree = axis_ ? place.mesh.shape().degree(*axis_) : 0;
    const int times = axis_ == Axis::pp ? std::min(degree, 2) : degree;  // a tied weight has two
    for (int i = 0; i < times; ++i) place.ops.sum_of_squares(args->x, args->sum);
    return true;
  }

 private:
  std::string part_;
  std::optional<Axis> axis_;  // none: never
};

class StaleTiedWeight final : public Plant {
 public:
  StaleTiedWeight(std::int64_t step, bool is_last) : step_(step), is_last_(is_last) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AdamWArgs>();
    if (args == nullptr || (step_ > 0 && place.step != step_)) return false;
    const int last = place.mesh.shape().degree(Axis::pp) - 1;
    const Param* param = place.param_of(args->param);
    return last > 0 && place.coordinate(Axis::pp) == (is_last_ ? last : 0) && param != nullptr &&
           param->name == "model.embed_tokens.weight";
  }

 private:
  std::int64_t step_;
  bool is_last_;
};

class ForgetsBefore final : public Plant {
 public:
  ForgetsBefore(int microbatch, std::string part) : microbatch_(microbatch), part_(std::move(part)) {}
  void begins(Place& place) override {
    const Action& action = place.action;
    if (action.kind == ActionKind::load_batch) has_forgotten_.clear();
    const bool is_backward = is_compute(action.kind) && action.kind != ActionKind::forward;
    if (!is_backward || action.microbatch != microbatch_ || !has_forgotten_.insert(action.stage).second) return;
    for (const ShardedUnit& unit : place.run->model().part().stage(action.stage).units)
      for (std::size_t b = 0; b < unit.buckets().size(); ++b)
        for (const Segment& segment : unit.buckets()[b].segments) {
          if (segment.param->name.find(part_) == std::string::npos) continue;
          const Range owned = unit.buckets()[b].owned(), part = overlap(segment, owned);
          if (unit.options().shards_gradients() && part.count > 0)
            place.ops.fill(unit.grad_part(b).rows(part.first - owned.first, part.count), 0.0);
          if (!unit.options().shards_gradients() && segment.param->has_grad) place.ops.fill(segment.param->grad, 0.0);
        }
  }

 private:
  int microbatch_;
  std::string part_;
  std::set<int> has_forgotten_;  // stages
};

class WrongShardBorder final : public Plant {
 public:
  WrongShardBorder(int shard, std::int64_t count, bool at_begin) : shard_(shard), count_(count), at_begin_(at_begin) {}
  bool replaces(Place& place, const Operation& operation) override {
    const auto* args = operation.get_if<AdamWArgs>();
    if (args == nullptr || place.coordinate(Axis::dp_shard) != shard_) return false;
    const Param* param = place.param_of(args->param);
    const std::byte* begin = param->value.data;
    const std::byte* end = begin + param->value.num_bytes();
    const bool lies_across = at_begin_ ? args->param.data > begin : args->param.data + args->param.num_bytes() < end;
    const std::int64_t size = args->param.num_elements();
    if (!lies_across || size <= count_) return false;
    AdamWArgs moved = *args;
    for (Tensor* x : {&moved.param, &moved.master, &moved.grad, &moved.m, &moved.v})
      *x = x->rows(at_begin_ ? count_ : 0, size - count_);
    place.ops.adamw(moved);
    return true;
  }

 private:
  int shard_;
  std::int64_t count_;
  bool at_begin_;
};

// With rotary positions every rank rotates all tokens of its heads, so a rank's slice has no positions of its own. An
// engine that splits the sequence through attention might rotate each slice's tokens as if the sequence started there.
// This fault does that. Learned positions are added to the slice itself.
class PositionsPerSlice final : public Plant {
 public:
  explicit PositionsPerSlice(std::string layer) : layer_(std::move(layer)) {}
  bool replaces(Place& place, const Operation& operation) override {
    const int tp = place.mesh.shape().degree(Axis::tp);
    if (tp == 1 || !place.run->model().part().options.sequence_parallel) return false;
    if (const auto* positions = operation.get_if<PositionsArgs>()) {
      PositionsArgs from_zero = *positions;
      from_zero.first_token = 0;
      place.ops.add_positions(from_zero);
      return true;
    }
    const auto* rope = operation.get_if<RopeArgs>();
    if (rope == nullptr || place.product.find(layer_) == std::string::npos) return false;
    const std::int64_t B = rope->x.size(0), T = rope->x.size(1), H = rope->x.size(2), C = rope->x.size(3),
                       slice = B * T / tp;
    const Tensor x = rope->x.reshaped({B * T, H, C}), y = rope->y.reshaped({B * T, H, C});
    for (std::int64_t token = 0; token < B * T;) {
      const std::int64_t count = std::min(slice - token % slice, T - token % T);
      RopeArgs part = *rope;
      part.x = x.rows(token, count).reshaped({1, count, H, C});
      part.y = y.rows(token, count).reshaped({1, count, H, C});
      part.first_position = token % slice;
      place.ops.rope(part);
      token += count;
    }
    return true;
  }

 private:
  std::string layer_;
};

template <class P, class... Args>
Seed seed_of(Args... args) {
  return [=] { return std::make_unique<P>(args...); };
}

}  // namespace

const Param* Place::param_of(const Tensor& x) const {
  if (run == nullptr) return nullptr;
  for (const Param* param : run->model().part().params())
    if (lies_in(x, param->value) || lies_in(x, param->grad)) return param;
  for (const ShardedUnit* unit : run->model().part().units())
    for (std::size_t b = 0; b < unit->buckets().size(); ++b)
      for (const Segment& segment : unit->buckets()[b].segments) {
        const Range owned = unit->buckets()[b].owned(), part = overlap(segment, owned);
        if (part.count == 0) continue;
        for (const Tensor& whole : {unit->param_part(b), unit->grad_part(b)})
          if (lies_in(x, whole.rows(part.first - owned.first, part.count))) return segment.param;
      }
  return nullptr;
}

int Place::num_microbatches() const {
  int most = 0;
  for (const Action& each : run->blueprint().program(ProgramKind::training)) most = std::max(most, each.microbatch + 1);
  return most;
}

Interpose grow(Seed seed) {
  return [seed = std::move(seed)](Ops& ops, Mesh& mesh) -> std::unique_ptr<RankInterposer> {
    return std::make_unique<PlantedRank>(seed(), ops, mesh);
  };
}

Seed sum_behind_product(const std::string& weight, bool is_forward, int times) {
  return seed_of<SumBehindProduct>(weight, is_forward, times);
}
Seed sum_behind_product_in(int microbatch, const std::string& weight, int times) {
  return seed_of<SumInMicrobatch>(microbatch, weight, times);
}
Seed lost_part(int lost, const std::string& weight) { return seed_of<LostPart>(lost, weight); }
Seed wrong_scatter(int shard, std::int64_t count) { return seed_of<WrongScatter>(shard, count); }
Seed wrong_gradients_in_update(int shard, std::int64_t count) { return seed_of<WrongGradientsInUpdate>(shard, count); }
Seed missing_gather() { return seed_of<MissingGather>(); }
Seed missing_tokens(int nth_gather) { return seed_of<MissingTokens>(nth_gather); }
Seed stale_replica(int coordinate, const std::string& part) { return seed_of<StaleReplica>(coordinate, part); }
Seed kv_gradients_of_one_replica(int replica) { return seed_of<KvGradientsOfOneReplica>(replica); }
Seed summed_kv_gradients() { return seed_of<SummedKvGradients>(); }
Seed wrong_sequences(int coordinate) { return seed_of<WrongSequences>(coordinate); }
Seed late_messages() { return seed_of<LateMessages>(); }
Seed local_norm() { return seed_of<LocalNorm>(); }
Seed wrong_update(const std::string& part) { return seed_of<WrongUpdate>(part); }
Seed sum_of_gradient(const std::string& tensor, ActionKind kind, int times) {
  return seed_of<SumOfGradient>(tensor, kind, times);
}
Seed mean_of_means_over_ranks() { return seed_of<MeanOfMeansOverRanks>(); }
Seed mean_of_means_over_microbatches() { return seed_of<MeanOfMeansOverMicrobatches>(); }
Seed counted_per_copy(const std::string& part, Axis axis) { return seed_of<CountedInNorm>(part, std::optional(axis)); }
Seed not_counted_in_norm(const std::string& part) { return seed_of<CountedInNorm>(part, std::nullopt); }
Seed stale_tied_weight(std::int64_t step, bool is_last) { return seed_of<StaleTiedWeight>(step, is_last); }
Seed forgets_before(int microbatch, const std::string& part) { return seed_of<ForgetsBefore>(microbatch, part); }
Seed wrong_shard_border(int shard, std::int64_t count, bool at_begin) {
  return seed_of<WrongShardBorder>(shard, count, at_begin);
}
Seed positions_per_slice(const std::string& layer) { return seed_of<PositionsPerSlice>(layer); }

}  // namespace echelon::testing
