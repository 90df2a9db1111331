#include "verify/diagnosis.h"

#include "base/error.h"
#include "report/system_memory.h"
#include "verify/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace echelon {
namespace {

const Difference* find(const Case& at, std::int64_t step, Quantity quantity) {
  const auto found = std::ranges::find_if(at.differences, [&](const Difference& difference) {
    return difference.step == step && difference.quantity == quantity;
  });
  return found == at.differences.end() ? nullptr : &*found;
}

/// What a step had computed before, equal to one rank's.
const char* what_is_right(Quantity quantity) {
  switch (quantity) {
    case Quantity::loss: return "";
    case Quantity::router: return ", with the right loss";
    case Quantity::gradient: return ", with the right loss";
    case Quantity::norm: return ", with right gradients";
    case Quantity::weight:
      return ", with right gradients and their right norm: the update is wrong, or the weights changed after it";
  }
  return "";
}

/// A description of the first difference if nothing explains it.
Finding plain_finding(const Case& at) {
  const Difference& first = at.differences.front();
  const std::string when = first.quantity == Quantity::weight && first.step == 0
                               ? "initial values"
                               : fmt::format("{} of step {}", name_of(first.quantity), first.step);
  return {.kind = FaultKind::unknown,
          .axis = {},
          .tensor = first.tensor,
          .where = fmt::format("{}, {}", when, describe_place(at, first)),
          .evidence = fmt::format("the error is {:.2g}{}", first.error, what_is_right(first.quantity))};
}

/// The reads of a step are stored twice, which for a large model would exceed the memory of the machine.
bool has_memory_for_activations(const RunConfig& config) {
  const ModelSpec& model = config.model;
  const double per_token = static_cast<double>(model.num_hidden_layers) *
                           static_cast<double>(16 * model.hidden_size + 3 * model.intermediate_size);
  const double bytes =
      2 * 8 * per_token * static_cast<double>(config.training.global_batch_size * config.training.seq_len);
  return system_memory_bytes() == 0 || bytes < 0.25 * static_cast<double>(system_memory_bytes());
}

std::vector<Finding> activation_findings(const Case& at, std::int64_t step, bool is_backward) {
  if (has_memory_for_activations(at.config())) return explain_activations(at, step, is_backward);
  Finding unknown = plain_finding(at);
  unknown.evidence +=
      "; what layers read was not compared, since it needs a smaller model (--hidden, --layers) or a smaller batch";
  return {unknown};
}

/// All findings that fit the first difference. Quantities are tested in the order in which a step computes them.
std::vector<Finding> findings_of(const Case& at) {
  const Difference& first = at.differences.front();
  std::vector<Finding> findings;
  switch (first.quantity) {
    case Quantity::weight: return explain_weight(at, first);
    case Quantity::norm: return explain_norm(at, first);
    case Quantity::router: return explain_router(at, first);
    case Quantity::loss:
      findings = activation_findings(at, first.step, false);
      if (!findings.empty()) return findings;
      [[fallthrough]];
    case Quantity::gradient: {
      if (const Difference* gradient = find(at, first.step, Quantity::gradient))
        findings = explain_gradient(at, *gradient);
      if (findings.empty() && first.quantity == Quantity::loss) findings = explain_loss(at, first);
      if (findings.empty()) findings = activation_findings(at, first.step, true);
      return findings;
    }
  }
  return findings;
}

}  // namespace

RunConfig without_axis(RunConfig config, const std::string& axis) {
  ParallelConfig& p = config.parallelism;
  const ParallelConfig plain;
  if (axis == "dp_replicate") p.data_parallel_replicate_degree = 1;
  if (axis == "dp_shard") {
    p.data_parallel_shard_degree = 1;
    p.zero_level = plain.zero_level;
    p.reshard_after_forward = plain.reshard_after_forward;
    p.prefetch_depth = plain.prefetch_depth;
  }
  if (axis == "cp") {
    p.context_parallel_degree = 1;
    p.context_parallel_load_balancer = plain.context_parallel_load_balancer;
    p.context_parallel_method = plain.context_parallel_method;
    p.context_parallel_ulysses_degree = plain.context_parallel_ulysses_degree;
    p.hierarchical_context_parallel_sizes.clear();
  }
  if (axis == "tp") p.tensor_parallel_degree = 1;
  if (axis == "tp" || axis == "sequence_parallel") p.sequence_parallel = false;
  if (axis == "pp") {
    p.pipeline_parallel_degree = 1;
    p.pipeline_parallel_layout = plain.pipeline_parallel_layout;
    p.virtual_stages = plain.virtual_stages;
    config.training.recompute_num_layers =
        std::min(config.training.recompute_num_layers, config.model.num_hidden_layers);
  }
  // A file has a fixed number of microbatches and ranks, and some schedules need many microbatches.
  if (axis == "pp" || axis == "microbatches" || !p.pipeline_parallel_schedule_csv.empty()) {
    p.pipeline_parallel_schedule = plain.pipeline_parallel_schedule;
    p.pipeline_parallel_schedule_csv.clear();
    p.virtual_stages = plain.virtual_stages;
    if (num_stages_of(p.pipeline_parallel_layout) != p.pipeline_parallel_degree)
      p.pipeline_parallel_layout = plain.pipeline_parallel_layout;
  }
  if (axis == "microbatches")
    config.training.micro_batch_size = config.training.global_batch_size / config.data_parallel_degree();
  return config;
}

std::string Diagnosis::sentence() const {
  std::string text = fmt::format("{}", finding.kind == FaultKind::unknown ? "an unknown fault" : name_of(finding.kind));
  const bool says_axis =
      finding.kind == FaultKind::lost_microbatches || finding.kind == FaultKind::repeated_microbatches;
  if (!finding.axis.empty() && !says_axis) text += " over " + finding.axis;
  if (!finding.tensor.empty()) text += ": " + finding.tensor;
  text += fmt::format(": {} ({})", finding.evidence, finding.where);
  if (!gone_without.empty())
    text += fmt::format("; the difference is gone without {}", fmt::join(gone_without, ", or without "));
  if (gone_without.empty() && !stays_without.empty())
    text += fmt::format("; the difference stays without {}", fmt::join(stays_without, ", and without "));
  if (!fails_without.empty())
    text += fmt::format("; the run fails without {}", fmt::join(fails_without, ", and without "));
  return text;
}

Diagnosis diagnose(const Case& at, const std::function<bool(const RunConfig& layout)>& differs) {
  Diagnosis diagnosis;
  std::vector<LayoutAxis> axes = axes_of(at.config());
  if (at.config().parallelism.sequence_parallel && at.mesh().degree(Axis::tp) > 1)
    axes.push_back({"sequence_parallel", 2});
  for (const LayoutAxis& axis : axes) {
    if (axis.name.find('+') != std::string::npos) continue;
    try {
      (differs(without_axis(at.config(), axis.name)) ? diagnosis.stays_without : diagnosis.gone_without)
          .push_back(axis.name);
    } catch (const Error& error) {  // bad input: the layout is impossible
      if (error.status() != ExitStatus::bad_input)
        diagnosis.fails_without.push_back(fmt::format("{} ({})", axis.name, error.what()));
    }
  }
  std::vector<Finding> findings = findings_of(at);
  if (findings.empty()) findings.push_back(plain_finding(at));
  // Values cannot distinguish axes of equal degree. The axis at fault is the one whose removal removes the difference.
  const auto explains = std::ranges::find_if(findings, [&](const Finding& finding) {
    return std::ranges::any_of(diagnosis.gone_without,
                               [&](const std::string& axis) { return has_axis(finding.axis, axis); });
  });
  diagnosis.finding = explains != findings.end() ? *explains : findings.front();
  if (diagnosis.finding.axis.empty())
    diagnosis.finding.axis = fmt::format("{}", fmt::join(diagnosis.gone_without, "+"));
  return diagnosis;
}

}  // namespace echelon
