#include "report/metrics_file.h"

#include "base/error.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace echelon {
namespace {

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MetricsFile, AppendsAndIsReadableAtOnce) {
  const std::string folder = std::filesystem::path(scratch_folder()) / "metrics_file_test";
  const std::string path = folder + "/a/metrics.jsonl";
  std::filesystem::remove_all(folder);
  MetricsFile first(path);
  EXPECT_EQ(first.append("{}"), "");
  EXPECT_EQ(content(path), "{}\n");
  MetricsFile second(path);
  EXPECT_EQ(second.append("{\"step\":2}"), "");
  EXPECT_EQ(content(path), "{}\n{\"step\":2}\n");
}

TEST(MetricsFile, SaysThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  MetricsFile file("/dev/full");
  EXPECT_EQ(file.append("{}"), "'/dev/full' could not be written, and lines of it are missing; is the disk full?");
  EXPECT_EQ(file.append("{}"), "");  // was said already
}

// A limit on the size of files stands for a full disk.
TEST(MetricsFile, LosesOneLineAloneToAFullDisk) {
  const std::string path = std::string(scratch_folder()) + "/metrics_file_test_torn.jsonl";
  std::filesystem::remove(path);
  MetricsFile file(path);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 8;
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string first = file.append("{\"step\":1}");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(first, "");
  EXPECT_EQ(file.append("{\"step\":2}"), "");
  EXPECT_EQ(content(path), "{\"step\":\n{\"step\":2}\n");
}

TEST(MetricsFile, EndsALineThatAKilledRunTore) {
  const std::string path = std::string(scratch_folder()) + "/metrics_file_test_killed.jsonl";
  std::ofstream(path) << "{\"step\":1}\n{\"step\":";
  MetricsFile file(path);
  EXPECT_EQ(file.append("{\"step\":2}"), "");
  EXPECT_EQ(content(path), "{\"step\":1}\n{\"step\":\n{\"step\":2}\n");
}

TEST(MetricsFile, IsMadeAgainWhereItWasRemoved) {
  const std::filesystem::path folder = std::filesystem::path(scratch_folder()) / "metrics_file_test_removed";
  std::filesystem::remove_all(folder);
  const std::string path = folder / "metrics.jsonl";
  MetricsFile file(path);
  EXPECT_EQ(file.append("{\"step\":1}"), "");
  std::filesystem::rename(path, path + ".1");
  EXPECT_EQ(file.append("{\"step\":2}"),
            "'" + path + "' was removed or renamed; the lines from here on are in a new file of that name");
  EXPECT_EQ(content(path + ".1"), "{\"step\":1}\n");
  EXPECT_EQ(content(path), "{\"step\":2}\n");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(file.append("{\"step\":3}"), "");  // was said already
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file.append("{\"step\":4}"), "");
  EXPECT_EQ(content(path), "{\"step\":4}\n");
}

TEST(MetricsFile, SaysThatTheFolderCannotBeMade) {
  EXPECT_THROW(MetricsFile("/dev/null/folder/metrics.jsonl"), Failure);
}

}  // namespace
}  // namespace echelon
