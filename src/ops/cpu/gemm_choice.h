// Which kernels multiply which dtype in a run: by the environment, the checkpoint from which it resumes, its machine's
// file, or the shipped table, in this order. No clock decides.
#pragma once

#include "ops/cpu/product_choice.h"

#include <optional>
#include <string>
#include <vector>

namespace echelon {

/// What a run asks for. Either may be empty.
struct ProductRequest {
  DType dtype = DType::float32;  // in which it multiplies: what a processor lacks for others does not matter
  ProductNames saved = {};       // by the checkpoint from which it resumes
  ProductNames of_machine = {};  // HostSpec::products: also a `kind` of CPU
  std::string machine_file = {};
  bool is_of_processes = false;  // ranks are processes, which agree on rank 0's choice; threads have one anyway
};

struct ChosenProducts {
  ProductChoice choice;
  std::string source;              // "shipped for zen4; ECHELON_FLOAT32_PRODUCTS"
  std::vector<std::string> notes;  // sentences about what was asked for and is not used
};

/// For this processor; loads OpenBLAS with the choice's core type, unless it is loaded. ECHELON_FLOAT32_PRODUCTS=own|
/// openblas, ECHELON_BFLOAT16_PRODUCTS=amx|native|widened and OPENBLAS_CORETYPE have precedence. Throws Error if one of
/// them is unknown or asks for what the processor lacks, or if the machine's file has an unknown value.
[[nodiscard]] ChosenProducts choose_products(const ProductRequest& request);

/// Of the shipped table, as far as this process can.
[[nodiscard]] ProductChoice default_products();

/// OpenBLAS's core types among which a measurement chooses: those of the processor with which matmuls can be divided
/// among threads (blas.h), and the shipped one.
[[nodiscard]] std::vector<std::string> measurable_core_types(const ProductChoice& shipped);

/// What another process chose, as far as this one can; loads OpenBLAS.
[[nodiscard]] ProductChoice chosen_elsewhere(const ProductNames& names);

/// Why this process cannot multiply that dtype as a file names: "this processor has no avx512". None if it can.
[[nodiscard]] std::optional<std::string> obstacle_of(const ProductNames& names, DType dtype);

/// Why this process cannot multiply bfloat16 by these kernels. None if it can.
[[nodiscard]] std::optional<std::string> obstacle_of_bfloat16(ProductKernels kernels);

/// What every CPU can do instead: "ECHELON_FLOAT32_PRODUCTS=own".
[[nodiscard]] std::string setting_for_all(DType dtype);

/// "OpenBLAS 0.3.21 Haswell, openmp; matmuls: float32 own, ... (shipped for zen4)"
[[nodiscard]] std::string describe_products(const ChosenProducts& products);

}  // namespace echelon
