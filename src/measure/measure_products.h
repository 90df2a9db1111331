// Measures which kernels multiply matrices fastest on this machine, for `echelon bench` and a machine's file.
//
// OpenBLAS takes the kernels of one core type per process, so each core type has a process of its own. Candidates take
// turns, and the whole is repeated until two measurements agree.
#pragma once

#include "ops/cpu/product_choice.h"

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace echelon {

/// By dtype and name of kernels ("openblas/Haswell"): seconds of one core times seconds of all cores, in both cases of
/// all sizes, so that ratios are squares of mean ratios.
using ProductTimes = std::map<DType, std::map<std::string, double>>;

/// The fastest kernels. Others than those of `shipped` have to be 2 % faster. float32 decides about the core type where
/// it is OpenBLAS's, because a process has one.
[[nodiscard]] ProductChoice fastest_products(const ProductTimes& times, const ProductChoice& shipped);
/// How many times as fast as the shipped ones the kernels of a choice are; 1 where nothing else was measured.
[[nodiscard]] double speed_of(const ProductTimes& times, const ProductChoice& shipped, const ProductChoice& choice,
                              DType dtype);

struct MeasuredProducts {
  ProductChoice shipped = {}, fastest = {};
  std::string kind = {};
  ProductTimes times = {};  // of the last measurement
  int num_measurements = 0;
  bool is_kept = false;  // the last two measurements agree

  /// How many times as fast as the shipped kernels the fastest ones are.
  [[nodiscard]] double speed(DType dtype) const { return speed_of(times, shipped, fastest, dtype); }
  /// HostSpec::products; empty unless kept.
  [[nodiscard]] ProductNames of_machine() const;
};

struct ProductMeasurement {
  std::int64_t num_tokens = 512;  // rows of the matmuls
  int num_turns = 3;              // of each candidate in a measurement
  double most_seconds = 18;       // a measurement that would end later is not made
  std::function<void(double fraction)> progress = {};
};

/// On one core and on all of them. Called before OpenBLAS is loaded; otherwise the kernels of other core types than the
/// loaded one are not measured. The process has no other threads. Throws Failure if a measuring process fails.
[[nodiscard]] MeasuredProducts measure_products(const ProductMeasurement& options);

/// "matmuls of zen3: float32 own -> openblas/Haswell (1.24 x), float64 openblas/Haswell, ..."
[[nodiscard]] std::string to_text(const MeasuredProducts& products);
/// The same as JSON.
[[nodiscard]] nlohmann::ordered_json to_json(const MeasuredProducts& products);

}  // namespace echelon
