// Names and folders: what is created, replaced, deleted and followed.
#include "files/file.h"

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "files/failing_calls.h"
#include "files/folder_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace echelon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Files, ANameIsGivenOnce) {
  const ScratchFolder scratch;
  put(scratch / "a", "first");
  put(scratch / "b", "second");
  give_name(scratch / "a", scratch / "c");
  EXPECT_EQ(kind_of(scratch / "a"), NameKind::nothing);
  EXPECT_THROW(give_name(scratch / "b", scratch / "c"), Failure);
  EXPECT_EQ(read_text(scratch / "c"), "first");
  EXPECT_THROW((void)File::create_new(scratch / "b"), Failure);
}

TEST(Files, WithALockKeepOthersAway) {
  const ScratchFolder scratch;
  {
    File first = File::open_or_create(scratch / "lock"), second = File::open_or_create(scratch / "lock");
    EXPECT_EQ(first.lock(), File::Lock::held);
    EXPECT_EQ(second.lock(), File::Lock::taken_by_another);
  }
  File third = File::open_or_create(scratch / "lock");
  EXPECT_EQ(third.lock(), File::Lock::held);
  std::filesystem::create_symlink(scratch / "elsewhere", scratch / "link");
  EXPECT_THROW((void)File::open_or_create(scratch / "link"), Error) << "a planted link is not followed";
  EXPECT_THROW((void)File::create(scratch / "link"), Error);
  EXPECT_EQ(kind_of(scratch / "elsewhere"), NameKind::nothing);
}

// A link planted where a temporary folder is removed takes nothing of what it leads to along.
TEST(Files, OfALinkedFolderAreNotDeleted) {
  const ScratchFolder scratch;
  make_folder(scratch / "own");
  put(scratch / "own/thesis", "years of work");
  std::filesystem::create_directory_symlink(scratch / "own", scratch / "model.tmp");
  delete_folder(scratch / "model.tmp");
  EXPECT_EQ(kind_of(scratch / "model.tmp"), NameKind::nothing);
  EXPECT_EQ(read_text(scratch / "own/thesis"), "years of work");
}

TEST(Files, AreReadWithinTheirFolderAlone) {
  const ScratchFolder scratch;
  make_folder(scratch / "model");
  put(scratch / "outside", "secret");
  put(scratch / "model/inside", "weights");
  std::filesystem::create_symlink("../outside", scratch / "model/out");
  std::filesystem::create_symlink("inside", scratch / "model/in");
  std::filesystem::create_directory_symlink(scratch / "model", scratch / "linked");
  for (const char* folder : {"model", "linked"}) {
    EXPECT_EQ(read_text_in_folder(scratch / folder, "inside"), "weights");
    EXPECT_EQ(read_text_in_folder(scratch / folder, "in"), "weights");
    EXPECT_THROW((void)read_text_in_folder(scratch / folder, "out"), Error);
    EXPECT_THROW((void)path_in_folder(scratch / folder, "out"), Error);
  }
}

TEST(Files, AreWrittenBackOrFail) {
  const ScratchFolder scratch;
  const auto write = [&](Fault fault, int failing) {
    FailingCalls calls(failing, fault);
    File file = File::create(scratch / "file");
    file.write_at(0, "0123456789", 10);
    const SubstitutedCalls substituted(calls);
    file.start_writeback(0, 5);
    file.finish_writeback(0, 10);
  };
  EXPECT_NO_THROW(write(Fault::io_error, -1));
  EXPECT_EQ(read_text(scratch / "file"), "0123456789");
  for (const int failing : {0, 1}) {
    EXPECT_THROW(write(Fault::io_error, failing), Failure);
    EXPECT_THROW(write(Fault::no_space, failing), Failure);
    EXPECT_NO_THROW(write(Fault::interrupted, failing));
  }
}

TEST(Files, FoldersAreMadeWithParentsAndDeletedWithoutFollowingLinks) {
  const ScratchFolder scratch;
  make_folder(scratch / "a/b/c");
  make_folder(scratch / "a/b/c");
  make_folder(scratch / "kept");
  put(scratch / "kept/file", "of somebody else");
  std::filesystem::create_directory_symlink(scratch / "kept", scratch / "a/b/link");
  put(scratch / "a/file", "text");
  EXPECT_THAT(list_folder(scratch / "a"), ElementsAre("b", "file"));
  EXPECT_THAT(list_folder(scratch / "nowhere"), IsEmpty());
  EXPECT_TRUE(is_folder(scratch / "a/b/link"));
  EXPECT_EQ(kind_of(scratch / "a/b/link"), NameKind::other);
  EXPECT_THROW(remove_empty_folder(scratch / "a"), Failure);
  delete_folder(scratch / "a");
  EXPECT_EQ(kind_of(scratch / "a"), NameKind::nothing);
  EXPECT_EQ(read_text(scratch / "kept/file"), "of somebody else");
  EXPECT_THROW(make_folder(scratch / "kept/file/below"), Failure);
}

TEST(Files, ErrorsNameThePathAndTheReason) {
  const ScratchFolder scratch;
  FailingCalls calls(2, Fault::no_space);  // after opening and the status, the first write
  const SubstitutedCalls substituted(calls);
  const std::string error = error_of([&] {
    File file = File::create(scratch / "file");
    for (int i = 0; i < 3; ++i) file.write_at(i, "x", 1);
  });
  EXPECT_THAT(error, HasSubstr((scratch / "file").string() + ": No space left on device"));
}

}  // namespace
}  // namespace echelon::testing
