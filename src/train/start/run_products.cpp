#include "train/start/run_products.h"

#include "base/error.h"
#include "checkpoint/state/manifest.h"
#include "train/start/load_choice.h"

namespace echelon {
namespace {

ProductNames saved_products(const RunConfig& config) {
  try {
    const std::filesystem::path folder = first_to_load(config);
    return folder.empty() ? ProductNames() : read_manifest(folder).products;
  } catch (const Error&) {  // as Resume will say
    return {};
  }
}

}  // namespace

ProductRequest products_of_run(const RunConfig& config) { return product_request(config, saved_products(config)); }

}  // namespace echelon
