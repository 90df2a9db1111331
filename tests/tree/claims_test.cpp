// docs/claims.md is what scripts/claims makes of the comments next to the tests.
#include "tree/tree.h"

#include <cstdlib>

namespace echelon {
namespace {

TEST(Claims, PageIsMadeOfTheCommentsNextToTheTests) {
  const std::string command = "'" + (tree::root() / "scripts/claims").string() + "' --check";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace echelon
