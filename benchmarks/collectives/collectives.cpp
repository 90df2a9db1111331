// Collectives of thread ranks beside the memcpy limit, in turns. usage: bench_collectives [n [rounds]]
//
// The limit. An all-reduce of S bytes over n ranks reads and writes each of the n buffers once at least; so do n
// threads that copy S bytes each by memcpy, and the time in which they do it is the limit. Of the other two,
// reduce_scatter must read n S and write S, all_gather must read S and write n S bytes: (n + 1) / 2n of that time.
// all_to_all reads and writes what those threads do.
// Lines: operation, who, n, S, median and least seconds.
#include "cases.h"

#include "comm/thread/thread_world.h"
#include "tensor/arena.h"

#include <cstdlib>
#include <cstring>

namespace echelon::collectives {
namespace {

constexpr Group group = {.axes = {Axis::dp_replicate}};

struct Buffers {
  Arena arena;
  Tensor full, shard, other, times;
  Buffers(std::int64_t count, int n) : arena(3 * aligned(count * 4) + (std::int64_t{2} << 20)) {
    Stack stack = arena.region(0, arena.num_bytes());
    full = stack.take(DType::float32, {count});
    shard = stack.take(DType::float32, {count / n});
    other = stack.take(DType::float32, {count});
    times = stack.take(DType::float64, {2});
    // Its sums stay small.
    for (const Tensor& x : {full, shard, other}) std::fill_n(x.as<float>(), x.num_elements(), 1e-20F);
  }
};

void measure(Mesh& mesh, std::int64_t bytes, int rounds) {
  Comm& comm = mesh.comm(group);
  const int n = comm.size(), iterations = num_iterations(bytes, n);
  const Buffers x(num_floats(bytes, n), n);
  const auto maximum = [&](std::array<double, 2>& values) {
    std::copy_n(values.data(), values.size(), x.times.as<double>());
    comm.all_reduce(x.times, ReduceOp::max).wait();
    std::copy_n(x.times.as<double>(), values.size(), values.data());
  };
  const auto seconds_of = [&](auto&& body) {
    return seconds_per_call(
        iterations, [&] { comm.barrier().wait(); }, maximum, body);
  };
  const auto series = [&](const char* what, const char* who) { return Series{what, who, n, bytes, {}}; };
  Series memcpy_limit = series("all_reduce", "memcpy"), all_reduce = series("all_reduce", "echelon"),
         reduce_scatter = series("reduce_scatter", "echelon"), all_gather = series("all_gather", "echelon"),
         all_to_all = series("all_to_all", "echelon");
  for (int round = -1; round < rounds; ++round) {
    const double copied = seconds_of(
        [&] { std::memcpy(x.other.data, x.full.data, static_cast<std::size_t>(x.full.num_elements() * 4)); });
    const double reduced = seconds_of([&] { comm.all_reduce(x.full, ReduceOp::sum).wait(); });
    const double scattered = seconds_of([&] { comm.reduce_scatter(x.shard, x.full, ReduceOp::sum).wait(); });
    const double gathered = seconds_of([&] { comm.all_gather(x.full, x.shard).wait(); });
    const double exchanged = seconds_of([&] { comm.all_to_all(x.other, x.full).wait(); });
    if (round < 0) continue;  // a first round warms up
    memcpy_limit.seconds.push_back(copied);
    all_reduce.seconds.push_back(reduced);
    reduce_scatter.seconds.push_back(scattered);
    all_gather.seconds.push_back(gathered);
    all_to_all.seconds.push_back(exchanged);
  }
  if (mesh.rank() != 0) return;
  Series shared_limit = memcpy_limit, exchange_limit = memcpy_limit;
  for (double& seconds : shared_limit.seconds) seconds *= (n + 1) / (2.0 * n);
  exchange_limit.what = "all_to_all";
  for (Series* s : {&memcpy_limit, &all_reduce, &reduce_scatter, &all_gather, &all_to_all, &exchange_limit}) s->print();
  for (const char* what : {"reduce_scatter", "all_gather"}) {
    shared_limit.what = what;
    shared_limit.print();
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace echelon::collectives

int main(int argc, char** argv) {
  using namespace echelon;
  const int n = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  run_thread_ranks(MeshShape({{Axis::dp_replicate, n}}), {}, [&](Mesh& mesh) {
    for (const std::int64_t bytes : collectives::sizes) collectives::measure(mesh, bytes, rounds);
  });
}
