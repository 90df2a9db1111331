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
  EXPECT_TRUE(first.append("{}"));
  EXPECT_EQ(content(path), "{}\n");
  MetricsFile second(path);
  EXPECT_TRUE(second.append("{\"step\":2}"));
  EXPECT_EQ(content(path), "{}\n{\"step\":2}\n");
}

TEST(MetricsFile, SaysThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  MetricsFile file("/dev/full");
  EXPECT_FALSE(file.append("{}"));
  EXPECT_TRUE(file.append("{}"));  // was said already
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
  const bool first = file.append("{\"step\":1}");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(first);
  EXPECT_TRUE(file.append("{\"step\":2}"));
  EXPECT_EQ(content(path), "{\"step\":\n{\"step\":2}\n");
}

TEST(MetricsFile, EndsALineThatAKilledRunTore) {
  const std::string path = std::string(scratch_folder()) + "/metrics_file_test_killed.jsonl";
  std::ofstream(path) << "{\"step\":1}\n{\"step\":";
  MetricsFile file(path);
  EXPECT_TRUE(file.append("{\"step\":2}"));
  EXPECT_EQ(content(path), "{\"step\":1}\n{\"step\":\n{\"step\":2}\n");
}

TEST(MetricsFile, SaysThatTheFolderCannotBeMade) {
  EXPECT_THROW(MetricsFile("/dev/null/folder/metrics.jsonl"), Failure);
}

}  // namespace
}  // namespace echelon
