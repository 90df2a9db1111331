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
     {.matmul_efficiency = 0.767,
      .attention_efficiency = 0.253,
      .memory_efficiency = 0.777,
      .operation_seconds = 3.81e-06,
      .link_efficiency = 0.727,
      .network_efficiency = 0.494}},
    {"H100 SXM5 96",
     "torch-compile",
     {.matmul_efficiency = 0.534,
      .attention_efficiency = 0.295,
      .memory_efficiency = 0.823,
      .operation_seconds = 5.36e-06,
      .link_efficiency = 0.695,
      .network_efficiency = 0.487}},
    {"H100",
     "llm-foundry",
     {.matmul_efficiency = 0.63,
      .attention_efficiency = 0.221,
      .memory_efficiency = 0.626,
      .operation_seconds = 1.71e-05,
      .link_efficiency = 0.775,
      .network_efficiency = 0.413}},
    {"A100",
     "llm-foundry",
     {.matmul_efficiency = 0.766, .attention_efficiency = 0.428, .memory_efficiency = 0.693, .operation_seconds = 6.96e-06, .network_efficiency = 0.282}},
    {"H100",
     "megatron-core",
     {.matmul_efficiency = 0.762,
      .attention_efficiency = 0.522,
      .memory_efficiency = 1,
      .operation_seconds = 3.11e-06,
      .link_efficiency = 1,
      .network_efficiency = 1}},
    {"A100",
     "megatron-core",
     {.matmul_efficiency = 0.816,
      .attention_efficiency = 0.43,
      .memory_efficiency = 0.85,
      .operation_seconds = 4.84e-06,
      .link_efficiency = 0.714,
      .network_efficiency = 0.308}},
    {"A100",
     "megatron",
     {.matmul_efficiency = 0.827, .memory_efficiency = 0.83, .operation_seconds = 4.76e-06, .link_efficiency = 0.775, .network_efficiency = 0.54}},
    {"A100",
     "megatron-2020",
     {.matmul_efficiency = 0.796, .memory_efficiency = 0.796, .operation_seconds = 5.41e-06, .link_efficiency = 0.787, .network_efficiency = 1}},
    {"A100",
     "megatron-deepspeed",
     {.matmul_efficiency = 0.872, .memory_efficiency = 0.688, .operation_seconds = 6.51e-06, .link_efficiency = 0.938, .network_efficiency = 0.536}},
    {"A100",
     "bloom",
     {.matmul_efficiency = 0.897, .memory_efficiency = 0.779, .operation_seconds = 8.76e-05, .link_efficiency = 0.262, .network_efficiency = 0.247}},
    {"A100", "deepspeed-zero3", {.matmul_efficiency = 0.93, .memory_efficiency = 0.869, .network_efficiency = 0.178, .network_latency = 1.43e-05}},
    {"A100",
     "zero-bubble",
     {.matmul_efficiency = 0.836, .memory_efficiency = 0.812, .operation_seconds = 4.85e-06, .link_efficiency = 0.634, .network_efficiency = 0.7}},
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
