// What is measured of the collectives, alike for thread ranks and for MPI processes: float32, S bytes of the full
// buffer, n ranks, in a loop without pauses.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace echelon::collectives {

inline constexpr std::array<std::int64_t, 6> sizes = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};  // bytes

/// The full buffer of S bytes; a multiple of n, so that every rank has a shard: 8 bytes become one float per rank where
/// n > 2.
inline std::int64_t num_floats(std::int64_t bytes, int n) { return (bytes / 4 + n - 1) / n * n; }

inline int num_iterations(std::int64_t bytes, int n) {
  return static_cast<int>(std::clamp<std::int64_t>((std::int64_t{96} << 20) / bytes / n, 1, 2000 / n));
}

/// Seconds per call, of all ranks, from the first one's start to the last one's end. Where ranks share cores, a barrier
/// may let a rank go on after others have done all. `maximum` replaces values by the largest of any rank.
template <class Barrier, class Maximum, class Body>
double seconds_per_call(int iterations, Barrier&& barrier, Maximum&& maximum, Body&& body) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  barrier();
  const double start = now();
  for (int i = 0; i < iterations; ++i) body();
  std::array<double, 2> end_and_start = {now(), -start};
  barrier();
  maximum(end_and_start);
  return (end_and_start[0] + end_and_start[1]) / iterations;
}

/// One line of the output: what was measured, and the seconds of every round.
struct Series {
  std::string what;  // "all_reduce"
  std::string who;   // "echelon", "memcpy", "openmpi"
  int n = 0;
  std::int64_t bytes = 0;
  std::vector<double> seconds;

  void print() {
    std::sort(seconds.begin(), seconds.end());
    std::printf("%s\t%s\t%d\t%lld\t%.9f\t%.9f\n", what.c_str(), who.c_str(), n, static_cast<long long>(bytes),
                seconds[seconds.size() / 2], seconds.front());
  }
};

}  // namespace echelon::collectives
