#include "ops/cpu/gemm_grouped.h"

#include "base/team.h"
#include "ops/cpu/gemm_grid.h"
#include "ops/cpu/gemm_streamed.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace echelon {
namespace {

/// Of c: what one thread computes.
struct Share {
  const GemmProduct* product = nullptr;
  std::optional<StreamedDim> streamed;
  GemmRange rows, columns;
  std::int64_t cost = 0;
};

/// In multiply-adds; what few rows cost is the time to read the other factor.
std::int64_t cost_of(const GemmProduct& g) {
  constexpr std::int64_t fewest_rows = 12;
  const std::int64_t rows = g.a.is_transposed ? g.k : g.m, others = g.a.is_transposed ? g.m : g.k;
  return std::max(rows, fewest_rows) * others * g.n;
}

/// In about so many parts.
void divide(const GemmKernels& kernels, const Share& share, std::int64_t num_parts, std::vector<Share>& into) {
  const GemmProduct& g = *share.product;
  if (!share.streamed) {
    const GemmGrid grid = GemmGrid::of_parts(g.m, g.n, kernels, num_parts);
    for (int i = 0; i < grid.size(); ++i)
      into.push_back({&g, std::nullopt, grid.rows(i), grid.columns(i), share.cost / grid.size()});
    return;
  }
  const bool is_of_rows = *share.streamed == StreamedDim::rows;
  const std::int64_t size = is_of_rows ? g.m : g.n, parts = std::min(num_parts, parts_of(size, streamed_grain));
  for (std::int64_t i = 0; i < parts; ++i) {
    into.push_back(share);
    (is_of_rows ? into.back().rows : into.back().columns) = part(size, parts, i, streamed_grain);
    into.back().cost /= parts;
  }
}

void multiply_share(const GemmKernels& kernels, const Share& share, const Share* next) {
  if (!share.streamed) return multiply_part(kernels, *share.product, share.rows, share.columns);
  multiply_streamed(kernels, *share.product, *share.streamed == StreamedDim::rows ? share.rows : share.columns,
                    next == nullptr || !next->streamed ? nullptr : next->product);
}

}  // namespace

void multiply_all(const GemmKernels& kernels, const std::vector<GemmProduct>& products, int num_threads) {
  std::vector<Share> shares;
  std::int64_t all = 0;
  for (const GemmProduct& g : products) {
    shares.push_back({&g, streamed_dim(kernels, g), {0, g.m}, {0, g.n}, cost_of(g)});
    all += shares.back().cost;
  }
  const bool is_small = all < (std::int64_t{1} << 20);
  const std::int64_t threads = is_small ? 1 : Team::most_threads(num_threads);
  if (threads > 1) {
    // The largest ones first and none larger than this, so that threads end together.
    const std::int64_t most = std::max<std::int64_t>(all / (8 * threads), 1);
    std::vector<Share> parts;
    for (const Share& share : shares) divide(kernels, share, std::max<std::int64_t>(share.cost / most, 1), parts);
    std::ranges::stable_sort(parts, std::ranges::greater(), &Share::cost);
    shares = std::move(parts);
  }
  const auto multiply_one = [&](int index) {
    const std::size_t next = static_cast<std::size_t>(index) + static_cast<std::size_t>(threads);
    multiply_share(kernels, shares[static_cast<std::size_t>(index)], next < shares.size() ? &shares[next] : nullptr);
  };
  if (threads > 1) return Team::of_this_thread(num_threads).run(static_cast<int>(shares.size()), multiply_one);
  for (int i = 0; i < static_cast<int>(std::ssize(shares)); ++i) multiply_one(i);
}

}  // namespace echelon
