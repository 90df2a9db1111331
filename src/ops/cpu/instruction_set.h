// The largest instruction set that this process may compute with: what the processor has, or less where
// ECHELON_INSTRUCTION_SET says so, which is how a machine with less is tested on one with more. Holds for Highway's
// kernels, our own products and OpenBLAS alike.
#pragma once

#include <optional>
#include <string_view>

namespace echelon {

enum class InstructionSet { scalar, avx2, avx512 };

/// Throws Error with a value to use.
[[nodiscard]] InstructionSet parse_instruction_set(std::string_view name);
[[nodiscard]] std::string_view name_of(InstructionSet set);

/// What ECHELON_INSTRUCTION_SET asks for. The first call makes Highway keep to it. Throws Error if the name is unknown
/// or the processor has less.
[[nodiscard]] std::optional<InstructionSet> instruction_set_cap();

/// The cap, or the largest that the processor has.
[[nodiscard]] InstructionSet largest_instruction_set();

/// AMD's processors before family 1Ah have datapaths of 256 bits and compute 512-bit vectors, if they have them, in
/// halves.
[[nodiscard]] bool is_amd_before_zen5();

}  // namespace echelon
