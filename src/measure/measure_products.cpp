#include "measure/measure_products.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/median.h"
#include "machine/cpus.h"
#include "measure/product_worker.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/processor_kind.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

namespace echelon {
namespace {

constexpr double least_gain = 1.02, most_difference = 0.05;

/// The workers by core type, and what they can time.
class Candidates {
 public:
  /// Names the core type of `shipped` where that leaves it to OpenBLAS.
  explicit Candidates(ProductChoice& shipped) {
    for (const std::string& type : measurable_core_types(shipped)) {
      auto worker = std::make_unique<ProductWorker>(type);
      const std::optional<std::string> name = worker->core_type();
      if (type.empty()) shipped.core_type = name.value_or("");
      if (name) workers_.emplace(*name, std::move(worker));
    }
    if (workers_.empty()) throw Failure("OpenBLAS has none of the kernels that are measured");
    for (const DType dtype : product_dtypes)
      for (const ProductKernels kernels : possible_kernels(dtype)) add(dtype, kernels);
    std::erase_if(candidates_, [](const auto& of_dtype) { return of_dtype.second.size() < 2; });
  }

  /// Every candidate in each turn, on one core and on all of them.
  [[nodiscard]] ProductTimes times(const ProductMeasurement& options) const {
    std::map<std::tuple<DType, std::string, int>, std::vector<double>> seconds;
    const std::vector<int> cores =
        num_usable_cores() > 1 ? std::vector<int>{1, num_usable_cores()} : std::vector<int>{1};
    for (int turn = 0; turn < options.num_turns; ++turn)
      for (const int num_threads : cores)
        for (const auto& [dtype, names] : candidates_)
          for (const auto& [name, kernels] : names)
            seconds[{dtype, name, num_threads}].push_back(
                worker_of(name).time({dtype, kernels, num_threads, options.num_tokens}));
    ProductTimes result;
    for (const auto& [key, values] : seconds) {
      double& product = result[std::get<DType>(key)].try_emplace(std::get<std::string>(key), 1.0).first->second;
      product *= cores.size() == 1 ? std::pow(median(values), 2) : median(values);
    }
    return result;
  }

 private:
  void add(DType dtype, ProductKernels kernels) {
    if (kernels != ProductKernels::openblas) {
      const std::string name(name_of(kernels));
      if (!obstacle_of(ProductNames{{std::string(name_of(dtype)), name}}, dtype)) candidates_[dtype][name] = kernels;
      return;
    }
    for (const auto& [type, worker] : workers_) candidates_[dtype][fmt::format("openblas/{}", type)] = kernels;
  }
  [[nodiscard]] ProductWorker& worker_of(const std::string& name) const {
    const auto found = workers_.find(name.substr(name.find('/') + 1));
    return found == workers_.end() ? *workers_.begin()->second : *found->second;
  }

  std::map<std::string, std::unique_ptr<ProductWorker>> workers_;
  std::map<DType, std::map<std::string, ProductKernels>> candidates_;
};

/// Of those whose name the test accepts, the fastest: the shipped one unless another is faster by more than chance.
template <class Accepts>
std::string fastest_name(const std::map<std::string, double>& times, const std::string& shipped, Accepts&& accepts) {
  const auto own = times.find(shipped);
  std::string best;
  double best_time = INFINITY;
  if (own != times.end() && accepts(shipped)) {
    best = shipped;
    best_time = own->second / (least_gain * least_gain);
  }
  for (const auto& [name, time] : times)
    if (accepts(name) && time < best_time) std::tie(best, best_time) = std::tie(name, time);
  return best;
}

bool agree(const MeasuredProducts& a, const MeasuredProducts& b) {
  return a.fastest == b.fastest && std::ranges::all_of(product_dtypes, [&](DType dtype) {
           return std::abs(a.speed(dtype) / b.speed(dtype) - 1) < most_difference;
         });
}

/// "own -> openblas/Haswell (1.24 x)"
std::string change_text(const MeasuredProducts& products, DType dtype) {
  const std::string was = name_of(products.shipped, dtype), is = name_of(products.fastest, dtype);
  return was == is ? was : fmt::format("{} -> {} ({:.2f} x)", was, is, products.speed(dtype));
}

}  // namespace

ProductChoice fastest_products(const ProductTimes& times, const ProductChoice& shipped) {
  ProductChoice choice;
  const auto take = [&](DType dtype) {
    const auto measured = times.find(dtype);
    const auto has_core_type = [&](const std::string& name) {
      return choice.core_type.empty() || !name.starts_with("openblas/") || name.ends_with("/" + choice.core_type);
    };
    std::string name;
    if (measured != times.end()) name = fastest_name(measured->second, name_of(shipped, dtype), has_core_type);
    set_products(choice, dtype, name.empty() ? name_of(shipped, dtype) : name, "");
  };
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) take(dtype);
  return choice;
}

double speed_of(const ProductTimes& times, const ProductChoice& shipped, const ProductChoice& choice, DType dtype) {
  const auto measured = times.find(dtype);
  if (measured == times.end()) return 1;
  const auto was = measured->second.find(name_of(shipped, dtype)), is = measured->second.find(name_of(choice, dtype));
  if (was == measured->second.end() || is == measured->second.end()) return 1;
  return std::sqrt(was->second / is->second);
}

ProductNames MeasuredProducts::of_machine() const {
  if (!is_kept) return {};
  ProductNames names = names_of(fastest);
  names["kind"] = kind;
  return names;
}

MeasuredProducts measure_products(const ProductMeasurement& options) {
  MeasuredProducts last = {.shipped = default_products(), .kind = std::string(name_of(processor_kind()))};
  const Candidates candidates(last.shipped);
  const double start = now_seconds();
  for (double seconds_each = 0; !last.is_kept;) {
    const double spent = now_seconds() - start;
    if (last.num_measurements > 1 && spent + seconds_each > options.most_seconds) break;
    if (options.progress) options.progress(std::min(0.99, spent / options.most_seconds));
    MeasuredProducts now = last;
    now.times = candidates.times(options);
    ++now.num_measurements;
    now.fastest = fastest_products(now.times, now.shipped);
    now.is_kept = last.num_measurements > 0 && agree(last, now);
    last = now;
    seconds_each = (now_seconds() - start) / last.num_measurements;
  }
  if (options.progress) options.progress(1);
  return last;
}

std::string to_text(const MeasuredProducts& products) {
  std::string text;
  for (const DType dtype : product_dtypes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(dtype), change_text(products, dtype));
  const std::string kept = products.is_kept ? ""
                                            : fmt::format(
                                                  "; not kept, because no two of {} measurements agreed: other "
                                                  "processes may use the cores",
                                                  products.num_measurements);
  return fmt::format("matmuls of {}: {}{}", products.kind, text, kept);
}

nlohmann::ordered_json to_json(const MeasuredProducts& products) {
  nlohmann::ordered_json json = {
      {"kind", products.kind}, {"is_kept", products.is_kept}, {"num_measurements", products.num_measurements}};
  for (const DType dtype : product_dtypes) {
    nlohmann::ordered_json speeds = nlohmann::ordered_json::object();
    if (const auto measured = products.times.find(dtype); measured != products.times.end())
      for (const auto& [name, time] : measured->second)
        speeds[name] = std::sqrt(measured->second.at(name_of(products.fastest, dtype)) / time);
    json[std::string(name_of(dtype))] = {{"shipped", name_of(products.shipped, dtype)},
                                         {"fastest", name_of(products.fastest, dtype)},
                                         {"speed", products.speed(dtype)},
                                         {"speeds_of_fastest", speeds}};
  }
  return json;
}

}  // namespace echelon
