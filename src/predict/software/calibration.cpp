// The fitted constants, by GPU type and software generation. docs/results/accuracy.md says what they were fitted to and
// how well they do on runs that were left out.
#include "predict/software/software_profile.h"

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
     {.matmul_efficiency = 0.818,
      .attention_efficiency = 0.236,
      .memory_efficiency = 0.804,
      .operation_seconds = 5.08e-06,
      .link_efficiency = 0.926,
      .network_efficiency = 0.471}},
    {"H100 SXM5 96",
     "torch-compile",
     {.matmul_efficiency = 0.54,
      .attention_efficiency = 0.271,
      .memory_efficiency = 0.921,
      .operation_seconds = 5.32e-06,
      .link_efficiency = 0.656,
      .network_efficiency = 0.602}},
    {"H100",
     "llm-foundry",
     {.matmul_efficiency = 0.625,
      .attention_efficiency = 0.222,
      .memory_efficiency = 0.608,
      .operation_seconds = 6.65e-06,
      .link_efficiency = 0.659,
      .network_efficiency = 0.408}},
    {"A100",
     "llm-foundry",
     {.matmul_efficiency = 0.762,
      .attention_efficiency = 0.428,
      .memory_efficiency = 0.719,
      .operation_seconds = 5.28e-06,
      .network_efficiency = 0.565}},
    {"H100",
     "megatron-core",
     {.matmul_efficiency = 0.76,
      .attention_efficiency = 0.533,
      .memory_efficiency = 1,
      .operation_seconds = 3.17e-06,
      .link_efficiency = 1,
      .network_efficiency = 1}},
    {"A100",
     "megatron-core",
     {.matmul_efficiency = 0.817,
      .attention_efficiency = 0.396,
      .memory_efficiency = 0.734,
      .operation_seconds = 5.99e-06,
      .link_efficiency = 0.747,
      .network_efficiency = 0.308}},
    {"A100",
     "megatron",
     {.matmul_efficiency = 0.826,
      .memory_efficiency = 0.84,
      .operation_seconds = 5.05e-06,
      .link_efficiency = 0.837,
      .network_efficiency = 0.473}},
    // Not fitted with the others: to the eight points of Shoeybi et al. 2019, figure 5 (docs/results/textbook.md).
    {"V100",
     "megatron-2019",
     {.matmul_efficiency = 0.6,
      .memory_efficiency = 0.8,
      .operation_seconds = 5e-06,
      .link_efficiency = 0.65,
      .network_efficiency = 0.96}},
    {"A100",
     "megatron-2020",
     {.matmul_efficiency = 0.762,
      .memory_efficiency = 0.874,
      .operation_seconds = 5.44e-06,
      .link_efficiency = 0.802,
      .network_efficiency = 1}},
    {"A100",
     "megatron-deepspeed",
     {.matmul_efficiency = 0.87,
      .memory_efficiency = 0.706,
      .operation_seconds = 5.58e-06,
      .link_efficiency = 0.902,
      .network_efficiency = 0.53}},
    {"A100",
     "bloom",
     {.matmul_efficiency = 0.851,
      .memory_efficiency = 0.746,
      .operation_seconds = 9.62e-05,
      .link_efficiency = 0.327,
      .network_efficiency = 0.244}},
    {"A100",
     "deepspeed-zero3",
     {.matmul_efficiency = 0.93, .memory_efficiency = 0.834, .network_efficiency = 0.178, .network_latency = 1.44e-05}},
    {"A100",
     "zero-bubble",
     {.matmul_efficiency = 0.835,
      .memory_efficiency = 0.814,
      .operation_seconds = 5e-06,
      .link_efficiency = 0.655,
      .network_efficiency = 0.72}},
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

// Of the GPU and the generation; else of the GPU with software of the same kind; else of the generation on another GPU;
// else of the GPU.
Calibration calibration_of(const SoftwareProfile& profile, const DeviceSpec& device) {
  if (profile.calibration) return *profile.calibration;
  Calibration best;
  double best_score = 0;
  for (const Entry& entry : entries) {
    const bool is_on = device.name.starts_with(entry.gpu) || (entry.gpu == "H100" && device.name.starts_with("H200"));
    const bool is_of = entry.generation == profile.generation,
               is_alike = is_of_torch(entry.generation) == is_of_torch(profile.generation);
    const double score = (is_on ? 1 + 0.01 * static_cast<double>(entry.gpu.size()) : 0) + (is_of      ? 2
                                                                                           : is_alike ? 1.5
                                                                                                      : 0);
    if (score <= best_score) continue;
    best_score = score;
    best = entry.calibration;
  }
  return best;
}

}  // namespace echelon
