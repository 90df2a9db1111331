// One unit over small meshes of thread ranks, at every level: its gradients are the sums that they should be, each
// counted once, and an update gives what one rank's update gives, to the bit.
#include "optim/sharded_unit.h"

#include "base/error.h"
#include "comm/thread/thread_world.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/numbers.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>

namespace echelon {
namespace {

struct Case {
  int replicate, shard, level, microbatches;
  DType dtype = DType::float64, grad_dtype = DType::float64, reduce_dtype = DType::float64;
  bool has_coarse_moments = false, stores_remainders = false, has_experts = false;
  [[nodiscard]] DType moments_dtype() const { return has_coarse_moments ? DType::bfloat16 : accumulate_dtype(dtype); }
};

std::string name_of(const Case& c) {
  return fmt::format("replicate{}_shard{}_level{}_m{}_{}_{}_{}{}", c.replicate, c.shard, c.level, c.microbatches,
                     echelon::name_of(c.dtype), echelon::name_of(c.grad_dtype), echelon::name_of(c.reduce_dtype),
                     c.has_coarse_moments  ? "_coarse_moments"
                     : c.stores_remainders ? "_remainders"
                                           : "");
}
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

constexpr int num_expert_ranks = 2;

/// Parameters whose sizes no degree divides, one of which a product forms. Experts are other ones on each of
/// num_expert_ranks neighbours, so that their gradients are summed and sharded over every other rank.
std::vector<Param> make_params(bool has_experts) {
  std::vector<Param> params(has_experts ? 5 : 3);
  const std::array<Sizes, 5> sizes = {Sizes{5, 7}, Sizes{3}, Sizes{53}, Sizes{3, 11}, Sizes{9}};
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].name = fmt::format("p{}", i);
    params[i].slice = TensorSlice(sizes[i]);
    params[i].is_overwritten_by_first_matmul = i == 0;
    if (i >= 3) params[i].groups.shard = {shard_group.axes, Group::Part::strided, num_expert_ranks};
  }
  return params;
}

/// Whole numbers, so that any order of summation gives the same bits; small enough for bfloat16 to hold their sums.
double gradient_of(int rank, int microbatch, std::size_t param, std::int64_t index) {
  return static_cast<double>((rank * 5 + microbatch * 3 + static_cast<int>(param) * 2 + static_cast<int>(index)) % 4) -
         1;
}

/// A unit with the memory that a plan would give it.
class Rank {
 public:
  Rank(const Case& c, Mesh& mesh, Ops& ops)
      : case_(c),
        mesh_(mesh),
        ops_(ops),
        params_(make_params(c.has_experts)),
        unit_(pointers(), options(), mesh.shape(), mesh.rank()) {
    unit_.bind([&](const StateBuffer& state) { return take(state.dtype, state.range.count); });
    for (std::size_t b = 0; b < unit_.buckets().size(); ++b)
      for (std::int64_t i = 0; i < unit_.param_part(b).num_elements(); ++i)
        set(unit_.param_part(b), i, 0.25 * static_cast<double>((first(b) + i) % 9));
    unit_.refresh_master(ops_);
  }

  /// By what levels are (Rajbhandari et al. 2020, section 5).
  void expect_state_of_level() const {
    const std::size_t num_states = unit_.options().has_master() ? 5 : 4;
    ASSERT_EQ(unit_.state_buffers().size(), num_states * unit_.buckets().size());
    for (const StateBuffer& state : unit_.state_buffers()) {
      const Bucket& bucket = unit_.buckets()[state.bucket];
      const bool is_sharded = case_.level >= (state.role == StateRole::param  ? 3
                                              : state.role == StateRole::grad ? 2
                                                                              : 1);
      EXPECT_EQ(state.range.count, bucket.num_elements / (is_sharded ? case_.shard : 1));
      EXPECT_EQ(state.range.first, is_sharded ? mesh_.coordinate(Axis::dp_shard) * state.range.count : 0);
      EXPECT_EQ(state.dtype, dtype_of_state(state.role)) << static_cast<int>(state.role);
    }
  }

  void reduce_microbatches() {
    unit_.clear_gradients(ops_);
    for (int m = 0; m < case_.microbatches; ++m) {
      if (unit_.options().shards_gradients()) {
        unit_.bind_gradients(whole_buffers(case_.grad_dtype));
        unit_.zero_gradients(ops_);
      }
      form_gradients(m);
      if (!unit_.options().shards_gradients() && m + 1 < case_.microbatches) continue;
      wait(unit_.reduce_gradients(
          ops_, mesh_,
          unit_.options().converts_gradients() ? whole_buffers(case_.reduce_dtype) : std::vector<Tensor>()));
      if (!unit_.is_reduced_in_place()) unit_.store_gradients(ops_);
    }
    if (unit_.options().reduces_parts)
      wait(unit_.reduce_parts(
          ops_, mesh_,
          unit_.options().converts_gradients() ? part_buffers(case_.reduce_dtype) : std::vector<Tensor>()));
  }

  /// Every parameter after two updates, of which the second reads what the first left of the moments, as the model sees
  /// it.
  std::vector<double> updated() {
    const Tensor scalars = take(DType::float64, num_adamw_scalars);
    for (std::int64_t step = 1; step <= 2; ++step) {
      const AdamWOptions adamw = {.lr = 0.1, .step = step};
      AdamWScalars now = scalars_of(adamw);
      now.grad_scale = 0.5;
      ops_.upload(scalars, &now);
      unit_.update(ops_, adamw, scalars);
    }
    if (unit_.options().shards_parameters()) unit_.bind_parameters(whole_buffers(case_.dtype));
    if (case_.level > 0) wait(unit_.gather_parameters(ops_, mesh_));
    std::vector<double> values;
    for (const Param& param : params_)
      for (std::int64_t i = 0; i < param.value.num_elements(); ++i) values.push_back(get(param.value, i));
    return values;
  }

  double sum_of_squares() {
    const Tensor sum = take(DType::float64, 1);
    unit_.add_squares(ops_, sum);
    mesh_.comm(data_group).all_reduce(sum, ReduceOp::sum).wait();
    return get(sum, 0);
  }

  void expect_summed_gradients() const {
    for (std::size_t b = 0; b < unit_.buckets().size(); ++b)
      for (const Segment& segment : unit_.buckets()[b].segments) {
        const Range part = overlap(segment, unit_.buckets()[b].owned());
        const auto param = static_cast<std::size_t>(segment.param - params_.data());
        for (std::int64_t i = 0; i < part.count; ++i)
          EXPECT_EQ(get(unit_.grad_part(b), part.first - first(b) + i),
                    sum_of(param, part.first - segment.offset + i, mesh_.rank()))
              << segment.param->name << " " << i;
      }
  }

  [[nodiscard]] double squares_expected() const {
    double squares = 0;
    for (std::size_t p = 0; p < params_.size(); ++p)
      for (int rank = 0; rank < (params_[p].groups.shard == shard_group ? 1 : num_expert_ranks); ++rank)
        for (std::int64_t i = 0; i < params_[p].global_sizes().num_elements(); ++i)
          squares += std::pow(sum_of(p, i, rank), 2);
    return squares;
  }

 private:
  [[nodiscard]] DType dtype_of_state(StateRole role) const {
    if (role == StateRole::param) return case_.dtype;
    if (role == StateRole::grad) return case_.grad_dtype;
    if (role == StateRole::master) return case_.stores_remainders ? DType::int16 : DType::float32;
    return case_.moments_dtype();
  }
  [[nodiscard]] std::vector<Param*> pointers() {
    std::vector<Param*> list;
    for (Param& param : params_) list.push_back(&param);
    return list;
  }
  [[nodiscard]] ShardOptions options() const {
    const bool has_peers = case_.replicate * case_.shard > 1;
    return {.level = case_.level,
            .reduces_parts = case_.shard > 1 && case_.replicate > 1,
            .dtype = case_.dtype,
            .grad_dtype = case_.grad_dtype,
            .reduce_dtype = has_peers ? case_.reduce_dtype : case_.grad_dtype,
            .moments_dtype = case_.moments_dtype(),
            .stores_remainders = case_.stores_remainders};
  }
  void form_gradients(int microbatch) {
    for (std::size_t p = 0; p < params_.size(); ++p) {
      const bool adds = std::exchange(params_[p].has_grad, true);
      for (std::int64_t i = 0; i < params_[p].grad.num_elements(); ++i)
        set(params_[p].grad, i, (adds ? get(params_[p].grad, i) : 0.0) + gradient_of(mesh_.rank(), microbatch, p, i));
    }
  }
  /// Of the parameter that `holder` has.
  [[nodiscard]] double sum_of(std::size_t param, std::int64_t index, int holder) const {
    double sum = 0;
    for (const int replica : mesh_.shape().ranks_of(params_[param].groups.replicate, holder))
      for (const int rank : mesh_.shape().ranks_of(params_[param].groups.shard, replica))
        for (int m = 0; m < case_.microbatches; ++m) sum += gradient_of(rank, m, param, index);
    return sum;
  }
  [[nodiscard]] std::int64_t first(std::size_t b) const { return unit_.buckets()[b].owned().first; }

  // Fresh buffers are full of what must never be read.
  Tensor take(DType dtype, std::int64_t count) { return numbers_.emplace_back(dtype, Sizes{count}); }
  std::vector<Tensor> whole_buffers(DType dtype) {
    std::vector<Tensor> buffers;
    for (const Bucket& bucket : unit_.buckets()) buffers.push_back(poisoned(dtype, bucket.num_elements));
    return buffers;
  }
  std::vector<Tensor> part_buffers(DType dtype) {
    std::vector<Tensor> buffers;
    for (const Bucket& bucket : unit_.buckets()) buffers.push_back(poisoned(dtype, bucket.owned().count));
    return buffers;
  }
  Tensor poisoned(DType dtype, std::int64_t count) {
    const Tensor x = take(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) set(x, i, std::numeric_limits<double>::quiet_NaN());
    return x;
  }
  static double get(const Tensor& x, std::int64_t i) {
    double value = 0;
    visit_float(x.dtype, [&](auto t) { value = to<double>(x.as<decltype(t)>()[i]); });
    return value;
  }
  static void set(const Tensor& x, std::int64_t i, double value) {
    visit_float(x.dtype, [&](auto t) { x.as<decltype(t)>()[i] = to<decltype(t)>(value); });
  }
  static void wait(std::vector<Pending> pending) {
    for (Pending& each : pending) each.wait();
  }

  Case case_;
  Mesh& mesh_;
  Ops& ops_;
  std::vector<Param> params_;
  std::vector<Numbers> numbers_;
  ShardedUnit unit_;
};

MeshShape shape_of(const Case& c) { return MeshShape({{Axis::dp_replicate, c.replicate}, {Axis::dp_shard, c.shard}}); }

class Levels : public testing::TestWithParam<Case> {};

TEST_P(Levels, GradientsAreSummedAndCountedOnceAndUpdatesAreThoseOfLevelZero) {
  const Case& c = GetParam();
  Case plain = c;
  plain.level = 0;
  plain.replicate = c.replicate * c.shard;
  plain.shard = 1;
  std::vector<double> expected;
  run_thread_ranks(shape_of(plain), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    Rank rank(plain, mesh, *ops);
    rank.reduce_microbatches();
    const std::vector<double> values = rank.updated();
    if (mesh.rank() == 0) expected = values;
  });
  run_thread_ranks(shape_of(c), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    Rank rank(c, mesh, *ops);
    rank.expect_state_of_level();
    for (int step = 0; step < 2; ++step) {  // the second step must not add to the first one's sums
      rank.reduce_microbatches();
      rank.expect_summed_gradients();
      EXPECT_EQ(rank.sum_of_squares(), rank.squares_expected());
    }
    EXPECT_EQ(rank.updated(), expected);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [replicate, shard] : {std::pair{1, 1}, {3, 1}, {1, 2}, {1, 5}, {2, 3}})
    for (int level = shard > 1 ? 1 : 0; level <= (shard > 1 ? 3 : 0); ++level)
      for (const int microbatches : {1, 3}) {
        all.push_back({replicate, shard, level, microbatches});
        all.push_back({replicate, shard, level, microbatches, DType::bfloat16, DType::float32, DType::float32});
        all.push_back({replicate, shard, level, microbatches, DType::bfloat16, DType::bfloat16, DType::float32});
        all.push_back({replicate, shard, level, microbatches, DType::float32, DType::float32, DType::bfloat16});
        all.push_back({replicate, shard, level, microbatches, DType::bfloat16, DType::float32, DType::float32, true});
        if (microbatches == 1)
          all.push_back(
              {replicate, shard, level, microbatches, DType::bfloat16, DType::float32, DType::float32, false, true});
      }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Grid, Levels, testing::ValuesIn(cases()), [](const auto& c) { return name_of(c.param); });

// Parameters that not all data ranks hold are next to parameters of all in one unit: each bucket is summed and sharded
// over its own groups, some over one rank, and every level gives what level 0 gives.
TEST(Experts, AreSummedAndShardedOverTheirOwnGroups) {
  for (const auto& [replicate, shard] : {std::pair{1, 4}, {2, 4}, {1, 2}, {2, 2}})
    for (const DType reduce_dtype : {DType::float32, DType::bfloat16}) {
      std::mutex mutex;
      std::map<int, std::vector<double>> expected;
      for (int level = 0; level <= 3; ++level) {
        Case c = {.replicate = replicate, .shard = shard, .level = level, .microbatches = 3};
        c.dtype = c.grad_dtype = DType::float32;
        c.reduce_dtype = reduce_dtype;
        c.has_experts = true;
        run_thread_ranks(shape_of(c), {}, [&](Mesh& mesh) {
          const auto ops = make_cpu_ops({});
          Rank rank(c, mesh, *ops);
          rank.reduce_microbatches();
          rank.expect_summed_gradients();
          EXPECT_EQ(rank.sum_of_squares(), rank.squares_expected()) << name_of(c);
          const std::vector<double> values = rank.updated();
          const std::lock_guard lock(mutex);
          if (level == 0) expected[mesh.rank()] = values;
          EXPECT_EQ(values, expected[mesh.rank()]) << name_of(c) << ", rank " << mesh.rank();
        });
      }
    }
}

// Tensor parallelism: the moments of columns 3 to 5 of a parameter are rounded as they are where it is whole.
TEST(CoarseMoments, OfASliceAreThoseOfTheWhole) {
  constexpr std::int64_t R = 5, C = 7, first = 3, count = 4;  // the last column is padding
  const auto moments = [&](bool is_cut) {
    const auto ops = make_cpu_ops({});
    std::vector<Param> params(1);
    params[0].name = "p";
    params[0].slice = is_cut ? TensorSlice({R, C - 1}, 1, {first, count}) : TensorSlice({R, C - 1});
    ShardedUnit unit({params.data()}, {.moments_dtype = DType::bfloat16}, MeshShape(), 0);
    const std::int64_t size = unit.buckets()[0].num_elements, columns = is_cut ? count : C - 1;
    const Numbers param(DType::float32, {size}), m(DType::bfloat16, {size}), v(DType::bfloat16, {size});
    Numbers grad(DType::float32, {size});
    unit.bind([&](const StateBuffer& state) -> Tensor {
      switch (state.role) {
        case StateRole::param: return param;
        case StateRole::grad: return grad;
        case StateRole::m: return m;
        case StateRole::v: return v;
        case StateRole::master: break;
      }
      throw Failure("float32 parameters have no master weights");
    });
    for (std::int64_t i = 0; i < R * columns; ++i) {
      const std::int64_t column = i % columns + (is_cut ? first : 0);
      grad.set(i, column < C - 1 ? 0.01 * static_cast<double>(1 + i / columns * C + column) : 0.0);
    }
    for (std::int64_t step = 1; step <= 3; ++step) {
      const AdamWOptions adamw = {.lr = 0.1, .step = step};
      AdamWScalars now = scalars_of(adamw);
      unit.update(*ops, adamw, {&now, DType::float64, {num_adamw_scalars}});
    }
    std::vector<double> rows;
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = first; c < C - 1; ++c)
        for (const Numbers* x : {&m, &v}) rows.push_back(x->get(r * columns + c - (is_cut ? first : 0)));
    return rows;
  };
  EXPECT_EQ(moments(true), moments(false));
}

}  // namespace
}  // namespace echelon
