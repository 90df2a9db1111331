#include "measure/measure_device.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/philox.h"
#include "comm/thread/thread_world.h"
#include "ops/visit.h"
#include "tensor/arena.h"

#include <algorithm>
#include <cmath>

namespace echelon {
namespace {

struct MatmulFormat {
  std::string_view name;
  DType dtype;
  bool is_float8 = false;
  bool is_of_tensor_cores = true;
};
constexpr MatmulFormat measured_formats[] = {{"bfloat16", DType::bfloat16},
                                             {"float16", DType::float16},
                                             {"float8", DType::bfloat16, true},
                                             {"tensorfloat32", DType::float32},
                                             {"float32", DType::float32, false, false},
                                             {"float64", DType::float64, false, false}};

struct MatmulSize {
  std::int64_t m = 0, n = 0, k = 0;
  bool operator==(const MatmulSize&) const = default;
};

/// Tokens and widths of models up to some 10 B parameters, and a vocabulary. Formats without tensor cores are slow and
/// rarely needed.
std::vector<MatmulSize> sizes_of(const MatmulFormat& format, std::int64_t largest) {
  const std::vector<std::int64_t> tokens =
      format.is_of_tensor_cores ? std::vector<std::int64_t>{512, 2048, 8192} : std::vector<std::int64_t>{2048};
  constexpr std::int64_t widths[] = {768, 2048, 4096, 16384}, vocabulary = 51200;
  std::vector<MatmulSize> sizes;
  const auto add = [&](MatmulSize size) {
    size = {std::min(size.m, largest), std::min(size.n, 4 * largest), std::min(size.k, largest)};
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  };
  for (const std::int64_t m : tokens)
    for (const std::int64_t k : widths) {
      for (const std::int64_t n : widths) add({m, std::min(n, largest), k});
      if (k <= 4096) add({m, vocabulary, k});
    }
  return sizes;
}

std::int64_t bytes_of(const MatmulSize& s, const MatmulFormat& format) {
  const std::int64_t elements = s.m * s.k + s.n * s.k + s.m * s.n, width = size_of(format.dtype);
  const std::int64_t float32_gradients = s.n * s.k * size_of(accumulate_dtype(format.dtype));
  const std::int64_t scratch =
      format.is_float8 ? 4 * float8_scratch_size(std::max(s.m * s.k, s.m * s.n), std::max(s.n * s.k, s.m * s.n)) : 0;
  return elements * width + float32_gradients + scratch + 8 * alignment_bytes;
}

/// Values as in a model: power, and therefore the clock rate, depends on them.
class Filler {
 public:
  explicit Filler(Ops& ops) : ops_(ops) {}

  void fill(const Tensor& x) {
    visit_float(x.dtype, [&](auto number) {
      using T = decltype(number);
      const std::vector<T>& some = numbers<T>();
      const auto count = static_cast<std::int64_t>(some.size());
      for (std::int64_t first = 0; first < x.num_elements(); first += count)
        ops_.upload(x.flat().rows(first, std::min(count, x.num_elements() - first)), some.data());
    });
  }

 private:
  template <class T>
  const std::vector<T>& numbers() {
    static thread_local std::vector<T> some;
    if (!some.empty()) return some;
    some.resize(std::size_t{1} << 20U);
    for (std::uint32_t i = 0; i < some.size(); ++i) {
      double sum = -2;  // sum of four uniform values: nearly normal
      for (const std::uint32_t word : philox4x32_10({i, 0, 0, 0}, {1, 2})) sum += static_cast<double>(word) * 0x1p-32;
      some[i] = to<T>(static_cast<Accumulate<T>>(sum));
    }
    return some;
  }

  Ops& ops_;
};

class Meter {
 public:
  Meter(RankDevice& device, const DeviceMeasurement& options) : ops_(device.ops()), options_(options) {}

  /// Seconds of one call among many consecutive ones; the median of the rounds.
  template <class Enqueue>
  double seconds_of(Enqueue&& enqueue) {
    const auto run = [&](std::int64_t times) {
      ops_.finish();
      const double start = now_seconds();
      for (std::int64_t i = 0; i < times; ++i) enqueue();
      ops_.finish();
      return (now_seconds() - start) / static_cast<double>(times);
    };
    (void)run(1);  // selects its algorithm
    const double once = std::max(run(2), 1e-7);
    const auto times = static_cast<std::int64_t>(std::clamp(options_.sample_seconds / once, 1.0, 20000.0));
    std::vector<double> seconds;
    for (int round = 0; round < options_.num_rounds; ++round) seconds.push_back(run(times));
    return median(std::move(seconds));
  }
  /// Of the host, to issue one call, while so few are pending that it does not wait for the device.
  template <class Enqueue>
  double issue_seconds_of(Enqueue&& enqueue) {
    constexpr int num_issued = 64;
    std::vector<double> seconds;
    for (int round = 0; round < options_.num_rounds; ++round) {
      ops_.finish();
      const double start = now_seconds();
      for (int i = 0; i < num_issued; ++i) enqueue();
      seconds.push_back((now_seconds() - start) / num_issued);
    }
    return median(std::move(seconds));
  }

 private:
  Ops& ops_;
  const DeviceMeasurement& options_;
};

struct MatmulSeconds {
  double forward = 0;  // y = x w^T
  double mean = 0;     // of the three
};

/// The three matmuls of a linear layer from k to n features on m tokens, of equal flops.
MatmulSeconds matmul_seconds(RankDevice& device, Meter& meter, const Arena& arena, const MatmulSize& s,
                             const MatmulFormat& format) {
  Ops& ops = device.ops();
  Stack stack = arena.region(0, arena.num_bytes());
  const Tensor x = stack.take(format.dtype, {s.m, s.k}), w = stack.take(format.dtype, {s.n, s.k}),
               y = stack.take(format.dtype, {s.m, s.n});
  const Tensor dw = stack.take(accumulate_dtype(format.dtype), {s.n, s.k});
  Filler filler(ops);
  for (const Tensor& each : {x, w, y}) filler.fill(each);
  ops.fill(dw, 0);
  const auto seconds = [&](MatmulArgs args, OperandFormat a_format) {
    const Stack::Scope scope(stack);
    if (format.is_float8) {
      args.a_format = a_format;
      args.b_format = OperandFormat::float8_e4m3;
      args = rounded_in(args,
                        stack.take(DType::int32, {float8_scratch_size(args.a.num_elements(), args.b.num_elements())}));
      ops.matmul(args);
      args.a_rounded.is_made = args.b_rounded.is_made = true;  // roundings are bound by memory, and shared
    }
    return meter.seconds_of([&] { ops.matmul(args); });
  };
  const double forward = seconds({.a = x, .b = w, .c = y, .transpose_b = true}, OperandFormat::float8_e4m3);
  filler.fill(y);  // repeated matmuls would grow
  double sum = forward +
               seconds({.a = y, .b = x, .c = dw, .transpose_a = true, .accumulates = true}, OperandFormat::float8_e5m2);
  sum += seconds({.a = y, .b = w, .c = x}, OperandFormat::float8_e5m2);
  return {.forward = forward, .mean = sum / 3};
}

AttentionTime attention_time(RankDevice& device, Meter& meter, DType dtype, std::int64_t largest_size) {
  AttentionTime time = {.num_heads = 16,
                        .seq_len = std::min<std::int64_t>(4096, largest_size),
                        .head_dim = std::min<std::int64_t>(128, largest_size)};
  const Sizes sizes = {1, time.seq_len, time.num_heads, time.head_dim}, rows = {1, time.num_heads, time.seq_len};
  const Tensor shape(nullptr, dtype, sizes);
  const std::int64_t scratch_size =
      // As in training if cuDNN supports it (model_part.cpp).
      dtype == DType::bfloat16 ? attention_scratch_size(shape, shape) : 0;
  const Arena arena(8 * aligned(shape.num_bytes()) +
                        2 * aligned(rows.num_elements() * size_of(accumulate_dtype(dtype))) +
                        aligned(scratch_size * size_of(DType::int32)),
                    device.memory());
  Stack stack = arena.region(0, arena.num_bytes());
  Tensor t[8];
  for (Tensor& each : t) Filler(device.ops()).fill(each = stack.take(dtype, sizes));
  const Tensor lse = stack.take(accumulate_dtype(dtype), rows), delta = stack.take(accumulate_dtype(dtype), rows);
  const Tensor scratch = scratch_size > 0 ? stack.take(DType::int32, {scratch_size}) : Tensor();
  const double scale = 1 / std::sqrt(static_cast<double>(time.head_dim));
  Ops& ops = device.ops();
  time.seconds = meter.seconds_of(
      [&] { ops.attention({.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = lse, .scale = scale}); });
  time.seconds += meter.seconds_of([&] {
    ops.attention_backward({.q = t[0],
                            .k = t[1],
                            .v = t[2],
                            .out = t[3],
                            .lse = lse,
                            .dout = t[4],
                            .dq = t[5],
                            .dk = t[6],
                            .dv = t[7],
                            .delta = delta,
                            .scale = scale,
                            .scratch = scratch});
  });
  return time;
}

/// The other rates: memory bandwidth, the smallest operation and its launch, and transfers from the host.
void measure_memory(RankDevice& device, Meter& meter, DeviceSpec& spec, std::int64_t largest_size) {
  const std::int64_t count = std::min<std::int64_t>(std::int64_t{64} << 20U, largest_size * largest_size / 4);
  const Arena arena(2 * aligned(count * size_of(DType::float32)), device.memory());
  Stack stack = arena.region(0, arena.num_bytes());
  const Tensor x = stack.take(DType::float32, {count}), y = stack.take(DType::float32, {count});
  Ops& ops = device.ops();
  ops.fill(x, 1);
  const auto bytes = static_cast<double>(x.num_bytes());
  spec.memory_bandwidth = 2 * bytes / meter.seconds_of([&] { ops.copy(y, x); });
  const auto smallest = [&] { ops.scale(y.rows(0, 1), 1); };
  spec.operation_seconds = meter.seconds_of(smallest);
  spec.launch_seconds = meter.issue_seconds_of(smallest);
  const std::vector<float> host(static_cast<std::size_t>(count), 1.0F);
  spec.host_bandwidth = bytes / meter.seconds_of([&] { ops.upload(x, host.data()); });
}

class DeviceSession {
 public:
  DeviceSession(Backend& backend, const DeviceMeasurement& options) : backend_(backend), options_(options) {}

  [[nodiscard]] MeasuredDevice run() {
    open({}, [&](RankDevice& device) { facts_ = device.facts(); });
    MeasuredDevice measured;
    DeviceSpec& spec = measured.device;
    spec.name = facts_.name;
    spec.memory_bytes = facts_.memory_bytes;
    spec.num_multiprocessors = facts_.num_multiprocessors;
    tell("memory", 0);
    open({}, [&](RankDevice& device) {
      Meter meter(device, options_);
      measure_memory(device, meter, spec, options_.largest_size);
    });
    for (const MatmulFormat& format : measured_formats) {
      if (format.is_float8 && !facts_.multiplies_float8) continue;
      open({.allows_tf32 = format.name == "tensorfloat32", .needs_float8 = format.is_float8},
           [&](RankDevice& device) { measure_format(device, format, measured); });
    }
    return measured;
  }

 private:
  template <class F>
  void open(RankOptions options, F&& f) {
    options.deterministic = false;  // capabilities of the device
    run_thread_ranks(MeshShape(), {}, [&](Mesh& host) {
      const std::unique_ptr<RankDevice> device = backend_.open(host, options);
      f(*device);
    });
  }

  void measure_format(RankDevice& device, const MatmulFormat& format, MeasuredDevice& measured) {
    Meter meter(device, options_);
    FormatRates& rates = measured.device.formats[std::string(format.name)];
    std::vector<MatmulSize> sizes = sizes_of(format, options_.largest_size);
    const std::int64_t room = facts_.memory_bytes > 0 ? facts_.memory_bytes / 4 : std::int64_t{1} << 30U;
    std::erase_if(sizes, [&](const MatmulSize& s) { return bytes_of(s, format) > room; });
    std::int64_t most = 0;
    for (const MatmulSize& s : sizes) most = std::max(most, bytes_of(s, format));
    const Arena arena(aligned(most), device.memory());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      tell(format.name, static_cast<double>(i) / static_cast<double>(sizes.size()));
      const MatmulSize& s = sizes[i];
      const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
      const MatmulSeconds seconds = matmul_seconds(device, meter, arena, s, format);
      rates.points.push_back({s.m, s.n, s.k, flops / seconds.mean});
      rates.fastest_flops = std::max(rates.fastest_flops, flops / seconds.forward);
      rates.peak_flops = std::max({rates.peak_flops, rates.fastest_flops, rates.points.back().flops});
    }
    const bool has_attention = format.name == name_of(format.dtype) && format.dtype != DType::float64;
    if (has_attention)
      measured.attention[std::string(format.name)] = attention_time(device, meter, format.dtype, options_.largest_size);
    tell(format.name, 1);
  }

  void tell(std::string_view what, double fraction) const {
    if (options_.progress) options_.progress(what, fraction);
  }

  Backend& backend_;
  const DeviceMeasurement& options_;
  DeviceFacts facts_;
};

}  // namespace

MeasuredDevice measure_device(Backend& backend, const DeviceMeasurement& options) {
  return DeviceSession(backend, options).run();
}

}  // namespace echelon
