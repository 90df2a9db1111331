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
    {"A100", "megatron", {}},
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
