// Thread ranks that fail: every rank returns, and one sentence names the culprit. No wait here is near its timeout, so
// a hang would show as another sentence.
#include "base/error.h"
#include "comm/conformance.h"
#include "comm/numbers.h"
#include "comm/thread/thread_world.h"

#include <gmock/gmock.h>

#include <atomic>

namespace echelon {
namespace {

using conformance::Buffer;
using conformance::line;
using conformance::line_group;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  std::string sentence;
  ExitStatus status = ExitStatus::success;
};

Outcome outcome_of(int n, const std::function<void(Mesh&, Comm&)>& body, double timeout_seconds = 300) {
  try {
    run_thread_ranks(line(n), {.timeout_seconds = timeout_seconds},
                     [&](Mesh& mesh) { body(mesh, mesh.comm(line_group)); });
  } catch (const Error& error) {
    return {error.what(), error.status()};
  }
  return {};
}

void all_reduce(Comm& comm, std::int64_t num_elements, DType dtype = DType::float32) {
  Buffer x(dtype, num_elements);
  comm.all_reduce(x.tensor(), ReduceOp::sum).wait();
}

TEST(ThreadFailure, MoreRanksThanAProcessTakesAreRefusedBeforeOneStarts) {
  std::atomic<int> num_started = 0;
  const Outcome outcome = outcome_of(max_thread_ranks + 1, [&](Mesh&, Comm&) { ++num_started; });
  EXPECT_THAT(outcome.sentence, AllOf(HasSubstr("4097 ranks"), HasSubstr("(use 4096, ")));
  EXPECT_EQ(num_started, 0);
}

TEST(ThreadFailure, ARankThatThrowsReleasesAllThatWait) {
  constexpr int n = 257;
  std::atomic<int> num_released = 0;
  const Outcome outcome = outcome_of(n, [&](Mesh& mesh, Comm& comm) {
    comm.barrier().wait();
    if (mesh.rank() == 17) throw Error("training.steps = 0 is below 1");
    Buffer x(DType::float32, 4);
    try {
      if (mesh.rank() % 2 == 0)
        all_reduce(comm, 10);
      else
        comm.receive(x.tensor(), 17).wait();
    } catch (const Failure&) {
      ++num_released;
      throw;
    }
  });
  EXPECT_EQ(num_released, n - 1);
  EXPECT_EQ(outcome.sentence, "rank 17: training.steps = 0 is below 1");
}

TEST(ThreadFailure, TheFirstCauseIsThrownAgainWithItsStatus) {
  const auto thrown_by_rank_3 = [](const auto& exception) {
    return outcome_of(9, [&](Mesh& mesh, Comm& comm) {
      if (mesh.rank() == 3) throw exception;
      all_reduce(comm, 10);
    });
  };
  const Outcome bad_input = thrown_by_rank_3(Error("data.path = x is no file"));
  EXPECT_EQ(bad_input.sentence, "rank 3: data.path = x is no file");
  EXPECT_EQ(bad_input.status, ExitStatus::bad_input);
  const Outcome interrupted = thrown_by_rank_3(Error("interrupted", ExitStatus::interrupted));
  EXPECT_EQ(interrupted.status, ExitStatus::interrupted);
  const Outcome foreign = thrown_by_rank_3(std::runtime_error("of the library"));
  EXPECT_EQ(foreign.sentence, "rank 3: of the library");
  EXPECT_EQ(foreign.status, ExitStatus::failure);
}

TEST(ThreadFailure, AbortMakesAllOthersThrowItsSentence) {
  const Outcome outcome = outcome_of(5, [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() == 2)
      mesh.abort("rank 2 lost its disk");
    else
      all_reduce(comm, 10);
  });
  EXPECT_THAT(outcome.sentence, HasSubstr("rank 2 lost its disk"));
  EXPECT_EQ(outcome.status, ExitStatus::failure);
}

TEST(ThreadFailure, ARankThatOnlyPollsHearsOfAnAbort) {
  const Outcome outcome = outcome_of(3, [](Mesh& mesh, Comm&) {
    if (mesh.rank() == 2) throw Failure("lost its disk");
    for (;;) mesh.poll();
  });
  EXPECT_EQ(outcome.sentence, "rank 2: lost its disk");
}

TEST(ThreadFailure, UnwindingRanksLeaveNoBufferBehindThatIsStillCopied) {
  for (int round = 0; round < 10; ++round) {
    const Outcome outcome = outcome_of(4, [&](Mesh& mesh, Comm& comm) {
      std::vector<Buffer> x(6, Buffer(DType::float32, 100000));
      std::vector<Pending> pending;
      for (Buffer& buffer : x) pending.push_back(comm.all_reduce(buffer.tensor(), ReduceOp::sum));
      pending[static_cast<std::size_t>(mesh.rank())].wait();
      if (mesh.rank() == round % 4) throw Error("left in the middle");
      for (Pending& operation : pending) operation.wait();
    });
    EXPECT_EQ(outcome.sentence, fmt::format("rank {}: left in the middle", round % 4));
  }
}

TEST(ThreadFailure, DifferentOperationsAreNamed) {
  const Outcome kinds = outcome_of(3, [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() == 1)
      comm.barrier().wait();
    else
      all_reduce(comm, 10);
  });
  EXPECT_THAT(kinds.sentence, AllOf(HasSubstr("group dp_replicate (ranks 0, 1, 2)"), HasSubstr("barrier"),
                                    HasSubstr("all_reduce(sum) of 10 float32")));
  EXPECT_EQ(kinds.status, ExitStatus::failure);

  const Outcome sizes = outcome_of(3, [](Mesh& mesh, Comm& comm) { all_reduce(comm, mesh.rank() == 1 ? 11 : 10); });
  EXPECT_THAT(sizes.sentence,
              AllOf(HasSubstr("all_reduce(sum) of 11 float32"), HasSubstr("all_reduce(sum) of 10 float32")));

  const Outcome dtypes = outcome_of(
      3, [](Mesh& mesh, Comm& comm) { all_reduce(comm, 10, mesh.rank() == 2 ? DType::int32 : DType::float32); });
  EXPECT_THAT(dtypes.sentence,
              AllOf(HasSubstr("of 10 int32"), HasSubstr("of 10 float32"), HasSubstr("rank 2 started")));

  const Outcome roots = outcome_of(3, [](Mesh& mesh, Comm& comm) {
    comm.broadcast(Buffer(DType::float32, 4).tensor(), mesh.rank() == 0 ? 0 : 1).wait();
  });
  EXPECT_THAT(roots.sentence, AllOf(HasSubstr("from root 0"), HasSubstr("from root 1")));

  const Outcome transfers = outcome_of(2, [](Mesh& mesh, Comm& comm) {
    Buffer x(DType::float32, mesh.rank() == 0 ? 5 : 6);
    (mesh.rank() == 0 ? comm.send(x.tensor(), 1) : comm.receive(x.tensor(), 0)).wait();
  });
  EXPECT_THAT(transfers.sentence, AllOf(HasSubstr("group dp_replicate"), HasSubstr("send of 5 float32 to rank 1"),
                                        HasSubstr("receive of 6 float32 from rank 0")));
}

TEST(ThreadFailure, ALongWaitNamesWhoIsLate) {
  const auto miss_one = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() != 2) all_reduce(comm, 10);
  };
  const Outcome collective = outcome_of(4, miss_one, 0.2);
  EXPECT_THAT(collective.sentence, AllOf(HasSubstr("group dp_replicate (ranks 0, 1, 2, 3)"),
                                         HasSubstr("waited 0.2 s (comm.timeout_seconds)"),
                                         HasSubstr("all_reduce(sum) of 10 float32; rank 2 has not arrived")));
  EXPECT_EQ(collective.status, ExitStatus::failure);

  const auto receive_nothing = [](Mesh& mesh, Comm& comm) {
    if (mesh.rank() == 1) comm.receive(Buffer(DType::float32, 4).tensor(), 0).wait();
  };
  const Outcome transfer = outcome_of(2, receive_nothing, 0.2);
  EXPECT_THAT(transfer.sentence,
              AllOf(HasSubstr("receive of 4 float32 from rank 0"), HasSubstr("rank 0 has not arrived")));
}

TEST(ThreadFailure, WhatIsDroppedWithoutAWaitIsNamed) {
  const Outcome outcome = outcome_of(3, [](Mesh& mesh, Comm& comm) {
    Buffer x(DType::float32, 10);
    Pending reduced = comm.all_reduce(x.tensor(), ReduceOp::sum);
    if (mesh.rank() != 1) reduced.wait();
  });
  EXPECT_THAT(outcome.sentence, HasSubstr("rank 1 dropped, without waiting for it, its all_reduce(sum) of 10 float32"));
  EXPECT_EQ(outcome.status, ExitStatus::failure);
}

}  // namespace
}  // namespace echelon
