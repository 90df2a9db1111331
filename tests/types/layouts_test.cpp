// The types of a real step: every layout of the parity grid has none that does not fit.
#include "engine/layout_types.h"
#include "parity/layout.h"

#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

TEST(LayoutTypes, EveryLayoutOfTheParityGridFits) {
  std::vector<Layout> layouts = grid();
  for (const Layout& row : rows()) layouts.push_back(row);
  for (const Layout& layout : layouts)
    for (const char* dtype : {"float64", "bfloat16"}) {
      RunConfig config = config_of(layout);
      config.training.dtype = dtype;
      EXPECT_NO_THROW(check_layout_types(Blueprint(config))) << name_of(layout) << " " << dtype;
    }
}

}  // namespace
}  // namespace echelon::testing
