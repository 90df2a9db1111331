// Faults that a ring of context parallelism could have, planted one at a time: types find each before anything is
// computed.
#include "parity/layout.h"
#include "spec/groups.h"
#include "types/planted.h"

#include <gmock/gmock.h>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;

RunConfig ring_of(int cp) { return config_of({.microbatches = 1, .layers = 1, .cp = cp, .seq_len = 13}); }

/// Changes the operations of one kind; f(args, n) gets how many came before, and says whether the operation is done.
template <class Args, class F>
PlantInOps in(F f) {
  return [f, seen = std::make_shared<int>(0)](StoredOperation& operation) {
    auto* args = std::get_if<Args>(&operation);
    return args == nullptr || f(*args, (*seen)++);
  };
}
/// What the blocks of a ring have in common: a field of the first one is given to the others, too.
template <class Args, class Field>
PlantInOps as_of_the_first(Field field) {
  return in<Args>([field, kept = std::make_shared<Args>()](Args& args, int n) {
    if (n == 0) *kept = args;
    field(args, *kept);
    return true;
  });
}

TEST(RingFaults, NothingPlantedIsNoFault) {
  for (const int cp : {2, 3, 4}) EXPECT_EQ(fault_of(ring_of(cp), {}), "");
}

TEST(RingFaults, ABlockThatIsLeftOut) {
  const auto skip = [](const auto&, int n) { return n != 0; };
  EXPECT_THAT(fault_of(ring_of(2), {.ops = in<MergeAttentionArgs>(skip)}),
              HasSubstr("is attended to 1 of the ring's blocks over cp, but is read as if all 2 blocks of the ring"));
  EXPECT_THAT(fault_of(ring_of(4), {.ops = in<MergeAttentionArgs>(skip)}), HasSubstr("do not belong together"));
}

TEST(RingFaults, ABlockThatIsSeenTwice) {
  const auto keys = [](AttentionArgs& args, const AttentionArgs& first) {
    args.k = first.k;
    args.v = first.v;
    args.mask = first.mask;
  };
  EXPECT_THAT(fault_of(ring_of(2), {.ops = as_of_the_first<AttentionArgs>(keys)}), HasSubstr("do not belong together"));
}

TEST(RingFaults, KeysUnderTheRangesOfOthers) {
  const auto mask = [](auto& args, const auto& first) { args.mask = first.mask; };
  for (const PlantInOps& plant : {as_of_the_first<AttentionArgs>(mask), as_of_the_first<AttentionBackwardArgs>(mask)})
    EXPECT_THAT(fault_of(ring_of(3), {.ops = plant}), HasSubstr("the range of keys"));
}

TEST(RingFaults, KeysWithoutTheirValues) {
  const auto keys = [](auto& args, const auto& first) { args.k = first.k; };
  for (const PlantInOps& plant : {as_of_the_first<AttentionArgs>(keys), as_of_the_first<AttentionBackwardArgs>(keys)})
    EXPECT_THAT(fault_of(ring_of(2), {.ops = plant}), HasSubstr("sharded(0) of the rank 1 before over cp"));
}

TEST(RingFaults, StatisticsOfAnotherPart) {
  const auto statistics = [](MergeAttentionArgs& args, int /*n*/) {
    args.part_lse = args.lse;
    return true;
  };
  EXPECT_THAT(fault_of(ring_of(2), {.ops = in<MergeAttentionArgs>(statistics)}), HasSubstr("do not belong together"));
}

TEST(RingFaults, PartsThatAreAddedInsteadOfMerged) {
  const auto lse = [](AttentionBackwardArgs& args, int /*n*/) {
    std::swap(args.lse, args.delta);
    return true;
  };
  EXPECT_THAT(fault_of(ring_of(2), {.ops = in<AttentionBackwardArgs>(lse)}), HasSubstr("lse"));
}

TEST(RingFaults, GradientsOfABlockThatMissAPart) {
  // Of dq, of a block under way, and of what arrives at home. The first additions of backward are those of the block.
  const auto of_keys = [](const Tensor& x) { return x.sizes.num_dims() == 4; };
  for (const int which : {0, 1, 2, 3, 4}) {
    const auto skip = [of_keys, seen = std::make_shared<int>(0), which](const AddArgs& args, int /*n*/) {
      return !of_keys(args.a) || (*seen)++ != which;
    };
    const std::string fault = fault_of(ring_of(3), {.ops = in<AddArgs>(skip)});
    EXPECT_TRUE(fault.find("of the ring's blocks over cp") != std::string::npos ||
                fault.find("do not belong") != std::string::npos)
        << which << ": " << fault;
  }
}

// The sums of the last hop are of another rank's block: with the own part they make no gradient of one block.
TEST(RingFaults, GradientsThatStayAbroad) {
  for (const int cp : {3, 4}) {
    const int num_additions = 3 * (cp - 1);  // as in the test above; the last two are those of what arrived
    for (const int which : {1, 2}) {
      const auto leave = [=, outs = std::make_shared<std::vector<Tensor>>()](AddArgs& args, int /*n*/) {
        if (args.a.sizes.num_dims() != 4) return true;
        if (std::ssize(*outs) == num_additions - which) args.b = (*outs)[outs->size() - 2];
        outs->push_back(args.out);
        return true;
      };
      EXPECT_THAT(fault_of(ring_of(cp), {.ops = in<AddArgs>(leave)}), HasSubstr("before over cp"))
          << cp << " " << which;
    }
  }
}

// At cp = 2 there is one hop, whose sums are copies.
TEST(RingFaults, GradientsOfTheOnlyHopThatStayAbroad) {
  const auto leave = [out = std::make_shared<Tensor>()](StoredOperation& operation) {
    if (const auto* copy = std::get_if<CopyArgs>(&operation); copy && copy->out.sizes.num_dims() == 4) *out = copy->out;
    if (auto* add = std::get_if<AddArgs>(&operation); add && add->a.sizes.num_dims() == 4 && out->exists())
      add->b = *out;
    return true;
  };
  EXPECT_THAT(fault_of(ring_of(2), {.ops = leave}), HasSubstr("before over cp"));
}

}  // namespace
}  // namespace echelon::testing
