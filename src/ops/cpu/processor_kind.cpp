#include "ops/cpu/processor_kind.h"

#include "ops/cpu/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>

namespace echelon {
namespace {

constexpr std::array<std::string_view, num_processor_kinds> names = {"generic",
                                                                     "generic_avx2",
                                                                     "generic_avx512",
                                                                     "zen2",
                                                                     "zen3",
                                                                     "zen4",
                                                                     "zen5",
                                                                     "haswell",
                                                                     "skylake_x",
                                                                     "cooper_lake",
                                                                     "ice_lake_server",
                                                                     "sapphire_rapids",
                                                                     "neoverse_n1",
                                                                     "neoverse_v1",
                                                                     "neoverse_n2",
                                                                     "neoverse_v2"};

ProcessorKind generic_kind(const ProcessorId& id) {
  if (id.has_avx512) return ProcessorKind::generic_avx512;
  return id.has_avx2 ? ProcessorKind::generic_avx2 : ProcessorKind::generic;
}

/// AMD's families: 17h is Zen to Zen 2, 19h Zen 3 and 4, 1Ah Zen 5.
ProcessorKind kind_of_amd(const ProcessorId& id) {
  constexpr unsigned first_model_of_zen2 = 0x30;
  switch (id.family) {
    case 0x17: return id.model >= first_model_of_zen2 ? ProcessorKind::zen2 : ProcessorKind::generic_avx2;
    case 0x19: return id.has_avx512 ? ProcessorKind::zen4 : ProcessorKind::zen3;
    case 0x1a: return id.has_avx512 ? ProcessorKind::zen5 : ProcessorKind::generic_avx2;
    default: return generic_kind(id);
  }
}

ProcessorKind kind_of_intel(const ProcessorId& id) {
  if (!id.has_avx512) return ProcessorKind::haswell;
  if (id.has_amx) return ProcessorKind::sapphire_rapids;
  switch (id.model) {
    case 0x55: return id.has_avx512_bf16 ? ProcessorKind::cooper_lake : ProcessorKind::skylake_x;
    case 0x6a:
    case 0x6c: return ProcessorKind::ice_lake_server;
    case 0x8f:
    case 0xcf:
    case 0xad:
    case 0xae: return ProcessorKind::sapphire_rapids;
    default: return ProcessorKind::generic_avx512;
  }
}

ProcessorKind kind_of_arm(const ProcessorId& id) {
  switch (id.model) {
    case 0xd0c: return ProcessorKind::neoverse_n1;
    case 0xd40: return ProcessorKind::neoverse_v1;
    case 0xd49: return ProcessorKind::neoverse_n2;
    case 0xd4f: return ProcessorKind::neoverse_v2;
    default: return ProcessorKind::generic;
  }
}

ProcessorKind find_kind() {
  const auto cap = instruction_set_cap();
  if (!cap.has_value() || *cap == largest_of_processor()) return kind_of(this_processor());
  return *cap == InstructionSet::avx2 ? ProcessorKind::generic_avx2 : ProcessorKind::generic;
}

}  // namespace

#if defined(__x86_64__)
ProcessorId this_processor() {
  ProcessorId id;
  unsigned a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) id.vendor = ProcessorId::Vendor::amd;
  if (__builtin_cpu_is("intel")) id.vendor = ProcessorId::Vendor::intel;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    id.family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
    id.model = (a >> 4 & 0xf) | (a >> 12 & 0xf0);
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;
    id.has_amx = (d & amx_bf16) != 0 && (d & amx_tile) != 0;
  }
  const InstructionSet largest = largest_of_processor();
  id.has_avx2 = largest >= InstructionSet::avx2;
  id.has_avx512 = largest >= InstructionSet::avx512;
  id.has_avx512_bf16 = id.has_avx512 && __builtin_cpu_supports("avx512bf16") != 0;
  return id;
}
#elif defined(__aarch64__)
ProcessorId this_processor() {
  constexpr unsigned long may_be_read = 1UL << 11;  // HWCAP_CPUID
  if ((getauxval(AT_HWCAP) & may_be_read) == 0) return {};
  std::uint64_t midr = 0;  // the main identification register, which Linux lets programs read
  asm("mrs %0, MIDR_EL1" : "=r"(midr));
  constexpr unsigned of_arm = 0x41;
  ProcessorId id;
  if ((midr >> 24 & 0xff) == of_arm) id.vendor = ProcessorId::Vendor::arm;
  id.model = static_cast<unsigned>(midr >> 4 & 0xfff);
  return id;
}
#else
ProcessorId this_processor() { return {}; }
#endif

std::string_view name_of(ProcessorKind kind) { return names.at(static_cast<std::size_t>(kind)); }

std::optional<ProcessorKind> processor_kind_of(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<ProcessorKind>(found - names.begin());
}

ProcessorKind kind_of(const ProcessorId& id) {
  if (id.vendor == ProcessorId::Vendor::arm) return kind_of_arm(id);
  if (!id.has_avx2) return ProcessorKind::generic;
  if (id.vendor == ProcessorId::Vendor::amd) return kind_of_amd(id);
  return id.vendor == ProcessorId::Vendor::intel ? kind_of_intel(id) : generic_kind(id);
}

ProcessorKind processor_kind() {
  static const ProcessorKind kind = find_kind();
  return kind;
}

}  // namespace echelon
