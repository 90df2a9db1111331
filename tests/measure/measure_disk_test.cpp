// What `echelon bench --disk` asks of a disk: that files are durable, and not in memory when they are read.
#include "measure/measure_disk.h"

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "files/failing_calls.h"
#include "files/system_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon {
namespace {

constexpr std::int64_t num_bytes = std::int64_t{64} << 20;

/// What happens to the bytes of a file, and how many are written and read.
struct Recorded final : SystemCalls {
  std::string events;  // w: written, s: synced, f: the whole file forgotten, r: read; each once in a row
  std::int64_t num_written = 0, num_read = 0;

  void note(char event) {
    if (events.empty() || events.back() != event) events += event;
  }
  ssize_t pwrite(int file, const void* data, std::size_t count, off_t offset) override {
    note('w');
    num_written += static_cast<std::int64_t>(count);
    return SystemCalls::pwrite(file, data, count, offset);
  }
  ssize_t pread(int file, void* out, std::size_t count, off_t offset) override {
    note('r');
    num_read += static_cast<std::int64_t>(count);
    return SystemCalls::pread(file, out, count, offset);
  }
  int fsync(int file) override {
    note('s');
    return SystemCalls::fsync(file);
  }
  int write_back(int file, off_t offset, off_t size, bool waits) override {
    if (waits && offset == 0 && size == num_bytes) note('f');
    return SystemCalls::write_back(file, offset, size, waits);
  }
};

TEST(MeasureDisk, SyncsForgetsAndReadsWhatItWrote) {
  const ScratchFolder scratch;
  Recorded calls;
  DiskSpec disk;
  {
    const SubstitutedCalls substituted(calls);
    disk = measure_disk(scratch.path(), {.num_bytes = num_bytes, .num_rounds = 2});
  }
  EXPECT_EQ(calls.events.substr(0, 8), "wsfrwsfr");
  EXPECT_GE(calls.num_written, 2 * num_bytes);
  EXPECT_EQ(calls.num_read, 2 * num_bytes);
  for (const double rate : {disk.write_bandwidth, disk.read_bandwidth, disk.write_core_bandwidth})
    EXPECT_THAT(rate, ::testing::AllOf(::testing::Gt(1e6), ::testing::Lt(1e12)));
  EXPECT_GT(disk.sync_seconds, 0);
  EXPECT_GE(disk.write_core_bandwidth, disk.write_bandwidth) << "a thread's own time is no longer than all time";
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(MeasureDisk, ADiskThatFailsHasNoRates) {
  const ScratchFolder scratch;
  const auto measure = [&] { (void)measure_disk(scratch.path(), {.num_bytes = 8 << 20, .num_rounds = 1}); };
  for (const std::int64_t number : {3, 5, 8}) {
    testing::FailingCalls calls(number, testing::Fault::io_error);
    const SubstitutedCalls substituted(calls);
    EXPECT_THROW(measure(), Failure) << number;
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  EXPECT_THROW((void)measure_disk(scratch / "nothing"), Error);
}

TEST(MeasureDisk, NamesTheFileSystem) {
  EXPECT_EQ(file_system_of("/proc"), "proc");
  EXPECT_EQ(file_system_of("/there/is/no/such/folder"), "");
}

}  // namespace
}  // namespace echelon
