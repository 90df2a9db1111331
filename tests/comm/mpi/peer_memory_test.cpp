// Processes of one machine read one another's memory, and say so where it is gone.
#include "comm/mpi/mpi_process.h"
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/processes.h"
#include "comm/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace echelon {
namespace {

// Of rank r: r, r + 1, ... over a few pages that do not begin at a page's begin.
std::vector<std::int64_t> numbers_of(int rank) {
  std::vector<std::int64_t> numbers(100'003);
  std::iota(numbers.begin(), numbers.end(), rank);
  return numbers;
}

/// body(memory, address of the peer's numbers, peer) on two ranks, which have their numbers meanwhile.
void between_two(const std::function<void(const PeerMemory&, std::uint64_t, int)>& body) {
  if (num_processes() < 2) GTEST_SKIP() << "needs two processes";
  run_first_mpi_ranks(conformance::line(2), {}, [&](Mesh& mesh) {
    const PeerMemory& memory = MpiProcess::get().wire().memory();
    const int peer = 1 - mesh.rank();
    const std::vector<std::int64_t> own = numbers_of(mesh.rank());
    std::uint64_t own_address = reinterpret_cast<std::uint64_t>(own.data());
    std::vector<std::uint64_t> addresses(2);
    const auto as_tensor = [](std::uint64_t* x, std::int64_t count) {
      return Tensor{reinterpret_cast<std::byte*>(x), DType::float64, {count}};
    };
    Comm& comm = mesh.comm(conformance::line_group);
    comm.all_gather(as_tensor(addresses.data(), 2), as_tensor(&own_address, 1)).wait();
    if (memory.reaches(peer)) body(memory, addresses[static_cast<std::size_t>(peer)], peer);
    comm.barrier().wait();
  });
}

TEST(PeerMemory, IsRead) {
  between_two([](const PeerMemory& memory, std::uint64_t address, int peer) {
    std::vector<std::int64_t> read(numbers_of(peer).size());
    memory.read(peer, address, reinterpret_cast<std::byte*>(read.data()),
                static_cast<std::int64_t>(read.size() * sizeof(std::int64_t)));
    EXPECT_EQ(read, numbers_of(peer));
    EXPECT_FALSE(memory.reaches(1 - peer));  // oneself
  });
}

TEST(PeerMemory, ThatIsGoneIsNamed) {
  between_two([](const PeerMemory& memory, std::uint64_t, int peer) {
    std::byte byte{};
    try {
      memory.read(peer, 8, &byte, 1);  // nothing lies in the first page
      ADD_FAILURE() << "read";
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), testing::StartsWith(fmt::format(
                                      "rank {} cannot read the memory of rank {} any more: ", 1 - peer, peer)));
    }
  });
}

}  // namespace
}  // namespace echelon
