#include "train/agreed_failure.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace echelon {
namespace {

/// What one rank tells all others.
struct Told {
  std::array<char, 1000> sentence{};
  std::int32_t status = 0;
};

}  // namespace

std::optional<SharedFailure> agreed_failure(Comm& all, const std::function<void()>& part) {
  return agreed_failure_of_all(all, [&] { return part(), true; });
}

std::optional<SharedFailure> agreed_failure_of_all(Comm& all, const std::function<bool()>& part) {
  std::optional<Error> own;
  bool is_done = false;
  // The maximum of these says whether a rank is not done yet, and else names the first one that failed.
  const double not_done = all.size() + 1;
  double ranks_from_end = not_done;
  while (ranks_from_end == not_done) {
    try {
      is_done = is_done || part();
    } catch (const PeerAborted&) {
      throw;
    } catch (const Error& error) {
      own = error;
      is_done = true;
    }
    ranks_from_end = !is_done ? not_done : own ? all.size() - all.rank() : 0;
    all.all_reduce({&ranks_from_end, DType::float64, {1}}, ReduceOp::max).wait();
  }
  if (ranks_from_end == 0) return std::nullopt;
  const int rank = all.size() - static_cast<int>(ranks_from_end);
  Told told;
  if (own && rank == all.rank()) {
    const std::string_view sentence = own->what();
    std::memcpy(told.sentence.data(), sentence.data(), std::min(sentence.size(), told.sentence.size() - 1));
    told.status = static_cast<std::int32_t>(own->status());
  }
  all.broadcast({&told, DType::int32, {sizeof(Told) / sizeof(std::int32_t)}}, rank).wait();
  return SharedFailure{told.sentence.data(), rank, static_cast<ExitStatus>(told.status)};
}

void throw_agreed(Comm& all, const SharedFailure& failure) {
  if (all.rank() != failure.rank) all.barrier().wait();
  throw Error(failure.sentence, failure.status);
}

}  // namespace echelon
