// The fitted constants, by GPU type and software generation. docs/accuracy.md says what they were fitted to and how well they do on runs that were left out.
#include "predict/software_profile.h"

#include <algorithm>

namespace echelon {
namespace {

struct Entry {
  std::string_view gpu, generation;
  Calibration calibration;
};

const Entry entries[] = {
    {"A100",
     "megatron",
     {.matmul_efficiency = 0.92, .memory_efficiency = 0.748, .operation_seconds = 5.06e-06, .link_efficiency = 0.581, .network_efficiency = 0.496}},
    {"A100",
     "megatron-2020",
     {.matmul_efficiency = 0.8, .memory_efficiency = 0.793, .operation_seconds = 6.13e-06, .link_efficiency = 0.791, .network_efficiency = 1}},
    {"A100",
     "megatron-deepspeed",
     {.matmul_efficiency = 0.85, .memory_efficiency = 0.743, .operation_seconds = 7.49e-06, .link_efficiency = 0.984, .network_efficiency = 0.528}},
    {"A100",
     "bloom",
     {.matmul_efficiency = 0.75, .memory_efficiency = 0.799, .operation_seconds = 5.44e-06, .link_efficiency = 0.329, .network_efficiency = 0.365}},
    {"A100", "deepspeed-zero3", {.matmul_efficiency = 0.846, .memory_efficiency = 0.91, .network_efficiency = 0.196, .network_latency = 1.6e-05}},
    {"A100",
     "zero-bubble",
     {.matmul_efficiency = 0.843, .memory_efficiency = 1, .operation_seconds = 5.72e-06, .link_efficiency = 0.718, .network_efficiency = 0.784}},
    {"A100",
     "llm-foundry",
     {.matmul_efficiency = 0.764, .attention_efficiency = 0.428, .memory_efficiency = 0.691, .operation_seconds = 6.99e-06, .network_efficiency = 0.394}},
    {"H100",
     "llm-foundry",
     {.matmul_efficiency = 0.624,
      .attention_efficiency = 0.226,
      .memory_efficiency = 0.649,
      .operation_seconds = 1.35e-05,
      .link_efficiency = 0.774,
      .network_efficiency = 0.406}},
    {"H100 SXM5 96",
     "torch-compile",
     {.matmul_efficiency = 0.526,
      .attention_efficiency = 0.302,
      .memory_efficiency = 1,
      .operation_seconds = 5.33e-06,
      .link_efficiency = 1,
      .network_efficiency = 0.541}},
    {"H100",
     "torch-compile",
     {.matmul_efficiency = 0.696,
      .attention_efficiency = 0.348,
      .memory_efficiency = 0.817,
      .operation_seconds = 4.86e-06,
      .link_efficiency = 0.609,
      .network_efficiency = 0.522}},
};

struct Name {
  std::string_view name;
  double Calibration::*field;
};

constexpr Name names[] = {
    {"matmul_efficiency", &Calibration::matmul_efficiency},
    {"matmul_half", &Calibration::matmul_half},
    {"attention_efficiency", &Calibration::attention_efficiency},
    {"memory_efficiency", &Calibration::memory_efficiency},
    {"operation_seconds", &Calibration::operation_seconds},
    {"link_efficiency", &Calibration::link_efficiency},
    {"network_efficiency", &Calibration::network_efficiency},
    {"network_latency", &Calibration::network_latency},
    {"step_seconds", &Calibration::step_seconds},
};

}  // namespace

double* constant(Calibration& calibration, std::string_view name) {
  for (const Name& each : names)
    if (each.name == name) return &(calibration.*each.field);
  return nullptr;
}

// Of the GPU and the generation; else of the generation on another GPU; else of the GPU with the software that was fitted first.
Calibration calibration_of(const SoftwareProfile& profile, const DeviceSpec& device) {
  if (profile.calibration) return *profile.calibration;
  const auto is_on = [&](const Entry& entry) { return device.name.starts_with(entry.gpu) || (entry.gpu == "H100" && device.name.starts_with("H200")); };
  const auto is_of = [&](const Entry& entry) { return entry.generation == profile.generation; };
  for (const Entry& entry : entries)
    if (is_on(entry) && is_of(entry)) return entry.calibration;
  for (const Entry& entry : entries)
    if (is_of(entry)) return entry.calibration;
  for (const Entry& entry : entries)
    if (is_on(entry)) return entry.calibration;
  return {};
}

}  // namespace echelon
