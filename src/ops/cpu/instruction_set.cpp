#include "ops/cpu/instruction_set.h"

#include "base/error.h"
#include "ops/cpu/targets.h"

#include "hwy/targets.h"

#include <array>
#include <cstdlib>

namespace echelon {
namespace {

constexpr std::array<std::string_view, 3> names = {HWY_ARCH_ARM ? "neon" : "scalar", "avx2", "avx512"};

/// The targets that a cap takes away; the baseline always stays.
std::int64_t targets_above(InstructionSet cap) {
  constexpr std::int64_t of_avx512 = HWY_AVX3 | HWY_AVX3_DL;
  switch (cap) {
    case InstructionSet::avx512: return 0;
    case InstructionSet::avx2: return of_avx512;
    case InstructionSet::scalar: return ~std::int64_t{HWY_STATIC_TARGET};
  }
  return 0;
}

std::optional<InstructionSet> cap_asked_for() {
  const char* value = std::getenv("ECHELON_INSTRUCTION_SET");
  if (value == nullptr || *value == '\0') return std::nullopt;
  const InstructionSet cap = parse_instruction_set(value), largest = largest_of_processor();
  require(cap <= largest, "ECHELON_INSTRUCTION_SET = '{}', but this processor supports at most '{}'", value,
          name_of(largest));
  hwy::DisableTargets(targets_above(cap));
  static_cast<void>(highway_targets());  // also if a kernel was called before
  return cap;
}

}  // namespace

InstructionSet parse_instruction_set(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names.at(i) == name) return static_cast<InstructionSet>(i);
  throw Error(
      fmt::format("ECHELON_INSTRUCTION_SET = '{}' is unknown; did you mean '{}'?", name, closest_name(name, names)));
}

std::string_view name_of(InstructionSet set) { return names.at(static_cast<std::size_t>(set)); }

std::optional<InstructionSet> instruction_set_cap() {
  static const auto cap = cap_asked_for();
  return cap;
}

std::int64_t highway_targets() {
  const std::int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);
  return targets;
}

#if defined(__x86_64__)
InstructionSet largest_of_processor() {
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) return InstructionSet::avx512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? InstructionSet::avx2
                                                                         : InstructionSet::scalar;
}
#else
InstructionSet largest_of_processor() { return InstructionSet::scalar; }
#endif

InstructionSet largest_instruction_set() { return instruction_set_cap().value_or(largest_of_processor()); }

}  // namespace echelon
