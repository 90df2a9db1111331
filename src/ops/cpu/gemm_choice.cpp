#include "ops/cpu/gemm_choice.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/instruction_set.h"
#include "ops/cpu/product_table.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace echelon {
namespace {

constexpr const char *float32_variable = "ECHELON_FLOAT32_PRODUCTS", *bfloat16_variable = "ECHELON_BFLOAT16_PRODUCTS",
                     *core_type_variable = "OPENBLAS_CORETYPE";

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

/// Whether ECHELON_INSTRUCTION_SET is below what the processor has.
bool is_capped() {
  const auto cap = instruction_set_cap();
  return cap.has_value() && *cap != largest_of_processor();
}

/// What kernels of OpenBLAS need.
struct CoreType {
  std::string_view name;
  InstructionSet set = InstructionSet::scalar;
  bool has_bfloat16 = false;
};
constexpr CoreType core_types[] = {{"Prescott", InstructionSet::scalar},
                                   {"Haswell", InstructionSet::avx2},
                                   {"Zen", InstructionSet::avx2},
                                   {"SkylakeX", InstructionSet::avx512},
                                   {"Cooperlake", InstructionSet::avx512, true}};

InstructionSet set_of(std::string_view core_type) {
  return std::ranges::find(core_types, core_type, &CoreType::name)->set;
}

std::optional<std::string> obstacle_of_core_type(const std::string& name) {
  if (const Blas* loaded = Blas::if_loaded()) {
    if (loaded->core_type() == name) return std::nullopt;
    return fmt::format("this process uses OpenBLAS's kernels '{}' already", loaded->core_type());
  }
  const auto* const type = std::ranges::find(core_types, name, &CoreType::name);
  if (type == std::end(core_types))
    return fmt::format("it is not known whether this processor has OpenBLAS's kernels '{}'", printable(name, 100));
  if (type->set > largest_instruction_set()) return fmt::format("this processor has no {}", name_of(type->set));
  if (type->has_bfloat16 && bfloat16_kernels() == nullptr) return "this processor has no dot products of bfloat16";
  return std::nullopt;
}

/// The kernels that a variable names, if it is set.
std::optional<ProductKernels> asked_by(const char* variable, DType dtype) {
  const std::string value = value_of(variable);
  if (value.empty()) return std::nullopt;
  std::string names;
  for (const ProductKernels kernels : possible_kernels(dtype)) {
    if (name_of(kernels) == value) return kernels;
    names += fmt::format("{}'{}'", names.empty() ? "" : " or ", name_of(kernels));
  }
  throw Error(fmt::format("{} = '{}' is unknown; it may be {}", variable, printable(value, 100), names));
}

/// Takes what the variables name, which have precedence over all else.
void take_environment(ChosenProducts& products) {
  const auto float32 = asked_by(float32_variable, DType::float32),
             bfloat16 = asked_by(bfloat16_variable, DType::bfloat16);
  const auto obstacle = bfloat16 ? obstacle_of_bfloat16(*bfloat16) : std::nullopt;
  require(!obstacle, "{} = '{}', but {}; use 'widened'", bfloat16_variable, value_of(bfloat16_variable),
          obstacle.value_or(""));
  const std::string core_type = is_capped() ? "" : value_of(core_type_variable);
  if (float32) products.choice.float32 = *float32;
  if (bfloat16) products.choice.bfloat16 = *bfloat16;
  if (!core_type.empty()) products.choice.core_type = core_type;
  if (float32) products.source += fmt::format("; {}", float32_variable);
  if (bfloat16) products.source += fmt::format("; {}", bfloat16_variable);
  if (!core_type.empty()) products.source += fmt::format("; {}", core_type_variable);
}

/// Takes all of a file that this process can do.
void take_names(ChosenProducts& products, const ProductNames& names, const std::string& source) {
  ProductChoice choice = products.choice;
  choice.core_type.clear();
  for (const DType dtype : product_dtypes)
    if (!obstacle_of(names, dtype)) set_products(choice, dtype, names.at(std::string(name_of(dtype))), source);
  if (choice.core_type.empty()) choice.core_type = products.choice.core_type;
  products.choice = choice;
  products.source = source;
}

/// Takes the table of the machine's file if it is of this kind of CPU.
void take_machine(ChosenProducts& products, const ProductRequest& request) {
  if (request.of_machine.empty()) return;
  const std::string_view own = name_of(processor_kind());
  const auto kind = request.of_machine.find("kind");
  const std::string where = request.machine_file + ": products.";
  require(kind != request.of_machine.end(), "{}kind is missing; it is '{}' here", where, own);
  (void)parse_products(request.of_machine, where);
  std::optional<std::string> obstacle = obstacle_of(request.of_machine, request.dtype);
  if (kind->second != own)
    obstacle = fmt::format("they are of '{}', and this processor is '{}'", printable(kind->second, 100), own);
  if (!obstacle) return take_names(products, request.of_machine, request.machine_file);
  products.notes.push_back(fmt::format("the products of {} are not used: {}", request.machine_file, *obstacle));
}

/// Says if the run continues with other kernels than the checkpoint's.
void compare_with_saved(ChosenProducts& products, const ProductRequest& request,
                        const std::optional<std::string>& obstacle) {
  if (request.saved.empty()) return;
  const auto saved = request.saved.find(std::string(name_of(request.dtype)));
  const std::string was = saved == request.saved.end() ? "" : saved->second,
                    is = name_of(products.choice, request.dtype);
  if (was == is) return;
  const bool is_asked_for = products.source.find(';') != std::string::npos;
  const char* other = is_asked_for ? "the environment asks for that" : "OpenBLAS has no others here";
  products.notes.push_back(
      fmt::format("the checkpoint's {} matmuls were by '{}', and the run continues with '{}', equal to rounding: {}",
                  name_of(request.dtype), printable(was, 100), is, obstacle.value_or(other)));
}

/// Loading OpenBLAS sets a variable, so no other rank of the process reads one meanwhile.
std::mutex& environment_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

ProductChoice default_products() {
  ProductChoice choice = shipped_products(processor_kind());
  // Where a hypervisor hides them.
  if (obstacle_of_bfloat16(choice.bfloat16)) choice.bfloat16 = ProductKernels::widened;
  // For a processor with wider vectors than those of the cap, OpenBLAS would choose the widest.
  if (is_capped() && choice.core_type.empty()) choice.core_type = scalar_core_type;
  return choice;
}

std::vector<std::string> measurable_core_types(const ProductChoice& shipped) {
  std::vector<std::string> types = {shipped.core_type};
  for (const char* type : {"Haswell", "SkylakeX"})
    if (type != shipped.core_type && set_of(type) <= largest_instruction_set()) types.emplace_back(type);
  return types;
}

ChosenProducts choose_products(const ProductRequest& request) {
  const std::scoped_lock lock(environment_mutex());
  ChosenProducts products = {default_products(), shipped_source(processor_kind()), {}};
  if (products.choice.core_type.empty() && value_of(core_type_variable).empty()) (void)Blas::loaded("");
  const auto obstacle = request.saved.empty() ? std::nullopt : obstacle_of(request.saved, request.dtype);
  take_machine(products, request);
  if (!request.saved.empty() && !obstacle) take_names(products, request.saved, "as in the checkpoint");
  take_environment(products);
  products.choice.core_type = Blas::loaded(products.choice.core_type).core_type();
  compare_with_saved(products, request, obstacle);
  return products;
}

ProductChoice chosen_elsewhere(const ProductNames& names) {
  const std::scoped_lock lock(environment_mutex());
  ChosenProducts products = {default_products(), {}, {}};
  take_names(products, names, {});
  products.choice.core_type = Blas::loaded(products.choice.core_type).core_type();
  return products.choice;
}

std::optional<std::string> obstacle_of(const ProductNames& names, DType dtype) {
  const auto found = names.find(std::string(name_of(dtype)));
  ProductChoice choice;
  try {
    set_products(choice, dtype, found == names.end() ? "" : found->second, "");
  } catch (const Error&) {
    return "this program does not know such kernels";
  }
  const ProductKernels kernels = choice.of(dtype);
  if (dtype == DType::bfloat16) return obstacle_of_bfloat16(kernels);
  if (kernels != ProductKernels::openblas || choice.core_type.empty()) return std::nullopt;
  return obstacle_of_core_type(choice.core_type);
}

std::optional<std::string> obstacle_of_bfloat16(ProductKernels kernels) {
  if (kernels == ProductKernels::native && bfloat16_kernels() == nullptr)
    return "this processor has no dot products of bfloat16";
  if (kernels == ProductKernels::amx && amx_kernels() == nullptr)
    return "this processor has no matrix tiles of bfloat16 (AMX)";
  return std::nullopt;
}

std::string setting_for_all(DType dtype) {
  switch (dtype) {
    case DType::float64: return fmt::format("{}=Haswell", core_type_variable);
    case DType::bfloat16: return fmt::format("{}=widened", bfloat16_variable);
    default: return fmt::format("{}=own", float32_variable);
  }
}

std::string describe_products(const ChosenProducts& products) {
  return fmt::format("{}; matmuls: {} ({})", Blas::loaded(products.choice.core_type).description(),
                     to_text(products.choice), products.source);
}

}  // namespace echelon
