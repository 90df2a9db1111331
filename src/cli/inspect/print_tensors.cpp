#include "cli/inspect/print_tensors.h"

#include "base/text/counted.h"
#include "base/text/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

struct Totals {
  std::int64_t num_parameters = 0, num_bytes = 0;
};

Totals totals_of(const std::vector<ListedTensor>& tensors) {
  Totals totals;
  for (const ListedTensor& tensor : tensors) {
    std::int64_t size = 1;
    for (const std::int64_t dim : tensor.shape) size *= dim;
    totals.num_parameters += size;
    totals.num_bytes += tensor.num_bytes;
  }
  return totals;
}

}  // namespace

void print_tensors(std::string_view name, const std::vector<ListedTensor>& tensors) {
  std::size_t width = 0;
  for (const ListedTensor& tensor : tensors) width = std::max(width, printable(tensor.name).size());
  for (const ListedTensor& tensor : tensors)
    fmt::print("{:<{}}  {:<4}  {}\n", printable(tensor.name), width, printable(tensor.format), to_string(tensor.shape));
  const Totals totals = totals_of(tensors);
  fmt::print("{}: {}, {}, {:.1f} MB\n", printable(name, 200), counted(tensors.size(), "tensor"),
             counted(totals.num_parameters, "parameter"), static_cast<double>(totals.num_bytes) / 1e6);
}

nlohmann::ordered_json tensors_json(const std::vector<ListedTensor>& tensors) {
  auto list = nlohmann::ordered_json::array();
  for (const ListedTensor& tensor : tensors)
    list.push_back({{"name", tensor.name},
                    {"dtype", tensor.format},
                    {"shape", tensor.shape},
                    {"num_bytes", tensor.num_bytes},
                    {"file", tensor.file_name}});
  const Totals totals = totals_of(tensors);
  return {{"num_parameters", totals.num_parameters}, {"num_bytes", totals.num_bytes}, {"tensors", list}};
}

}  // namespace echelon
