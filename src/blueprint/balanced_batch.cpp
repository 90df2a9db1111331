#include "blueprint/balanced_batch.h"

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

/// A replica or a microbatch, and what it has so far.
struct Bin {
  std::int64_t pairs = 0, num_sequences = 0;
};

/// The bin with the fewest pairs of those with room.
std::size_t least_loaded(std::span<const Bin> bins, std::int64_t most_sequences) {
  std::size_t best = bins.size();
  for (std::size_t i = 0; i < bins.size(); ++i)
    if (bins[i].num_sequences < most_sequences && (best == bins.size() || bins[i].pairs < bins[best].pairs)) best = i;
  return best;
}

void put(Bin& bin, std::int64_t pairs) {
  bin.pairs += pairs;
  ++bin.num_sequences;
}

}  // namespace

std::vector<std::int64_t> balanced_order(const BatchLayout& layout, std::span<const std::int64_t> pairs) {
  std::vector<std::int64_t> by_size(pairs.size()), order(pairs.size());
  std::iota(by_size.begin(), by_size.end(), std::int64_t{0});
  const auto pairs_of = [&](std::int64_t sequence) { return pairs[static_cast<std::size_t>(sequence)]; };
  std::ranges::stable_sort(by_size, std::ranges::greater(), pairs_of);

  const auto num_replicas = static_cast<std::size_t>(layout.num_replicas()),
             num_microbatches = static_cast<std::size_t>(layout.num_microbatches());
  const auto of_replica = std::ssize(pairs) / layout.num_replicas();
  std::vector<Bin> replicas(num_replicas), microbatches(num_replicas * num_microbatches);
  for (const std::int64_t sequence : by_size) {
    const std::size_t replica = least_loaded(replicas, of_replica);
    const std::span<Bin> of_it = std::span(microbatches).subspan(replica * num_microbatches, num_microbatches);
    const std::size_t microbatch = least_loaded(of_it, of_replica / layout.num_microbatches());
    const BatchPlace place = {.replica = static_cast<int>(replica),
                              .microbatch = static_cast<int>(microbatch),
                              .row = of_it[microbatch].num_sequences};
    order[static_cast<std::size_t>(layout.sequence_at(place))] = sequence;
    put(replicas[replica], pairs_of(sequence));
    put(of_it[microbatch], pairs_of(sequence));
  }
  return order;
}

double largest_over_mean(std::span<const std::int64_t> pairs) {
  const std::int64_t sum = std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0});
  if (sum == 0) return 1;
  return static_cast<double>(std::ranges::max(pairs)) * static_cast<double>(pairs.size()) / static_cast<double>(sum);
}

}  // namespace echelon
