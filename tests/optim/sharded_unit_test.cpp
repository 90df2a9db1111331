// One unit over small meshes of thread ranks, at every level: its gradients are the sums that they should be, each
// counted once, and an update gives what one rank's update gives, to the bit.
#include "optim/sharded_unit.h"

#include "comm/thread/thread_world.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/numbers.h"
#include "spec/groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <mutex>

namespace echelon {
namespace {

struct Case {
  int replicate, shard, level, microbatches;
  DType dtype = DType::float64, grad_dtype = DType::float64, reduce_dtype = DType::float64;
  bool has_coarse_moments = false, stores_remainders = false;
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

/// Parameters whose sizes no degree divides, one of which a product forms.
std::vector<Param> make_params() {
  std::vector<Param> params(3);
  const std::array<Sizes, 3> sizes = {Sizes{5, 7}, Sizes{3}, Sizes{53}};
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].name = fmt::format("p{}", i);
    params[i].global_sizes = sizes[i];
    params[i].is_formed_by_product = i == 0;
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
      : case_(c), mesh_(mesh), ops_(ops), params_(make_params()), unit_(pointers(), options()) {
    std::vector<BucketMemory> memory;
    for (const Bucket& bucket : unit_.buckets()) {
      const std::int64_t whole = bucket.num_elements, owned = unit_.owned(bucket).count;
      memory.push_back({.param = take(c.dtype, unit_.options().shards_parameters() ? owned : whole),
                        .grad = take(c.grad_dtype, unit_.options().shards_gradients() ? owned : whole),
                        .master = unit_.options().has_master() ? take(unit_.options().master_dtype(), owned) : Tensor(),
                        .m = take(c.moments_dtype(), owned),
                        .v = take(c.moments_dtype(), owned)});
    }
    unit_.bind(memory);
    for (std::size_t b = 0; b < memory.size(); ++b)
      for (std::int64_t i = 0; i < unit_.param_part(b).num_elements(); ++i)
        set(unit_.param_part(b), i, 0.25 * static_cast<double>((first(b) + i) % 9));
    unit_.refresh_master(ops_);
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
    if (case_.shard > 1 && case_.replicate > 1)
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
    if (case_.shard > 1) wait(unit_.gather_parameters(ops_, mesh_));
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
        const Range part = overlap(segment, unit_.owned(unit_.buckets()[b]));
        const auto param = static_cast<std::size_t>(segment.param - params_.data());
        for (std::int64_t i = 0; i < part.count; ++i)
          EXPECT_EQ(get(unit_.grad_part(b), part.first - first(b) + i), sum_of(param, part.first - segment.offset + i))
              << segment.param->name << " " << i;
      }
  }

  [[nodiscard]] double squares_expected() const {
    double squares = 0;
    for (std::size_t p = 0; p < params_.size(); ++p)
      for (std::int64_t i = 0; i < params_[p].global_sizes.num_elements(); ++i) squares += sum_of(p, i) * sum_of(p, i);
    return squares;
  }

 private:
  [[nodiscard]] std::vector<Param*> pointers() {
    std::vector<Param*> list;
    for (Param& param : params_) list.push_back(&param);
    return list;
  }
  [[nodiscard]] ShardOptions options() const {
    return {.level = case_.shard > 1 ? case_.level : 0,
            .shard_degree = case_.shard,
            .shard_index = mesh_.coordinate(Axis::dp_shard),
            .replicate_degree = case_.replicate,
            .is_first_copy = mesh_.coordinate(Axis::dp_replicate) == 0,
            .dtype = case_.dtype,
            .grad_dtype = case_.grad_dtype,
            .reduce_dtype = case_.reduce_dtype,
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
  [[nodiscard]] double sum_of(std::size_t param, std::int64_t index) const {
    double sum = 0;
    for (int rank = 0; rank < case_.replicate * case_.shard; ++rank)
      for (int m = 0; m < case_.microbatches; ++m) sum += gradient_of(rank, m, param, index);
    return sum;
  }
  [[nodiscard]] std::int64_t first(std::size_t b) const { return unit_.owned(unit_.buckets()[b]).first; }

  // Fresh buffers are full of what must never be read.
  Tensor take(DType dtype, std::int64_t count) { return numbers_.emplace_back(dtype, Sizes{count}); }
  std::vector<Tensor> whole_buffers(DType dtype) {
    std::vector<Tensor> buffers;
    for (const Bucket& bucket : unit_.buckets()) buffers.push_back(poisoned(dtype, bucket.num_elements));
    return buffers;
  }
  std::vector<Tensor> part_buffers(DType dtype) {
    std::vector<Tensor> buffers;
    for (const Bucket& bucket : unit_.buckets()) buffers.push_back(poisoned(dtype, unit_.owned(bucket).count));
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

MeshShape shape_of(const Case& c) { return MeshShape({1, c.replicate, 1, c.shard, 1, 1}); }

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

// Tensor parallelism: the moments of columns 3 to 5 of a parameter are rounded as they are where it is whole.
TEST(CoarseMoments, OfASliceAreThoseOfTheWhole) {
  constexpr std::int64_t R = 5, C = 7, first = 3, count = 4;  // the last column is padding
  const auto moments = [&](bool is_cut) {
    const auto ops = make_cpu_ops({});
    std::vector<Param> params(1);
    params[0].name = "p";
    params[0].global_sizes = {R, C - 1};
    if (is_cut) {
      params[0].split_dim = 1;
      params[0].split_first = first;
      params[0].split_count = count;
    }
    ShardedUnit unit({params.data()}, {.moments_dtype = DType::bfloat16});
    const std::int64_t size = unit.buckets()[0].num_elements, columns = is_cut ? count : C - 1;
    const Numbers param(DType::float32, {size}), m(DType::bfloat16, {size}), v(DType::bfloat16, {size});
    Numbers grad(DType::float32, {size});
    unit.bind({{.param = param, .grad = grad, .master = {}, .m = m, .v = v}});
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
