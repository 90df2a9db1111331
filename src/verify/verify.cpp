#include "verify/verify.h"

namespace echelon {
namespace {

/// Runs a layout and compares it with the reference, step by step.
struct ComparedRun {
  ComparedRun(const RunConfig& config, const BatchSource& batches, const Reference& reference,
              const Interpose& interpose)
      : blueprint(config), comparison(reference, config, tolerances_of(config.training.dtype)) {
    run_layout({.blueprint = blueprint, .batches = batches, .num_steps = reference.num_steps(), .interpose = interpose},
               comparison);
  }

  Blueprint blueprint;
  Comparison comparison;
};

}  // namespace

Verdict verify(const RunConfig& config, const BatchSource& batches, const VerifyOptions& options) {
  Reference reference;
  run_reference(config, batches, options.num_steps, reference);
  const ComparedRun layout(config, batches, reference, options.interpose);

  Verdict verdict;
  verdict.tolerances = tolerances_of(config.training.dtype);
  for (int i = 0; i < num_quantities; ++i)
    verdict.worst[static_cast<std::size_t>(i)] = layout.comparison.worst(static_cast<Quantity>(i));
  const bool is_float64 = config.training.dtype == DType::float64;
  const Case at = {.blueprint = layout.blueprint,
                   .batches = batches,
                   .interpose = options.interpose,
                   .reference = reference,
                   .differences = layout.comparison.differences(),
                   .results = layout.comparison.results(),
                   .tolerance = is_float64 ? 1e-9 : 1e-4,
                   .precision = is_float64 ? 1e-6 : 1e-2};
  if (at.differences.empty()) return verdict;
  verdict.first = at.differences.front();
  verdict.place = describe_place(at, *verdict.first);
  verdict.diagnosis = diagnose(at, [&](const RunConfig& other) {
    return !ComparedRun(other, batches, reference, options.interpose).comparison.differences().empty();
  });
  return verdict;
}

}  // namespace echelon
