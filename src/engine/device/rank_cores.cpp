#include "engine/device/rank_cores.h"

#include "base/error.h"
#include "base/team_cores.h"
#include "base/text/counted.h"
#include "comm/gathered.h"
#include "machine/cores.h"
#include "machine/host.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace echelon {
namespace {

/// Ranks with the same two values here share the same cores.
struct Place {
  std::uint64_t host = 0;
  std::uint64_t cpus = 0;
  bool operator==(const Place&) const = default;
};

Place place_of(const CpuSet& cpus) { return {host_id(), std::hash<std::string>()(to_string(cpus))}; }

struct Neighbours {
  int count = 0;
  int index = 0;
};

Neighbours find_neighbours(const Place& own, Mesh& mesh) {
  Neighbours neighbours;
  int rank = 0;
  for (const Place& place : gathered(mesh, own)) {
    if (place == own) {
      ++neighbours.count;
      if (rank < mesh.rank()) ++neighbours.index;
    }
    ++rank;
  }
  return neighbours;
}

/// The part of the quota that a rank has, or else the cores of its share.
int threads_of_share(const CpuSet& share, int num_ranks_on_it, int num_neighbours) {
  const double num_cores = static_cast<double>(cores_among(share).size()) / num_ranks_on_it;
  const double granted = cpu_quota().value_or(num_cores * num_neighbours) / num_neighbours;
  return std::max(1, static_cast<int>(std::min(num_cores, std::ceil(granted))));
}

}  // namespace

int num_threads_of_environment() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  if (value == nullptr || *value == '\0') return 0;
  const std::string_view text(value);
  int number = 0;
  constexpr int most_threads = 4096;  // as for training.num_threads
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && number >= 1 && (end == text.data() + text.size() || *end == ',');
  require(is_number,
          "the environment variable OMP_NUM_THREADS = '{}' is not a number of threads; unset it or use "
          "training.num_threads",
          text);
  require(number <= most_threads,
          "the environment variable OMP_NUM_THREADS = '{}' is above {}; unset it or use training.num_threads = {}",
          text, most_threads, most_threads);
  return number;
}

RankCores claim_cores(const RunConfig& config, Mesh& mesh) {
  const bool binds = config.comm.bind == RankBinding::automatic;
  RankCores cores = {.cpus = allowed_cpus()};
  const Neighbours neighbours = find_neighbours(place_of(cores.cpus), mesh);
  cores.num_neighbours = neighbours.count;
  const std::vector<CpuSet> shares = divide_cores(cores.cpus, neighbours.count);
  if (binds && !shares.empty()) {
    const CpuSet& share = shares[static_cast<std::size_t>(neighbours.index)];
    const bool is_whole = share == cores.cpus;
    if (is_whole || bind_this_thread(share)) {
      cores.cpus = share;
      cores.is_bound = !is_whole;
    }
  }
  const int num_ranks_on_it = cores.is_bound ? 1 : neighbours.count;
  const int wanted =
      config.training.num_threads > 0 ? static_cast<int>(config.training.num_threads) : num_threads_of_environment();
  cores.num_threads = wanted > 0 ? wanted : threads_of_share(cores.cpus, num_ranks_on_it, neighbours.count);
  if (binds && shares.empty() && cores.num_threads == 1) mesh.bind_turns();
  if (binds && cores.num_threads > 1 && num_ranks_on_it == 1) spread_team_of_this_thread(cores_among(cores.cpus));
  return cores;
}

std::string describe(const RankCores& p) {
  const std::string threads = counted(p.num_threads, "thread") + " per rank";
  const std::string cpus = fmt::format("{} {}", plural(p.cpus.size(), "cpu"), to_string(p.cpus));
  if (p.is_bound)
    return fmt::format("{}, rank 0 bound to {} ({} ranks of its host divide the cores)", threads, cpus,
                       p.num_neighbours);
  return fmt::format("{}, on {}{}", threads, cpus,
                     p.num_neighbours > 1 ? " together with " + counted(p.num_neighbours - 1, "other rank") : "");
}

}  // namespace echelon
