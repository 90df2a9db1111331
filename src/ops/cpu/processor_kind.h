// Which kind of CPU this is, as far as the speed of matmuls depends on it: all of a kind have the same cores, whatever
// their names, numbers of cores and clocks are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace echelon {

enum class ProcessorKind : std::uint8_t {
  generic,  // nothing is known, or no vectors may be used
  generic_avx2,
  generic_avx512,
  zen2,
  zen3,
  zen4,
  zen5,
  haswell,  // Intel's with AVX2 alone, up to the newest
  skylake_x,
  cooper_lake,
  ice_lake_server,
  sapphire_rapids,  // with Emerald and Granite Rapids
  neoverse_n1,
  neoverse_v1,
  neoverse_n2,
  neoverse_v2,
};
constexpr int num_processor_kinds = 16;

[[nodiscard]] std::string_view name_of(ProcessorKind kind);
/// None for a name that no kind has.
[[nodiscard]] std::optional<ProcessorKind> processor_kind_of(std::string_view name);

/// What a processor says about itself. Hypervisors may report another model than the cores have, and hide features: a
/// feature that the cores of a model lack decides, and so does one that is hidden.
struct ProcessorId {
  enum class Vendor : std::uint8_t { other, intel, amd, arm };
  Vendor vendor = Vendor::other;
  unsigned family = 0, model = 0;  // of x86, with the extended bits; Arm's part number is its model
  bool has_avx2 = false, has_avx512 = false, has_avx512_bf16 = false, has_amx = false;
};

[[nodiscard]] ProcessorId this_processor();

[[nodiscard]] ProcessorKind kind_of(const ProcessorId& id);

/// Of the processor that this process runs on. With a smaller ECHELON_INSTRUCTION_SET than it has: the generic kind of
/// that set, whatever the processor is, so that capped processes compute the same everywhere.
[[nodiscard]] ProcessorKind processor_kind();

}  // namespace echelon
