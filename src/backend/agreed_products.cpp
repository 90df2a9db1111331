#include "backend/agreed_products.h"

#include "base/error.h"
#include "base/host_name.h"
#include "comm/gathered.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/processor_kind.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

namespace echelon {
namespace {

/// "float32=own float64=openblas/Haswell ..." of a choice: as ranks send it.
using SentNames = std::array<char, 256>;

SentNames sent(const ProductNames& names) {
  std::string text;
  for (const auto& [dtype, name] : names) text += fmt::format("{}={} ", dtype, name);
  SentNames letters{};
  require(text.size() < letters.size(), "OpenBLAS's name of its kernels is too long: '{}'", text);
  std::ranges::copy(text, letters.begin());
  return letters;
}

ProductNames received(const SentNames& letters) {
  ProductNames names;
  std::istringstream words(std::string(letters.data()));
  for (std::string word; words >> word;) names[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return names;
}

/// Drops what the checkpoint was computed by if another rank cannot do it. The note names the first of them.
ProductRequest within_reach(Mesh& host, ProductRequest request, std::vector<std::string>& notes) {
  if (request.saved.empty()) return request;
  const std::vector<std::int32_t> can = gathered(host, std::int32_t{obstacle_of(request.saved, request.dtype) ? 0 : 1});
  const auto first = std::ranges::find(can, 0);
  if (first == can.end() || first == can.begin()) return request;  // rank 0 says itself why it cannot
  notes.push_back(
      fmt::format("rank {} cannot do the {} matmuls as in the checkpoint, so the run continues, equal to "
                  "rounding, with others",
                  first - can.begin(), name_of(request.dtype)));
  request.saved.clear();
  return request;
}

}  // namespace

ChosenProducts agreed_products(Mesh& host, const ProductRequest& wanted) {
  if (!wanted.is_of_processes) return choose_products(wanted);
  std::vector<std::string> notes;
  const ProductRequest request = within_reach(host, wanted, notes);
  ChosenProducts products;
  if (host.rank() == 0) products = choose_products(request);
  const ProductNames names = received(gathered(host, sent(names_of(products.choice))).front());
  if (host.rank() != 0) {
    const auto obstacle = obstacle_of(names, request.dtype);
    const std::string& name = names.at(std::string(name_of(request.dtype)));
    const auto refuse = [&](const std::string& why) {
      throw Error(fmt::format(
          "the processor of {} ({}) cannot do {} matmuls by '{}', which rank 0 chose: {}; set {} for "
          "all ranks",
          host_name(), name_of(processor_kind()), name_of(request.dtype), name, why, setting_for_all(request.dtype)));
    };
    if (obstacle) refuse(*obstacle);
    products.choice = chosen_elsewhere(names);
    if (name_of(products.choice, request.dtype) != name)
      refuse(fmt::format("its OpenBLAS has other kernels, '{}'", products.choice.core_type));
    products.source = "as rank 0";
  }
  products.notes.insert(products.notes.begin(), notes.begin(), notes.end());
  return products;
}

}  // namespace echelon
