// The data types of a config and their valid combinations. training.dtype is the format of parameters and activations;
// it determines the formats that logits, gradients and moments may have.
#pragma once

#include "spec/config/run_config.h"

#include <span>

namespace echelon {

/// training.dtype by its exact name. Throws UnknownChoice (spec/choice.h) if parameters cannot have it.
[[nodiscard]] DType parse_training_dtype(std::string_view key, std::string_view name);

/// The format that `key` names with training.dtype = `dtype`; empty: none, the default. A format that `dtype` excludes
/// is accepted here, since a later setting may change `dtype`; require_format refuses it. Throws UnknownChoice naming
/// `key` and the closest valid one.
[[nodiscard]] std::optional<DType> parse_format(std::string_view key, std::string_view name, DType dtype);

/// Throws UnknownChoice naming `key` and the closest valid value unless it may have `format` with training.dtype =
/// `dtype`.
void require_format(std::string_view key, std::optional<DType> format, DType dtype);

}  // namespace echelon
