#include "verify/verify.h"

#include "base/error.h"

#include <cmath>

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

constexpr double precision_of_reads(DType dtype) { return dtype == DType::float64 ? 1e-9 : 1e-4; }

/// The reference of a model with experts: one rank takes the layout's choice between scores that are closer than
/// rounding.
ChoiceComparison run_replaying(const RunConfig& config, const BatchSource& batches, const VerifyOptions& options,
                               Reference& reference) {
  Choices choices;
  RunObserver observer;
  const Blueprint layout(config), one(one_rank(config));
  run_layout({.blueprint = layout,
              .batches = batches,
              .num_steps = options.num_steps,
              .interpose = recorded(layout, batches, choices, options.interpose)},
             observer);
  ChoiceComparison comparison;
  run_layout({.blueprint = one,
              .batches = batches,
              .num_steps = options.num_steps,
              .interpose = replayed({.one_rank = one,
                                     .batches = batches,
                                     .choices = choices,
                                     .rounding = precision_of_reads(config.training.dtype)},
                                    options.interpose_reference, comparison)},
             reference);
  return comparison;
}

/// A wrong choice explains the output of its layer, which nothing else explains.
void explain_by_choice(const ChoiceComparison& choices, const Difference& first, Finding& finding) {
  const std::string& router = choices.first_wrong.router;
  const std::string layer = router.substr(0, router.rfind("gate.weight"));
  if (finding.kind != FaultKind::unknown || choices.num_wrong == 0 || choices.first_wrong.step != first.step) return;
  if (finding.tensor.find(layer) == std::string::npos) return;
  finding.kind = FaultKind::wrong_choice;
  finding.tensor = router;
  finding.evidence = choices.sentence;
}

bool is_finite(const TensorCollection& tensors) {
  for (const auto& [name, values] : tensors.tensors())
    for (const double value : values)
      if (!std::isfinite(value)) return false;
  return true;
}

/// The first quantity of a step that is not finite, with its value; empty: none.
std::string diverged_quantity(const ReferenceStep& step) {
  if (!std::isfinite(step.loss)) return fmt::format("a loss of {}", step.loss);
  if (!std::isfinite(step.grad_norm)) return fmt::format("a gradient norm of {}", step.grad_norm);
  return is_finite(step.gradients) && is_finite(step.weights) ? "" : "a gradient or a weight that is not finite";
}

/// NaN is equal to nothing: a layout without a fault would differ.
void require_finite(const Reference& reference, const RunConfig& config) {
  for (std::int64_t i = 1; i <= reference.num_steps(); ++i) {
    const std::string diverged = diverged_quantity(reference.step(i));
    if (diverged.empty()) continue;
    throw Failure(fmt::format(
        "step {} of one rank has {}: the run diverges, and no layout can be compared with it (use {}a lower "
        "optimizer.lr = {})",
        i, diverged, i > 1 ? fmt::format("--steps={} or ", i - 1) : "", config.optimizer.lr));
  }
}

}  // namespace

Verdict verify(const RunConfig& config, const BatchSource& batches, const VerifyOptions& options) {
  Reference reference;
  Verdict verdict;
  if (config.model.has_experts())
    verdict.choices = run_replaying(config, batches, options, reference);
  else
    run_reference(config, batches, options.num_steps, reference);
  require_finite(reference, config);
  const ComparedRun layout(config, batches, reference, options.interpose);

  verdict.tolerances = tolerances_of(config.training.dtype);
  for (int i = 0; i < num_quantities; ++i)
    verdict.worst[static_cast<std::size_t>(i)] = layout.comparison.worst(static_cast<Quantity>(i));
  const Case at = {.blueprint = layout.blueprint,
                   .batches = batches,
                   .interpose = options.interpose,
                   .reference = reference,
                   .differences = layout.comparison.differences(),
                   .results = layout.comparison.results(),
                   .routers = layout.comparison.routers(),
                   .tolerance = precision_of_reads(config.training.dtype),
                   .precision = config.training.dtype == DType::float64 ? 1e-6 : 1e-2};
  if (at.differences.empty()) return verdict;
  verdict.first = at.differences.front();
  verdict.place = describe_place(at, *verdict.first);
  verdict.diagnosis = diagnose(at, [&](const RunConfig& other) {
    return !ComparedRun(other, batches, reference, options.interpose).comparison.differences().empty();
  });
  if (verdict.choices) explain_by_choice(*verdict.choices, *verdict.first, verdict.diagnosis->finding);
  return verdict;
}

}  // namespace echelon
