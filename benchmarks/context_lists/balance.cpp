// How evenly context parallelism distributes pairs (query, key), how many keys travel, and how long the lists take.
// usage: bench_context_lists   (one core)
//
// Claim (speed): Context parallelism evens the pairs (query, key) of packed documents over eight ranks, and few keys
//   travel.
// Bound: sequences of 131,072 tokens, four kinds of lengths, `packed`: the busiest rank has at most 1.005 of the mean
//   (headtail: 1.1 to 2.4), and 0.21, 0.14, 0.35 and 0.002 of the keys travel. Lists for 2^20 tokens take 1.6 to 4.6
//   ms; with documents of one token, up to 19 ms (Zen 4) or 28 ms (Intel Granite Rapids).
// Run: build/release/bench_context_lists
#include "base/clock.h"
#include "context/drawn_lengths.h"
#include "context/key_ranges.h"
#include "context/key_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace echelon {
namespace {

struct Figures {
  double balance = 0;   // largest over mean of pairs
  double received = 0;  // rows that ranks receive, over (cp - 1) T
  double ring = 0;
};

Figures figures_of(const TokenSplit& split, const DocumentOffsets& documents) {
  TokenLists lists;
  lists.assign(split, documents);
  std::vector<std::int64_t> pairs(static_cast<std::size_t>(split.cp));
  count_pairs(lists, {documents}, pairs);
  KeyTraffic traffic;
  traffic.count(lists, {documents});
  std::int64_t received = 0, ring = 0;
  for (int source = 0; source < split.cp; ++source)
    for (int i = 0; i < split.cp; ++i) {
      received += traffic.seen(source, i);
      ring += traffic.ring(source, i);
    }
  const double all = static_cast<double>((split.cp - 1) * split.seq_len);
  const auto sum = static_cast<double>(std::accumulate(pairs.begin(), pairs.end(), std::int64_t{0}));
  return {static_cast<double>(std::ranges::max(pairs)) * split.cp / sum, static_cast<double>(received) / all,
          static_cast<double>(ring) / all};
}

void print_balance() {
  constexpr std::int64_t T = 131072;
  constexpr int num_sequences = 20;
  fmt::print("{:10} {:13} {:>8} {:>8} {:>9} {:>9} {:>9}\n", "documents", "balancer", "balance", "largest", "received",
             "largest", "ring");
  for (const Lengths lengths : all_lengths)
    for (const LoadBalancer balancer : {LoadBalancer::headtail, LoadBalancer::per_document, LoadBalancer::packed}) {
      Figures sum, largest;
      for (std::uint32_t seed = 0; seed < num_sequences; ++seed) {
        const DocumentOffsets documents = DrawnLengths(seed).sequence(lengths, T);
        const Figures f = figures_of({.seq_len = T, .cp = 8, .balancer = balancer}, documents);
        sum = {sum.balance + f.balance, sum.received + f.received, sum.ring + f.ring};
        largest.balance = std::max(largest.balance, f.balance);
        largest.received = std::max(largest.received, f.received);
      }
      fmt::print("{:10} {:13} {:8.4f} {:8.4f} {:9.4f} {:9.4f} {:9.4f}\n", name_of(lengths), name_of(balancer),
                 sum.balance / num_sequences, largest.balance, sum.received / num_sequences, largest.received,
                 sum.ring / num_sequences);
    }
}

/// Boundaries of documents to the arrays of one rank: the lists of all, and the ranges of its queries in every block.
void print_time(std::string_view name, const DocumentOffsets& documents, LoadBalancer balancer) {
  const TokenSplit split = {.seq_len = documents.back(), .cp = 8, .balancer = balancer};
  TokenLists lists;
  std::vector<std::int32_t> begin(static_cast<std::size_t>(rows_per_rank(split))), end(begin.size());
  KeyTraffic traffic;
  double best = 1e9, best_of_traffic = 1e9;
  for (int run = 0; run < 5; ++run) {
    const double start = now_seconds();
    lists.assign(split, documents);
    for (int source = 0; source < split.cp; ++source)
      write_key_ranges({lists.positions(3), lists.positions(source)}, {documents}, {begin, end});
    const double arrays = now_seconds();
    traffic.count(lists, {documents});
    best = std::min(best, arrays - start);
    best_of_traffic = std::min(best_of_traffic, now_seconds() - arrays);
  }
  fmt::print("{:10} {:13} {:8.2f} ms {:8.2f} ms\n", name, name_of(balancer), 1e3 * best, 1e3 * best_of_traffic);
}

void print_times() {
  constexpr std::int32_t T = 1 << 20;
  fmt::print("\n{:10} {:13} {:>11} {:>11}\n", "2^20", "balancer", "arrays", "traffic");
  for (const LoadBalancer balancer : load_balancers) {
    for (const Lengths lengths : all_lengths)
      print_time(name_of(lengths), DrawnLengths(1).sequence(lengths, T), balancer);
    DocumentOffsets single(static_cast<std::size_t>(T) + 1);
    std::iota(single.begin(), single.end(), 0);
    print_time("one token", single, balancer);
  }
}

}  // namespace
}  // namespace echelon

int main() {
  echelon::print_balance();
  echelon::print_times();
}
