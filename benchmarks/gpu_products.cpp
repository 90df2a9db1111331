// What the products of a model's training step reach of a GPU's peak, one row per product of a block and of the head:
// forward (F), dx (D) and dw (W).
//
//     bench_gpu_products [machine = h100] [preset = llama3-8b] [tokens = 4096]
//
// Each is enqueued often enough to fill some 50 ms and waited for once, so the time of a launch counts only where the
// device is faster than the host; the best of three. Numbers are random: power, and with it the clock, depends on them.
// `machine` gives the peaks (machines/NAME.toml). ECHELON_CUDA_PLUGIN says which library computes.
#include "backend/backend.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/launch/run_ranks.h"
#include "ops/numbers.h"
#include "spec/machine/machine_spec.h"
#include "spec/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace echelon {
namespace {

struct Linear {
  std::string name;
  std::int64_t out = 0, in = 0;
};

std::vector<Linear> linears_of(const ModelSpec& model) {
  const std::int64_t D = model.hidden_size, F = model.intermediate_size, C = model.head_dim;
  return {{"q_proj, o_proj", model.num_attention_heads * C, D},
          {"k_proj, v_proj", model.num_key_value_heads * C, D},
          {"up_proj, gate_proj", F, D},
          {"down_proj", D, F},
          {"lm_head, 512 tokens", model.vocab_size, D}};
}

/// Random numbers on the device.
class Matrix {
 public:
  Matrix(RankDevice& device, DType dtype, Sizes sizes, unsigned seed) : memory_(device.memory()) {
    const std::int64_t num_bytes = sizes.num_elements() * size_of(dtype);
    tensor_ = Tensor(memory_.allocate(num_bytes), dtype, sizes);
    if (dtype == DType::int32) return;  // scratch
    const Numbers some = Numbers::random(dtype, {std::min<std::int64_t>(sizes.num_elements(), 1 << 20)}, seed);
    for (std::int64_t first = 0; first < sizes.num_elements(); first += some.count())
      device.ops().upload(tensor_.flat().rows(first, std::min(some.count(), sizes.num_elements() - first)),
                          some.tensor().data);
  }
  ~Matrix() { memory_.release(tensor_.data, tensor_.num_bytes()); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  operator Tensor() const { return tensor_; }

 private:
  MemorySpace& memory_;
  Tensor tensor_;
};

double seconds_of(Ops& ops, const MatmulArgs& product) {
  const auto run = [&](std::int64_t times) {
    double number = 0;
    const auto wait = [&] { ops.download(&number, product.c.flat().rows(0, 1)); };
    wait();
    const double before = now_seconds();
    for (std::int64_t i = 0; i < times; ++i) ops.matmul(product);
    wait();
    return (now_seconds() - before) / static_cast<double>(times);
  };
  (void)run(2);
  const auto times = static_cast<std::int64_t>(std::clamp(0.05 / run(3), 1.0, 10000.0));
  return std::min({run(times), run(times), run(times)});
}

struct Format {
  std::string name;
  DType dtype = DType::bfloat16;
  bool is_float8 = false;
};

class Bench {
 public:
  Bench(RankDevice& device, const DeviceSpec& peaks) : device_(device), peaks_(peaks) {}

  void print(const Linear& linear, std::int64_t tokens, const Format& format) {
    const DType sums = accumulate_dtype(format.dtype);
    const Matrix x(device_, format.dtype, {tokens, linear.in}, 1), w(device_, format.dtype, {linear.out, linear.in}, 2);
    const Matrix y(device_, format.dtype, {tokens, linear.out}, 3), dw(device_, sums, {linear.out, linear.in}, 4);
    const Matrix scratch(
        device_, DType::int32,
        {float8_scratch_size(tokens * std::max(linear.in, linear.out), std::max(tokens, linear.out) * linear.in)}, 0);
    print(linear.name + " F", {.a = x, .b = w, .c = y, .transpose_b = true}, format, scratch);
    print(linear.name + " D", {.a = y, .b = w, .c = x}, format, scratch);
    print(linear.name + " W", {.a = y, .b = x, .c = dw, .transpose_a = true, .accumulates = true}, format, scratch);
  }

 private:
  void print(const std::string& name, MatmulArgs args, const Format& format, Tensor scratch) {
    const std::int64_t M = args.c.size(0), N = args.c.size(1), K = args.a.size(args.transpose_a ? 0 : 1);
    if (format.is_float8) {
      args.a_format = name.back() == 'F' ? OperandFormat::float8_e4m3 : OperandFormat::float8_e5m2;
      args.b_format = OperandFormat::float8_e4m3;
      args = rounded_in(args, scratch.flat());
    }
    const double seconds = seconds_of(device_.ops(), args), flops = 2.0 * static_cast<double>(M * N * K) / seconds;
    const auto known = peaks_.formats.find(format.name);
    const std::string share =
        known == peaks_.formats.end() ? "" : fmt::format("{:5.1f} %", 100 * flops / known->second.peak_flops);
    fmt::print("{:<22} {:<9} {:>6} {:>6} {:>6} {:>9.1f} us {:>8.1f} TFLOP/s {}\n", name, format.name, M, N, K,
               1e6 * seconds, 1e-12 * flops, share);
  }

  RankDevice& device_;
  const DeviceSpec& peaks_;
};

void run(const std::string& machine_name, const std::string& preset_name, std::int64_t tokens) {
  const MachineSpec machine = read_machine(machine_name);
  const ModelSpec model = preset(preset_name);
  const std::unique_ptr<Backend> backend = open_backend(DeviceChoice::cuda);
  run_ranks(MeshShape(), place_ranks(CommBackend::thread, 1), 300, [&](Mesh& host) {
    const std::unique_ptr<RankDevice> device = backend->open(host, {.deterministic = false});
    fmt::print("{}; {} with {} tokens; peaks of {}\n", device->description(), preset_name, tokens, machine.name);
    Bench bench(*device, machine.nodes.front().device);
    for (const Linear& linear : linears_of(model)) {
      const bool is_head = linear.out == model.vocab_size;
      for (const Format& format : {Format{"bfloat16"}, Format{"float8", DType::bfloat16, true}})
        if (!is_head || !format.is_float8) bench.print(linear, is_head ? 512 : tokens, format);
    }
  });
}

}  // namespace
}  // namespace echelon

int main(int count, char** arguments) {
  try {
    const auto argument = [&](int i, const char* otherwise) {
      return std::string(i < count ? arguments[i] : otherwise);
    };
    echelon::run(argument(1, "h100"), argument(2, "llama3-8b"), std::atoll(argument(3, "4096").c_str()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
