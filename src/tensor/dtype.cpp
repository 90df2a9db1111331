#include "tensor/dtype.h"

#include "base/error.h"

#include <array>
#include <utility>
#include <vector>

namespace echelon {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 6> dtype_names = {{{DType::float32, "float32"},
                                                                            {DType::float64, "float64"},
                                                                            {DType::bfloat16, "bfloat16"},
                                                                            {DType::float16, "float16"},
                                                                            {DType::int32, "int32"},
                                                                            {DType::int16, "int16"}}};
}  // namespace

std::string_view name_of(DType dtype) {
  for (const auto& [candidate, name] : dtype_names)
    if (candidate == dtype) return name;
  return "?";
}

DType parse_dtype(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [dtype, candidate] : dtype_names) {
    if (candidate == name) return dtype;
    names.push_back(candidate);
  }
  throw Error(fmt::format("there is no dtype '{}'; did you mean '{}'?", name, closest_name(name, names)));
}

}  // namespace echelon
