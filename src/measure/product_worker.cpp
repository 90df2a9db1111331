#include "measure/product_worker.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/team_cores.h"
#include "base/text/tell.h"
#include "machine/cores.h"
#include "machine/cpus.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/arena.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>
#include <vector>

namespace echelon {
namespace {

/// y[m, n] = a b with factors that may be transposed: the forward pass and both gradients of a linear layer of GPT-2
/// 124M (attention's keys, queries and values), and the head of a small model.
struct ProductSize {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};

std::array<ProductSize, 4> sizes_of(std::int64_t num_tokens) {
  return {{{num_tokens, 2304, 768, false, true},
           {num_tokens, 768, 2304, false, false},
           {2304, 768, num_tokens, true, false},
           {num_tokens / 2, 8192, 384, false, true}}};
}

double seconds_of(Ops& ops, DType dtype, const ProductSize& size) {
  const std::int64_t bytes = size_of(dtype);
  const Arena arena((size.m * size.k + size.k * size.n + size.m * size.n) * bytes + 3 * alignment_bytes);
  Stack stack = arena.region(0, arena.num_bytes());
  const Tensor a = stack.take(dtype, size.transpose_a ? Sizes{size.k, size.m} : Sizes{size.m, size.k}),
               b = stack.take(dtype, size.transpose_b ? Sizes{size.n, size.k} : Sizes{size.k, size.n}),
               c = stack.take(dtype, {size.m, size.n});
  ops.fill(a, 0.5);
  ops.fill(b, 0.25);
  const auto multiply = [&] {
    ops.matmul({.a = a, .b = b, .c = c, .transpose_a = size.transpose_a, .transpose_b = size.transpose_b});
  };
  multiply();  // touches memory and wakes workers
  const double start = now_seconds();
  multiply();
  return now_seconds() - start;
}

double perform(const ProductJob& job, const std::string& core_type) {
  ProductChoice products = {.core_type = core_type};
  products.of(job.dtype) = job.kernels;
  const auto ops = make_cpu_ops({.num_threads = job.num_threads, .products = products});
  double seconds = 0;
  for (const ProductSize& size : sizes_of(job.num_tokens)) seconds += seconds_of(*ops, job.dtype, size);
  return seconds;
}

template <class T>
bool transmit(int link, const T& value) {
  return ::send(link, &value, sizeof(T), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(T));
}

template <class T>
bool receive(int link, T& value) {
  return ::recv(link, &value, sizeof(T), MSG_WAITALL) == static_cast<ssize_t>(sizeof(T));
}

using CoreTypeName = std::array<char, 64>;

/// The process's whole life: its core type, then an answer to each job.
void serve(const std::string& core_type, int link) {
  spread_team_of_this_thread(cores_among(allowed_cpus()));
  CoreTypeName name{};
  const std::string& loaded = Blas::loaded(core_type).core_type();
  std::copy_n(loaded.begin(), std::min(loaded.size(), name.size() - 1), name.begin());
  if (!transmit(link, name)) return;
  for (ProductJob job; receive(link, job);)
    if (!transmit(link, perform(job, loaded))) return;
}

}  // namespace

ProductWorker::ProductWorker(std::string core_type) : wanted_type_(std::move(core_type)) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0)
    throw Failure("no socket to a measuring process can be made");
  process_ = fork();
  if (process_ < 0) throw Failure("a process that measures matmuls cannot be started");
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    int status = 0;
    try {
      serve(wanted_type_, ends[1]);
    } catch (const std::exception& error) {
      tell("echelon: {}\n", error.what());
      status = 1;
    }
    _exit(status);
  }
  close(ends[1]);
  link_ = ends[0];
}

ProductWorker::~ProductWorker() {
  shutdown(link_, SHUT_RDWR);  // workers that started later have this end too, so closing it would tell nothing
  close(link_);
  int status = 0;
  waitpid(process_, &status, 0);
}

template <class T>
T ProductWorker::answer() {
  T value{};
  if (!receive(link_, value))
    throw Failure(
        fmt::format("the process that measured matmuls with OpenBLAS's kernels '{}' has ended", wanted_type_));
  return value;
}

std::optional<std::string> ProductWorker::core_type() {
  const std::string name = answer<CoreTypeName>().data();
  return wanted_type_.empty() || name == wanted_type_ ? std::optional(name) : std::nullopt;
}

double ProductWorker::time(const ProductJob& job) {
  if (!transmit(link_, job)) throw Failure("a process that measures matmuls has ended");
  return answer<double>();
}

}  // namespace echelon
