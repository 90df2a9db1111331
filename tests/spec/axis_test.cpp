#include "spec/axis.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

using testing::ElementsAre;

AxisOrder parsed(const std::vector<std::string>& names) { return parse_axis_order("order", names); }

std::vector<Axis> axes_of(const std::vector<std::string>& names) {
  const AxisOrder order = parsed(names);
  return {order.axes().begin(), order.axes().end()};
}

TEST(AxisOrder, IsReadAsMegatronWritesIt) {
  using enum Axis;
  EXPECT_THAT(axes_of({"tp-cp-ep-dp-pp"}), ElementsAre(tp, cp, dp_shard, dp_replicate, pp));
  EXPECT_THAT(axes_of({"TP-PP-DP"}), ElementsAre(tp, pp, dp_shard, dp_replicate));
  EXPECT_THAT(axes_of({"tp", "dp_shard", "pp", "dp_replicate"}), ElementsAre(tp, dp_shard, pp, dp_replicate));
  EXPECT_EQ(AxisOrder(), parsed({"tp-cp-dp_shard-pp-dp_replicate"}));
  EXPECT_FALSE(parsed({"tp-pp"}).names(dp_shard));
}

TEST(AxisOrder, IsWrittenAsItIsRead) {
  for (const std::string text : {"tp-cp-dp_shard-pp-dp_replicate", "tp-cp-dp-pp", "dp_replicate-dp_shard-tp", "pp"})
    EXPECT_EQ(name_of(parsed({text})), text);
}

TEST(AxisOrder, RefusesOthersWithTheNearest) {
  const auto error_of = [](const std::vector<std::string>& names) -> std::string {
    try {
      return name_of(parsed(names));
    } catch (const Error& error) {
      return error.what();
    }
  };
  const std::string all = "is not one of tp, cp, ep, dp, pp, dp_shard, dp_replicate (use ";
  EXPECT_EQ(error_of({"tp-dp-ppp"}), "order = 'tp-dp-ppp': 'ppp' " + all + "'tp-dp-pp-cp')");
  EXPECT_EQ(error_of({"tp", "dp", "tp", "cp", "pp"}), "order = 'tp-dp-tp-cp-pp' names tp twice (use 'tp-dp-cp-pp')");
  EXPECT_EQ(error_of({"dp-dp_shard-tp-pp-cp"}),
            "order = 'dp-dp_shard-tp-pp-cp' names dp_shard twice (use 'dp-tp-pp-cp')");
  EXPECT_EQ(error_of({""}), "order = '': '' " + all + "'tp-cp-dp_shard-pp-dp_replicate')");
}

}  // namespace
}  // namespace echelon
