// A step of 1,024 thread ranks, tp 8 x pp 8 x dp 16, beside an ideal run of the same work. usage: bench_many_ranks
// [steps]
//
// The step has the communication of a small model: two microbatches through eight stages, forward and back, four
// all-reduces of 16 KB over tp in each direction and stage, 16 KB handed from stage to stage, a reduce-scatter and an
// all-gather of 64 KB over dp, one number over all ranks; and, in the second row, the arithmetic of a small layer
// before each all-reduce.
//
// Ideal: as many threads as there are cores do the same sums, copies and arithmetic with the same kernels in buffers of
// the same sizes, each its part of the groups, and nobody waits for anybody until the end of the step.
#include "base/median.h"
#include "comm/sum.h"
#include "comm/thread/thread_world.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace echelon {
namespace {

constexpr int tp = 8, pp = 8, dp = 16, num_ranks = tp * pp * dp;
constexpr int num_microbatches = 2, reduces_per_pass = 4;
constexpr std::int64_t hidden_bytes = 16 << 10, gradient_bytes = 64 << 10;

struct Buffers {
  std::vector<float> hidden = std::vector<float>(hidden_bytes / 4, 1e-20F), sent = hidden, received = hidden;
  std::vector<float> gradient = std::vector<float>(gradient_bytes / 4, 1e-20F),
                     shard = std::vector<float>(gradient.size() / dp);
  float norm = 1e-20F;
};

Tensor tensor(std::vector<float>& x) { return {x.data(), DType::float32, {static_cast<std::int64_t>(x.size())}}; }

// Passes over the buffer, which stays in the first cache.
void compute(std::vector<float>& x, int passes) {
  for (int pass = 0; pass < passes; ++pass)
    for (float& number : x) number = number * 0.999F + 1e-20F;
}

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// --- with ranks ---

struct RankStep {
  Mesh& mesh;
  Buffers& x;
  int passes;
  Comm& tensor_group = mesh.comm({{Axis::tp}});
  Comm& pipeline = mesh.comm({{Axis::pp}});
  Comm& data = mesh.comm({{Axis::dp_replicate}});
  Comm& world = mesh.comm({world_axes});

  void pass(int from, int to, std::vector<Pending>& sends) {
    if (from >= 0 && from < pp) pipeline.receive(tensor(x.received), from).wait();
    for (int i = 0; i < reduces_per_pass; ++i) {
      compute(x.hidden, passes);
      tensor_group.all_reduce(tensor(x.hidden), ReduceOp::sum).wait();
    }
    if (to >= 0 && to < pp) sends.push_back(pipeline.send(tensor(x.sent), to));
  }

  void run() {
    std::vector<Pending> sends;
    const int stage = pipeline.rank();
    for (int m = 0; m < num_microbatches; ++m) pass(stage - 1, stage + 1, sends);
    for (int m = 0; m < num_microbatches; ++m) pass(stage + 1, stage - 1, sends);
    for (Pending& send : sends) send.wait();
    data.reduce_scatter(tensor(x.shard), tensor(x.gradient), ReduceOp::sum).wait();
    world.all_reduce({&x.norm, DType::float32, {1}}, ReduceOp::sum).wait();
    data.all_gather(tensor(x.gradient), tensor(x.shard)).wait();
    x.norm = 1e-20F;
  }
};

std::vector<double> measure_ranks(int steps, int passes) {
  std::vector<double> times;
  run_thread_ranks(MeshShape({{Axis::dp_replicate, dp}, {Axis::pp, pp}, {Axis::tp, tp}}), {}, [&](Mesh& mesh) {
    Buffers x;
    RankStep step = {.mesh = mesh, .x = x, .passes = passes};
    for (int i = -1; i < steps; ++i) {
      step.world.barrier().wait();
      const auto start = Clock::now();
      step.run();
      step.world.barrier().wait();
      if (mesh.rank() == 0 && i >= 0) times.push_back(milliseconds_since(start));
    }
  });
  return times;
}

// --- without ---

void all_reduce(const std::vector<Buffers*>& group, std::vector<float> Buffers::*which) {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (Buffers* rank : group) {
    out.push_back(reinterpret_cast<std::byte*>((rank->*which).data()));
    in.push_back(out.back());
  }
  reduce_in_rank_order({}, in, out, {0, 0, static_cast<std::int64_t>((group[0]->*which).size() * 4)});
}

void copy(std::vector<float>& target, const std::vector<float>& source) {
  std::byte* const out = reinterpret_cast<std::byte*>(target.data());
  copy_to_all({&out, 1}, reinterpret_cast<const std::byte*>(source.data()),
              {0, 0, static_cast<std::int64_t>(source.size() * 4)}, Stores::cached);
}

// A tensor-parallel group of one stage: everything of its ranks but dp.
void run_tensor_group(const std::vector<Buffers*>& group, bool has_neighbour, int passes) {
  for (int pass = 0; pass < 2 * num_microbatches; ++pass) {
    for (int i = 0; i < reduces_per_pass; ++i) {
      for (Buffers* rank : group) compute(rank->hidden, passes);
      all_reduce(group, &Buffers::hidden);
    }
    for (Buffers* rank : group)
      if (has_neighbour) copy(rank->received, rank->sent);
  }
}

void run_data_group(const std::vector<Buffers*>& group) {
  std::vector<const std::byte*> in;
  std::vector<std::byte*> full;
  for (Buffers* rank : group) {
    full.push_back(reinterpret_cast<std::byte*>(rank->gradient.data()));
    in.push_back(full.back());
  }
  constexpr std::int64_t part = gradient_bytes / dp;
  for (int i = 0; i < dp; ++i) {
    std::byte* const shard = reinterpret_cast<std::byte*>(group[static_cast<std::size_t>(i)]->shard.data());
    reduce_in_rank_order({}, in, {&shard, 1}, {i * part, 0, part});
  }
  for (int i = 0; i < dp; ++i)
    copy_to_all(full, reinterpret_cast<const std::byte*>(group[static_cast<std::size_t>(i)]->shard.data()),
                {0, i * part, part}, Stores::cached);
}

class Ideal {
 public:
  explicit Ideal(int passes) : passes_(passes), ranks_(num_ranks) {}

  double step(int num_threads) {
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) threads.emplace_back([this, t, num_threads] { run_part(t, num_threads); });
    for (std::thread& thread : threads) thread.join();
    return milliseconds_since(start);
  }

 private:
  [[nodiscard]] Buffers* rank(int d, int p, int t) { return &ranks_[static_cast<std::size_t>((d * pp + p) * tp + t)]; }

  void run_part(int thread, int num_threads) {
    for (int group = thread; group < dp * pp; group += num_threads) {
      std::vector<Buffers*> members;
      for (int t = 0; t < tp; ++t) members.push_back(rank(group / pp, group % pp, t));
      run_tensor_group(members, group % pp > 0, passes_);
    }
    for (int group = thread; group < pp * tp; group += num_threads) {
      std::vector<Buffers*> members;
      for (int d = 0; d < dp; ++d) members.push_back(rank(d, group / tp, group % tp));
      run_data_group(members);
    }
  }

  int passes_;
  std::vector<Buffers> ranks_;
};

void compare(const char* what, int steps, int passes) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<double> ideal_times;
  {
    Ideal ideal(passes);
    for (int i = -1; i < steps; ++i) {
      const double time = ideal.step(cores);
      if (i >= 0) ideal_times.push_back(time);
    }
  }
  const double ideal = median(ideal_times), ranks = median(measure_ranks(steps, passes));
  std::printf("%s\t%d ranks: %.1f ms\tideal: %.1f ms\tratio %.2f\n", what, num_ranks, ranks, ideal, ranks / ideal);
  std::fflush(stdout);
}

}  // namespace
}  // namespace echelon

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 7;
  echelon::compare("communication alone", steps, 0);
  echelon::compare("with 40 us of arithmetic per all-reduce", steps, 100);
}
