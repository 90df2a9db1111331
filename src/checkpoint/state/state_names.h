// Names in a checkpoint: of files, and of tensors in them. A tensor is a rectangle of a state of a parameter:
//
//     exp_avg/model.layers.0.mlp.up_proj.weight@0:64,32:128     rows 0 to 63 and columns 32 to 127 of a matrix
//     weight/model.norm.weight@16:32                            elements 16 to 31 of a vector
#pragma once

#include "tensor/tensor_slice.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace echelon {

struct StateTensorName {
  std::string state, parameter;
  Range rows = {0, 1}, columns;
  bool is_vector = false;  // then it has one row
};

[[nodiscard]] std::string to_text(const StateTensorName& name);
/// None if it is not such a name.
[[nodiscard]] std::optional<StateTensorName> parse_state_tensor_name(std::string_view text);

/// Tensors with other names are padding or of later versions; readers skip them.
inline constexpr std::string_view padding_prefix = "padding/";

/// "attempt-0001-rank-00003.safetensors": written by one rank. An attempt is one start of a run's program.
[[nodiscard]] std::string state_file_name(std::int64_t attempt, int rank);
/// "attempt-0001-manifest.json".
[[nodiscard]] std::string manifest_name(std::int64_t attempt);
/// No run has more: a name with a larger number is of another program.
inline constexpr std::int64_t most_attempts = 1'000'000'000;
/// The attempt of a manifest's name, none for other names.
[[nodiscard]] std::optional<std::int64_t> attempt_of_manifest(std::string_view name);
/// The attempt that wrote a file of this name, none for names that no attempt gives.
[[nodiscard]] std::optional<std::int64_t> attempt_of(std::string_view name);
/// The copy of the run's tokenizer in a checkpoint, if it has one.
inline constexpr std::string_view checkpoint_tokenizer_name = "tokenizer.json";

}  // namespace echelon
