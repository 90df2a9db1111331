#include "measure/measure_disk.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/median.h"
#include "files/file.h"
#include "files/system_calls.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

namespace echelon {
namespace {

constexpr std::int64_t block = std::int64_t{4} << 20;  // bytes
constexpr int num_small_files = 9;

/// Values that no file system makes smaller.
std::vector<std::uint64_t> random_block() {
  std::vector<std::uint64_t> values(block / sizeof(std::uint64_t));
  std::mt19937_64 random(1);  // NOLINT(cert-msc51-cpp): which values they are does not matter
  for (std::uint64_t& value : values) value = random();
  return values;
}

class DiskTest {
 public:
  DiskTest(const std::filesystem::path& folder, std::int64_t num_bytes)
      : path_(folder / fmt::format("echelon-bench-{}.tmp", getpid())),
        num_blocks_(std::max<std::int64_t>(1, num_bytes / block)),
        values_(random_block()) {}
  ~DiskTest() { system_calls().unlink(path_.c_str()); }
  DiskTest(const DiskTest&) = delete;
  DiskTest& operator=(const DiskTest&) = delete;

  void measure_large_file() {
    constexpr std::int64_t most_cached_blocks = 8;
    remove_file(path_);
    File file = File::create_new(path_);
    const double begin = now_seconds(), core_begin = thread_seconds();
    for (std::int64_t i = 0; i < num_blocks_; ++i) {
      values_.front() = static_cast<std::uint64_t>(i);
      file.write_at(i * block, values_.data(), block);
      file.start_writeback(i * block, block);
      if (i >= most_cached_blocks) file.finish_writeback((i - most_cached_blocks) * block, block);
    }
    file.sync();
    const auto num_bytes = static_cast<double>(num_blocks_ * block);
    write_.push_back(num_bytes / (now_seconds() - begin));
    write_core_.push_back(num_bytes / std::max(1e-9, thread_seconds() - core_begin));
    file.finish_writeback(0, num_blocks_ * block);
    read_.push_back(num_bytes / seconds_of_reading());
  }

  void measure_small_file() {
    remove_file(path_);
    const double begin = now_seconds();
    File file = File::create_new(path_);
    file.write_at(0, values_.data(), 4096);
    file.sync();
    file.close();
    sync_folder(path_.parent_path());
    small_.push_back(now_seconds() - begin);
  }

  [[nodiscard]] DiskSpec result() const {
    return {.write_bandwidth = median(write_),
            .read_bandwidth = median(read_),
            .write_core_bandwidth = median(write_core_),
            .sync_seconds = median(small_)};
  }

 private:
  double seconds_of_reading() {
    const File file = File::open_to_read(path_);
    const double begin = now_seconds();
    for (std::int64_t i = 0; i < num_blocks_; ++i) {
      file.read_at(i * block, values_.data(), block);
      if (values_.front() != static_cast<std::uint64_t>(i))
        throw Failure(fmt::format("{} has other values than were written", path_.string()));
    }
    return now_seconds() - begin;
  }

  std::filesystem::path path_;
  std::int64_t num_blocks_;
  std::vector<std::uint64_t> values_;
  std::vector<double> write_, write_core_, read_, small_;
};

}  // namespace

DiskSpec measure_disk(const std::filesystem::path& folder, const DiskMeasurement& options) {
  require(is_folder(folder), "--disk={} is not a folder (use .)", folder.string());
  const std::optional<std::int64_t> free = free_bytes(folder);
  require(!free || *free > options.num_bytes, "the disk of --disk={} has {} MB free, but --disk-mb={} are written",
          folder.string(), free.value_or(0) / 1'000'000, options.num_bytes >> 20);
  DiskTest test(folder, options.num_bytes);
  const auto tell = [&](int done) {
    if (options.progress) options.progress("disk", static_cast<double>(done) / options.num_rounds);
  };
  for (int i = 0; i < options.num_rounds; ++i) {
    tell(i);
    test.measure_large_file();
  }
  for (int i = 0; i < num_small_files; ++i) test.measure_small_file();
  tell(options.num_rounds);
  return test.result();
}

// A line of /proc/self/mountinfo: two ids, major:minor, places and options, "-", file system, source, options.
std::string file_system_of(const std::filesystem::path& folder) {
  struct stat status {};
  if (system_calls().stat(folder.c_str(), &status) != 0) return "";
  const std::string device = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string number, parent, own, kind, source;
    words >> number >> parent >> own;
    const std::size_t end = line.find(" - ");
    if (own != device || end == std::string::npos) continue;
    std::istringstream rest(line.substr(end + 3));
    rest >> kind >> source;
    return source.starts_with('/') ? fmt::format("{} on {}", kind, source) : kind;
  }
  return "";
}

}  // namespace echelon
