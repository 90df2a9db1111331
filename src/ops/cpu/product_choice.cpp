#include "ops/cpu/product_choice.h"

#include "base/error.h"
#include "base/text/printable.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

constexpr std::array<std::string_view, 5> kernel_names = {"own", "openblas", "widened", "native", "amx"};

/// "'own' or 'openblas/Haswell'"
std::string valid_names(DType dtype) {
  std::string text;
  for (const ProductKernels kernels : possible_kernels(dtype))
    text += fmt::format("{}'{}{}'", text.empty() ? "" : " or ", name_of(kernels),
                        kernels == ProductKernels::openblas ? "/Haswell" : "");
  return text;
}

}  // namespace

std::string_view name_of(ProductKernels kernels) { return kernel_names.at(static_cast<std::size_t>(kernels)); }

ProductKernels& ProductChoice::of(DType dtype) {
  switch (dtype) {
    case DType::float64: return float64;
    case DType::bfloat16: return bfloat16;
    case DType::float16: return float16;
    default: return float32;
  }
}

ProductKernels ProductChoice::of(DType dtype) const {
  ProductChoice copy = *this;
  return copy.of(dtype);
}

std::vector<ProductKernels> possible_kernels(DType dtype) {
  if (dtype == DType::float64) return {ProductKernels::openblas};
  if (dtype == DType::bfloat16) return {ProductKernels::widened, ProductKernels::native, ProductKernels::amx};
  if (dtype == DType::float16) return {ProductKernels::widened};
  return {ProductKernels::own, ProductKernels::openblas};
}

std::string name_of(const ProductChoice& choice, DType dtype) {
  const ProductKernels kernels = choice.of(dtype);
  const bool has_type = kernels == ProductKernels::openblas && !choice.core_type.empty();
  return fmt::format("{}{}{}", name_of(kernels), has_type ? "/" : "", has_type ? choice.core_type : "");
}

ProductNames names_of(const ProductChoice& choice) {
  ProductNames result;
  for (const DType dtype : product_dtypes) result[std::string(name_of(dtype))] = name_of(choice, dtype);
  return result;
}

void set_products(ProductChoice& choice, DType dtype, const std::string& name, std::string_view where) {
  const std::size_t slash = name.find('/');
  const bool has_type = slash != std::string::npos;
  const std::vector<ProductKernels> possible = possible_kernels(dtype);
  const auto found =
      std::ranges::find_if(possible, [&](ProductKernels each) { return name_of(each) == name.substr(0, slash); });
  require(found != possible.end() && (!has_type || *found == ProductKernels::openblas),
          "{}{} = '{}' is unknown; it may be {}", where, name_of(dtype), printable(name, 100), valid_names(dtype));
  choice.of(dtype) = *found;
  if (!has_type) return;
  const std::string core_type = name.substr(slash + 1);
  require(choice.core_type.empty() || choice.core_type == core_type,
          "{}{} = '{}', but OpenBLAS has the kernels of one core type in a process (use 'openblas/{}')", where,
          name_of(dtype), printable(name, 100), printable(choice.core_type, 100));
  choice.core_type = core_type;
}

ProductChoice parse_products(const ProductNames& names, std::string_view where) {
  ProductChoice choice;
  for (const DType dtype : product_dtypes) {
    const auto found = names.find(std::string(name_of(dtype)));
    require(found != names.end(), "{}{} is missing; it is {}", where, name_of(dtype), valid_names(dtype));
    set_products(choice, dtype, found->second, where);
  }
  return choice;
}

std::string to_text(const ProductChoice& choice) {
  std::string text;
  for (const DType dtype : product_dtypes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(dtype), name_of(choice, dtype));
  return text;
}

}  // namespace echelon
