// The largest instruction set that this process may use: that of the CPU, or a smaller one in ECHELON_INSTRUCTION_SET,
// which tests a smaller machine on a larger one. It applies to Highway's kernels, our own matmuls and OpenBLAS.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace echelon {

/// `scalar` is what every CPU of the architecture has. On Arm that is NEON, by name too.
enum class InstructionSet { scalar, avx2, avx512 };

/// Throws Error with a value to use.
[[nodiscard]] InstructionSet parse_instruction_set(std::string_view name);
[[nodiscard]] std::string_view name_of(InstructionSet set);

/// What ECHELON_INSTRUCTION_SET asks for. The first call makes Highway keep to it. Throws Error if the name is unknown
/// or the processor has less.
[[nodiscard]] std::optional<InstructionSet> instruction_set_cap();

/// The cap, or the largest that the processor has.
[[nodiscard]] InstructionSet largest_instruction_set();

/// What the processor has, whatever the cap is.
[[nodiscard]] InstructionSet largest_of_processor();

/// What Highway may choose from, as bits HWY_AVX2 and so on. Only while no other thread calls a kernel: to find out,
/// Highway 1.0 chooses among all that the processor has, and hwy::SupportedTargets() leaves it there.
[[nodiscard]] std::int64_t highway_targets();

}  // namespace echelon
