// What thread ranks do in a step, one thing after the other: compute, start an exchange, wait for one.
#pragma once

#include "blueprint/blueprint.h"
#include "predict/machine/host_time.h"

#include <map>
#include <string>
#include <vector>

namespace echelon {

/// The q-th operation that each rank of a group starts.
struct ExchangeSpec {
  int num_parties = 1;
  double work = 0;  // seconds of one core
  bool is_done_by_the_last = true;
  bool is_transfer = false;
  std::string group;  // its name
  RowPurpose purpose = RowPurpose::other;
};

struct Piece {
  enum class Kind : std::uint8_t { begin, end, compute, join, wait, poll };
  Kind kind = Kind::compute;
  int action = -1;    // that starts or ends, or that the wait is for
  int exchange = -1;  // that is joined or waited for
  CoreSeconds seconds = {};
};

/// What differs between ranks that do the same by plan.
struct HostLoad {
  std::map<int, double> slow_ranks = {};      // factors of the time of what they compute
  std::vector<double> attention_shares = {};  // by rank, what documents leave of attention's time; empty: all
};

struct RankPieces {
  std::vector<std::vector<Piece>> ranks;
  std::vector<const Program*> programs;  // by rank
  std::vector<ExchangeSpec> exchanges;
};

/// Of a program that trains.
[[nodiscard]] RankPieces pieces_of(const Blueprint& blueprint, HostTime& time, const HostLoad& load, ProgramKind kind);

}  // namespace echelon
