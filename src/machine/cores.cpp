#include "machine/cores.h"

#include <algorithm>

namespace echelon {

std::vector<CpuSet> divide_cores(const CpuSet& cpus, int num_shares) {
  const std::vector<CpuSet> cores = cores_among(cpus);
  if (num_shares < 1 || cores.size() < static_cast<std::size_t>(num_shares)) return {};
  std::vector<CpuSet> shares(static_cast<std::size_t>(num_shares));
  for (std::size_t share = 0; share < shares.size(); ++share) {
    for (std::size_t core = cores.size() * share / shares.size(); core < cores.size() * (share + 1) / shares.size();
         ++core)
      shares[share].insert(shares[share].end(), cores[core].begin(), cores[core].end());
    std::sort(shares[share].begin(), shares[share].end());
  }
  return shares;
}

}  // namespace echelon
