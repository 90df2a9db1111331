// docs/internals/parity.md shows the table that the sweep goes by, and what its long form found.
#include "parity/sweep/compatibility.h"
#include "parity/sweep/sweep.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace echelon::testing {
namespace {

std::string page() {
  std::stringstream text;
  text << std::ifstream(ECHELON_SOURCE_DIR "/docs/internals/parity.md").rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t first = text.find(begin), last = text.find(end);
  return first == std::string::npos || last == std::string::npos
             ? ""
             : text.substr(first + begin.size(), last - first - begin.size());
}

void expect_on_page(const std::string& mark, const std::string& expected) {
  if (between(page(), "<!-- " + mark + " -->\n", "<!-- end of " + mark + " -->") == expected) return;
  const std::string folder = ECHELON_BINARY_DIR "/sweep", path = folder + "/" + mark + ".md";
  std::filesystem::create_directories(folder);
  std::ofstream(path) << expected;
  ADD_FAILURE() << "docs/internals/parity.md has another table of " << mark << "; it is now that of " << path;
}

TEST(ParityPage, HasTheTablesOfAxes) {
  expect_on_page("axes", compatibility(sweep_table()));
  expect_on_page("mixtures", axes_beyond(sweep_table(), mixture_table()));
}

/// A number of the page's table of results.
double result(const std::string& name) {
  const std::string text = page();
  std::smatch match;
  const bool is_there = std::regex_search(text, match, std::regex("\\| " + name + " \\| ([0-9.e-]+) \\|"));
  return is_there ? std::stod(match[1]) : NAN;
}

TEST(ParityPage, TellsOfTheRowsThatThereAre) {
  if (sweep_seed() != usual_seed) return;
  EXPECT_EQ(result("rows"), static_cast<double>(all_rows(sweep_table()).size()));
  EXPECT_EQ(result("allowed pairs of settings"), static_cast<double>(allowed_pairs(sweep_table()).size()));
  EXPECT_NE(page().find(fmt::format("with {} rows", all_rows(mixture_table()).size())), std::string::npos);
  EXPECT_LE(result("worst error of a loss"), scalar_tolerance);
  EXPECT_LE(result("worst error of a gradient norm"), scalar_tolerance);
  EXPECT_LE(result("worst error of a gradient"), tensor_tolerance);
  EXPECT_LE(result("worst error of an updated weight"), tensor_tolerance);
}

}  // namespace
}  // namespace echelon::testing
