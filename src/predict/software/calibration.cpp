// The fitted constants, by software generation. docs/results/accuracy.md says what they were fitted to and how well
// they do on runs that were left out.
#include "predict/software/software_profile.h"

#include <algorithm>
#include <iterator>

namespace echelon {
namespace {

struct Entry {
  std::string_view generation;
  Calibration calibration;
};

/// What differs from the defaults, which are those of all software together.
const Entry entries[] = {
    {"megatron", {.matmul_share = 0.902}},
    {"megatron-2020", {.matmul_share = 0.854}},
    {"megatron-core", {.matmul_share = 0.858}},
    {"megatron-deepspeed", {.matmul_share = 0.933}},
    {"bloom", {.matmul_share = 0.733}},
    {"deepspeed-zero3", {.network_share = 0.377}},
    {"zero-bubble", {.matmul_share = 0.896}},
    {"llm-foundry", {.matmul_share = 0.819, .attention_share = 0.767}},
    {"torch-compile", {.matmul_share = 0.835, .network_share = 0.524}},
};

struct Name {
  std::string_view name;
  double Calibration::*field;
};

constexpr Name names[] = {
    {"matmul_share", &Calibration::matmul_share},
    {"attention_share", &Calibration::attention_share},
    {"memory_share", &Calibration::memory_share},
    {"link_share", &Calibration::link_share},
    {"network_share", &Calibration::network_share},
    {"launch_seconds", &Calibration::launch_seconds},
    {"collective_launch_seconds", &Calibration::collective_launch_seconds},
};

}  // namespace

double* constant(Calibration& calibration, std::string_view name) {
  for (const Name& each : names)
    if (each.name == name) return &(calibration.*each.field);
  return nullptr;
}

bool has_own_calibration(const SoftwareProfile& profile) {
  return std::any_of(std::begin(entries), std::end(entries),
                     [&](const Entry& entry) { return entry.generation == profile.generation; });
}

Calibration calibration_of(const SoftwareProfile& profile) {
  if (profile.calibration) return *profile.calibration;
  for (const Entry& entry : entries)
    if (entry.generation == profile.generation) return entry.calibration;
  return {};
}

}  // namespace echelon
