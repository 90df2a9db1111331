#include "report/metrics_file.h"

#include "base/error.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

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
  first.append("{}");
  EXPECT_EQ(content(path), "{}\n");
  MetricsFile second(path);
  second.append("{\"step\":2}");
  EXPECT_EQ(content(path), "{}\n{\"step\":2}\n");
}

TEST(MetricsFile, SaysThatTheDiskIsFull) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  MetricsFile file("/dev/full");
  try {
    file.append("{}");
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), ExitStatus::failure);
    EXPECT_NE(std::string(failure.what()).find("/dev/full"), std::string::npos);
  }
}

TEST(MetricsFile, SaysThatTheFolderCannotBeMade) {
  EXPECT_THROW(MetricsFile("/dev/null/folder/metrics.jsonl"), Failure);
}

}  // namespace
}  // namespace echelon
