#include "ops/cpu/gemm_grouped.h"

#include "base/team.h"
#include "ops/cpu/gemm_streamed.h"

#include <algorithm>

namespace echelon {
namespace {

/// Of c: the rows or columns that one thread computes.
struct Share {
  const GemmProduct* product = nullptr;
  GemmRange part;
  std::int64_t cost = 0;
};

/// In multiply-adds; what few rows cost is the time to read the other factor.
std::int64_t cost_of(const GemmProduct& g) {
  constexpr std::int64_t fewest_rows = 12;
  const std::int64_t rows = g.a.is_transposed ? g.k : g.m, others = g.a.is_transposed ? g.m : g.k;
  return std::max(rows, fewest_rows) * others * g.n;
}

}  // namespace

void multiply_all(const GemmKernels& kernels, const std::vector<GemmProduct>& products, int num_threads) {
  std::vector<Share> shares;
  std::int64_t all = 0;
  for (const GemmProduct& g : products) {
    const std::optional<StreamedDim> dim = streamed_dim(kernels, g);
    if (!dim) {
      multiply(kernels, g, num_threads);
      continue;
    }
    shares.push_back({&g, {0, *dim == StreamedDim::rows ? g.m : g.n}, cost_of(g)});
    all += shares.back().cost;
  }
  const bool is_small = all < (std::int64_t{1} << 20);
  const std::int64_t threads = is_small ? 1 : Team::most_threads(num_threads);
  const auto next_of = [](const std::vector<Share>& claimed, std::size_t next) {
    return next < claimed.size() ? claimed[next].product : nullptr;
  };
  if (threads == 1) {
    for (std::size_t i = 0; i < shares.size(); ++i)
      multiply_streamed(kernels, *shares[i].product, shares[i].part, next_of(shares, i + 1));
    return;
  }
  // The largest ones first and none larger than this, so that threads end together.
  const std::int64_t most = std::max<std::int64_t>(all / (8 * threads), 1);
  std::vector<Share> divided;
  for (const Share& share : shares) {
    const std::int64_t parts =
        std::clamp<std::int64_t>(share.cost / most, 1, parts_of(share.part.size, streamed_grain));
    for (std::int64_t i = 0; i < parts; ++i)
      divided.push_back({share.product, part(share.part.size, parts, i, streamed_grain), share.cost / parts});
  }
  std::ranges::stable_sort(divided, std::ranges::greater(), &Share::cost);
  const auto multiply_share = [&](int index) {
    const Share& share = divided[static_cast<std::size_t>(index)];
    multiply_streamed(kernels, *share.product, share.part, next_of(divided, static_cast<std::size_t>(index + threads)));
  };
  Team::of_this_thread(num_threads).run(static_cast<int>(divided.size()), multiply_share);
}

}  // namespace echelon
