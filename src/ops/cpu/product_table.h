// The kernels that are used by default, by kind of CPU. `echelon bench` measures whether others are faster.
#pragma once

#include "ops/cpu/processor_kind.h"
#include "ops/cpu/product_choice.h"

#include <optional>
#include <string>
#include <string_view>

namespace echelon {

struct ProductRow {
  ProcessorKind kind = ProcessorKind::generic;
  ProductKernels float32 = ProductKernels::own, bfloat16 = ProductKernels::widened;
  std::string_view core_type = {};  // empty: what OpenBLAS chooses
  // On which kinds the row was measured. A kind that was not follows the closest one that was, except where it lacks
  // something. None: nothing like it was measured.
  std::optional<ProcessorKind> measured = {}, bfloat16_measured = measured;
};

[[nodiscard]] const ProductRow& product_row(ProcessorKind kind);

/// The choice of that row.
[[nodiscard]] ProductChoice shipped_products(ProcessorKind kind);
/// "shipped for zen4", "shipped for zen2, measured on zen3", or "shipped for neoverse_n1, not measured".
[[nodiscard]] std::string shipped_source(ProcessorKind kind);

}  // namespace echelon
