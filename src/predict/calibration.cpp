// The fitted constants, by GPU type and software generation. docs/accuracy.md says what they were fitted to and how well they do on runs that were left out.
#include "predict/software_profile.h"

#include <algorithm>

namespace echelon {
namespace {

struct Entry {
  std::string_view gpu, generation;
  Calibration calibration;
};

// Where several fit equally well, the first counts (calibration_of).
const Entry entries[] = {
    {"H100",
     "torch-compile",
     {.matmul_efficiency = 0.696,
      .attention_efficiency = 0.336,
      .memory_efficiency = 0.55,
      .operation_seconds = 5.66e-06,
      .link_efficiency = 0.717,
      .network_efficiency = 0.519}},
    {"H100 SXM5 96",
     "torch-compile",
     {.matmul_efficiency = 0.56,
      .attention_efficiency = 0.265,
      .memory_efficiency = 0.824,
      .operation_seconds = 5.21e-06,
      .link_efficiency = 0.689,
      .network_efficiency = 0.505}},
    {"H100",
     "llm-foundry",
     {.matmul_efficiency = 0.628,
      .attention_efficiency = 0.221,
      .memory_efficiency = 0.601,
      .operation_seconds = 1.21e-05,
      .link_efficiency = 0.749,
      .network_efficiency = 0.409}},
    {"A100",
     "llm-foundry",
     {.matmul_efficiency = 0.764, .attention_efficiency = 0.428, .memory_efficiency = 0.691, .operation_seconds = 6.99e-06, .network_efficiency = 0.394}},
    {"H100",
     "megatron-core",
     {.matmul_efficiency = 0.792,
      .attention_efficiency = 0.415,
      .memory_efficiency = 1,
      .operation_seconds = 3.7e-06,
      .link_efficiency = 1,
      .network_efficiency = 1}},
    {"A100",
     "megatron-core",
     {.matmul_efficiency = 0.779,
      .attention_efficiency = 0.494,
      .memory_efficiency = 0.823,
      .operation_seconds = 4.7e-06,
      .link_efficiency = 0.98,
      .network_efficiency = 0.309}},
    {"A100",
     "megatron",
     {.matmul_efficiency = 0.811, .memory_efficiency = 0.895, .operation_seconds = 4.57e-06, .link_efficiency = 0.83, .network_efficiency = 0.476}},
    {"A100",
     "megatron-2020",
     {.matmul_efficiency = 0.8, .memory_efficiency = 0.793, .operation_seconds = 6.13e-06, .link_efficiency = 0.791, .network_efficiency = 1}},
    {"A100",
     "megatron-deepspeed",
     {.matmul_efficiency = 0.844, .memory_efficiency = 0.753, .operation_seconds = 7.36e-06, .link_efficiency = 1, .network_efficiency = 0.527}},
    {"A100",
     "bloom",
     {.matmul_efficiency = 0.831, .memory_efficiency = 0.813, .operation_seconds = 4.39e-05, .link_efficiency = 0.287, .network_efficiency = 0.238}},
    {"A100", "deepspeed-zero3", {.matmul_efficiency = 0.846, .memory_efficiency = 0.912, .network_efficiency = 0.196, .network_latency = 1.6e-05}},
    {"A100",
     "zero-bubble",
     {.matmul_efficiency = 0.825, .memory_efficiency = 0.834, .operation_seconds = 4.56e-06, .link_efficiency = 0.633, .network_efficiency = 0.853}},
};

bool is_of_torch(std::string_view generation) { return generation == "torch-compile" || generation == "llm-foundry"; }

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

// Of the GPU and the generation; else of the GPU with software of the same kind; else of the generation on another GPU; else of the GPU.
Calibration calibration_of(const SoftwareProfile& profile, const DeviceSpec& device) {
  if (profile.calibration) return *profile.calibration;
  Calibration best;
  double best_score = 0;
  for (const Entry& entry : entries) {
    const bool is_on = device.name.starts_with(entry.gpu) || (entry.gpu == "H100" && device.name.starts_with("H200"));
    const bool is_of = entry.generation == profile.generation, is_alike = is_of_torch(entry.generation) == is_of_torch(profile.generation);
    const double score = (is_on ? 1 + 0.01 * static_cast<double>(entry.gpu.size()) : 0) + (is_of ? 2 : is_alike ? 1.5 : 0);
    if (score <= best_score) continue;
    best_score = score;
    best = entry.calibration;
  }
  return best;
}

}  // namespace echelon
