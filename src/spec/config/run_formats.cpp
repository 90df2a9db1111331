#include "spec/config/run_formats.h"

#include "spec/choice.h"

namespace echelon {
namespace {

constexpr DType training_dtypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
constexpr std::string_view moments_key = "optimizer.moments_dtype", reduce_key = "training.reduce_dtype";

/// The formats that `key` may have with training.dtype = `dtype`. Logits and gradients have the format of the weights
/// or that of their sums. Gradients may always be sent in the coarser format of that width.
std::vector<DType> formats_with(std::string_view key, DType dtype) {
  const bool is_double = dtype == DType::float64;
  if (key == moments_key && !is_double) return {DType::float32, DType::bfloat16};
  std::vector<DType> formats = {accumulate_dtype(dtype)};
  const bool may_be_coarse = key == reduce_key ? !is_double : is_half_dtype(dtype);
  if (may_be_coarse) formats.push_back(is_half_dtype(dtype) ? dtype : DType::bfloat16);
  return formats;
}

void require_name(std::string_view key, std::string_view name, DType dtype) {
  const std::vector<DType> formats = formats_with(key, dtype);
  if (key == moments_key && dtype != DType::float64) {
    (void)parse_exact_choice<DType>(key, name, formats);
    return;
  }
  std::vector<std::string_view> names;
  for (const DType format : formats) names.push_back(name_of(format));
  if (std::ranges::find(names, name) != names.end()) return;
  throw UnknownChoice(fmt::format("{} = '{}' is not supported with training.dtype = '{}', only {} (use '{}')", key,
                                  name, name_of(dtype), fmt::join(names, " or "), closest_name(name, names)));
}

}  // namespace

DType parse_training_dtype(std::string_view key, std::string_view name) {
  constexpr std::string_view of_matmuls[] = {"fp8", "float8", "float8_e4m3", "e4m3", "mxfp8"};
  if (std::ranges::find(of_matmuls, name) != std::end(of_matmuls))
    throw UnknownChoice(fmt::format(
        "{} = '{}' is not a format of parameters; use training.linear_dtype = \"float8\" with training.dtype = "
        "\"bfloat16\"",
        key, name));
  return parse_exact_choice<DType>(key, name, training_dtypes);
}

std::optional<DType> parse_format(std::string_view key, std::string_view name, DType dtype) {
  if (name.empty()) return std::nullopt;
  for (const DType format : training_dtypes)
    if (name == name_of(format)) return format;
  require_name(key, name, dtype);
  return std::nullopt;  // unreachable: no key may name another format
}

void require_format(std::string_view key, std::optional<DType> format, DType dtype) {
  if (format) require_name(key, name_of(*format), dtype);
}

}  // namespace echelon
