// Who multiplies matrices of each dtype: OpenBLAS with the kernels of one of its core types, or our own kernels. The
// choice decides the bits of a run, so it is constant within one, equal on all ranks, and kept in checkpoints.
#pragma once

#include "tensor/dtype.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

enum class ProductKernels : std::uint8_t {
  own,       // our own, by multiply-adds
  openblas,  // those of ProductChoice::core_type
  widened,   // our own, of values that are widened to float32 as they are packed
  native,    // our own, by the processor's dot products of pairs
  amx,       // our own, by its matrix tiles
};
[[nodiscard]] std::string_view name_of(ProductKernels kernels);

struct ProductChoice {
  ProductKernels float32 = ProductKernels::own, float64 = ProductKernels::openblas, bfloat16 = ProductKernels::widened,
                 float16 = ProductKernels::widened;
  // OpenBLAS's name of the kernels that it uses in this process; empty: what it chooses itself.
  std::string core_type = {};
  bool operator==(const ProductChoice&) const = default;

  [[nodiscard]] ProductKernels of(DType dtype) const;
  [[nodiscard]] ProductKernels& of(DType dtype);
};

/// The dtypes that a choice has.
inline constexpr DType product_dtypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};
/// Which kernels there are for a dtype.
[[nodiscard]] std::vector<ProductKernels> possible_kernels(DType dtype);

/// By dtype "own", "widened", "native", "amx" or "openblas/CORE_TYPE", as files keep a choice.
using ProductNames = std::map<std::string, std::string>;
[[nodiscard]] ProductNames names_of(const ProductChoice& choice);
/// "openblas/SkylakeX" of one dtype.
[[nodiscard]] std::string name_of(const ProductChoice& choice, DType dtype);
/// Sets one dtype of a choice. Throws Error, naming the key after `where`, if there are no such kernels for it, or if
/// another dtype has another core type.
void set_products(ProductChoice& choice, DType dtype, const std::string& name, std::string_view where);
/// Throws Error also if a dtype is missing.
[[nodiscard]] ProductChoice parse_products(const ProductNames& names, std::string_view where);

/// "float32 own, float64 openblas/Haswell, bfloat16 native, float16 widened"
[[nodiscard]] std::string to_text(const ProductChoice& choice);

}  // namespace echelon
