// The order of a product's shares: each is claimed once, and what it waits for is claimed before it.
#include "ops/cpu/gemm_agenda.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace echelon {
namespace {

class Agendas : public testing::TestWithParam<GemmAgenda::Counts> {};

using Place = std::tuple<std::int64_t, bool, std::int64_t>;  // section, of columns, index

/// Packed panels of two sections are there at a time.
bool needs(const GemmAgenda::Share& share, const Place& earlier) {
  const auto [section, is_of_columns, index] = earlier;
  if (is_of_columns) return section < share.section + (share.is_of_columns ? 0 : 1);
  return share.is_of_columns ? section < share.section - 1 : section < share.section && index == share.index;
}

TEST_P(Agendas, HaveEveryShareOnceBehindWhatItNeeds) {
  const GemmAgenda agenda(GetParam());
  std::set<Place> open;
  for (std::int64_t section = 0; section < GetParam().sections; ++section) {
    for (std::int64_t i = 0; i < GetParam().column_shares; ++i) open.emplace(section, true, i);
    for (std::int64_t i = 0; i < GetParam().row_shares; ++i) open.emplace(section, false, i);
  }
  ASSERT_EQ(agenda.size(), static_cast<std::int64_t>(open.size()));
  for (std::int64_t position = 0; position < agenda.size(); ++position) {
    const GemmAgenda::Share share = agenda[position];
    ASSERT_EQ(open.erase({share.section, share.is_of_columns, share.index}), 1) << position;
    for (const Place& later : open) ASSERT_FALSE(needs(share, later)) << "place " << position << " waits for section " << std::get<0>(later);
  }
}

INSTANTIATE_TEST_SUITE_P(Gemm, Agendas,
                         testing::Values(GemmAgenda::Counts{1, 1, 0, 0}, GemmAgenda::Counts{1, 2, 10, 2}, GemmAgenda::Counts{5, 2, 10, 2},
                                         GemmAgenda::Counts{4, 3, 2, 7}, GemmAgenda::Counts{3, 2, 0, 2}, GemmAgenda::Counts{6, 1, 8, 0}),
                         [](const auto& test) {
                           const GemmAgenda::Counts& n = test.param;
                           return fmt::format("{}sections_{}columns_{}rows_{}late", n.sections, n.column_shares, n.row_shares, n.late_shares);
                         });

}  // namespace
}  // namespace echelon
