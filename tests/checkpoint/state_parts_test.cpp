// Which files have a part of a parameter, and whether parts overlap, compared with what a loop over all of them finds.
#include "checkpoint/state/parameter_files.h"

#include "checkpoint/state/rectangles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace echelon {
namespace {

TEST(StateParts, OverlapIfAnElementIsInTwo) {
  std::mt19937 random(5);
  constexpr std::int64_t size = 8;
  int num_disjoint = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<MatrixPart> parts(1 + random() % 5);
    int count[size][size] = {};
    for (MatrixPart& part : parts) {
      part.rows.first = static_cast<std::int64_t>(random() % size);
      part.columns.first = static_cast<std::int64_t>(random() % size);
      part.rows.count = std::min(static_cast<std::int64_t>(random() % 6), size - part.rows.first);
      part.columns.count = std::min(static_cast<std::int64_t>(random() % 6), size - part.columns.first);
      for (std::int64_t i = 0; i < part.rows.count; ++i)
        for (std::int64_t j = 0; j < part.columns.count; ++j) ++count[part.rows.first + i][part.columns.first + j];
    }
    const bool has_two = std::ranges::any_of(&count[0][0], &count[0][0] + size * size, [](int c) { return c > 1; });
    EXPECT_EQ(are_disjoint(parts), !has_two);
    num_disjoint += has_two ? 0 : 1;
  }
  EXPECT_GT(num_disjoint, 1000);
  EXPECT_LT(num_disjoint, 4000);
}

TEST(StateParts, OfAParameterAreInTheFilesThatSaySo) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    constexpr std::int64_t num_parameters = 20;
    std::vector<Manifest::File> files(random() % 9);
    for (Manifest::File& file : files)
      for (std::int64_t at = 0; at < num_parameters; ++at) {
        const auto count = static_cast<std::int64_t>(random() % 4);
        if (random() % 3 == 0) file.parameters.push_back({at, std::min(count, num_parameters - at)});
        at += count;
      }
    const ParameterFiles index(files);
    for (std::int64_t parameter = 0; parameter < num_parameters; ++parameter) {
      std::vector<std::size_t> expected;
      for (std::size_t f = 0; f < files.size(); ++f)
        if (std::ranges::any_of(files[f].parameters, [&](const Range& range) {
              return range.first <= parameter && parameter < range.first + range.count;
            }))
          expected.push_back(f);
      EXPECT_EQ(index.files_of(parameter), expected);
    }
  }
}

}  // namespace
}  // namespace echelon
