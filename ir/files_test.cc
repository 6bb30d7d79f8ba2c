#include "ir/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/temporary_file.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// What this process asked of the disk, while a test listens.
std::vector<std::string>* g_calls = nullptr;

}  // namespace
}  // namespace meshwright

// In place of the C library's.
extern "C" int fsync(int file) {
  struct stat info = {};
  if (meshwright::g_calls != nullptr && ::fstat(file, &info) == 0) {
    meshwright::g_calls->push_back(S_ISDIR(info.st_mode) ? "sync the folder"
                                                         : absl::StrCat("sync ", info.st_size, " bytes"));
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (meshwright::g_calls != nullptr) meshwright::g_calls->push_back("rename");
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace meshwright {
namespace {

using ::testing::ElementsAre;

std::string NewFolder(absl::string_view name) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/files_", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

// A machine that loses its power has the old file or the new one: the new one's bytes are on the disk before it has the
// name, and the name is before anybody relies on it (removes an older checkpoint).
TEST(FilesTest, TheFileIsOnTheDiskBeforeItHasTheNameAndThenTheName) {
  const std::string folder = NewFolder("order");
  std::vector<std::string> calls;
  g_calls = &calls;
  const absl::Status written = WriteWholeFile(folder + "/a", "four");
  g_calls = nullptr;
  EXPECT_OK(written);
  EXPECT_THAT(calls, ElementsAre("sync 4 bytes", "rename", "sync the folder"));
  EXPECT_THAT(Names(folder), ElementsAre("a"));
}

TEST(FilesTest, WhatCannotBeWrittenLeavesNoTemporary) {
  const std::string folder = NewFolder("failed");
  std::filesystem::create_directories(folder + "/a/inside");
  EXPECT_TRUE(IsFileError(WriteWholeFile(folder + "/a", "four")));
  EXPECT_TRUE(IsFileError(WriteWholeFile(folder + "/none/a", "four")));
  EXPECT_THAT(Names(folder), ElementsAre("a"));
}

TEST(TemporaryFileTest, NamesSayWhoseTheyAre) {
  EXPECT_EQ(TargetOfTemporary("a.ckpt.4711.tmp"), "a.ckpt");
  EXPECT_EQ(TargetOfTemporary("1.2.tmp"), "1");
  for (const char* other : {"a.ckpt", "a.tmp", "a..tmp", "a4711.tmp", "a.4711.tmp.gz", ".4711.tmp", "4711.tmp", ""}) {
    EXPECT_EQ(TargetOfTemporary(other), "") << other;
  }
}

// A writer that is killed while it writes; its file is removed, that of a writer that lives is not.
TEST(TemporaryFileTest, OnlyWhatNobodyWritesIsRemoved) {
  const std::string folder = NewFolder("abandoned"), path = folder + "/a";
  const std::string large(size_t{64} << 20, 'x');
  EXPECT_OK(WriteWholeFile(path, "old"));
  int left_behind = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t writer = ::fork();
    if (writer == 0) {
      while (WriteWholeFile(path, large).ok()) {
      }
      ::_exit(1);
    }
    const std::string temporary = absl::StrCat(path, ".", writer, ".tmp");
    struct stat info = {};
    while (::stat(temporary.c_str(), &info) != 0 || info.st_size == 0) ::usleep(100);
    ::kill(writer, SIGSTOP);
    int status = 0;
    ::waitpid(writer, &status, WUNTRACED);
    // Between two files there is none.
    const bool writes = ::access(temporary.c_str(), F_OK) == 0;
    EXPECT_FALSE(RemoveAbandoned(temporary)) << "its writer lives";
    EXPECT_EQ(::access(temporary.c_str(), F_OK) == 0, writes);
    ::kill(writer, SIGKILL);
    ::waitpid(writer, &status, 0);
    left_behind += writes ? 1 : 0;
    EXPECT_EQ(RemoveAbandoned(temporary), writes);
    EXPECT_THAT(Names(folder), ElementsAre("a"));
    ASSERT_OK_AND_ASSIGN(const std::string found, ReadWholeFile(path, large.size()));
    EXPECT_TRUE(found == "old" || found == large) << found.size() << " bytes";
  }
  EXPECT_GT(left_behind, 0);
}

// Who has opened an abandoned file and then finds that a writer has taken its name leaves that one alone; a writer that
// finds its file removed under its hands makes another.
TEST(TemporaryFileTest, WritersAndRemoversOfOneNameDoNotMeet) {
  const std::string folder = NewFolder("race"), path = folder + "/a";
  const pid_t writer = ::fork();
  if (writer == 0) {
    for (int i = 0; i < 300; ++i) {
      if (!WriteWholeFile(path, "whole").ok()) ::_exit(1);
    }
    ::_exit(0);
  }
  const std::string temporary = absl::StrCat(path, ".", writer, ".tmp");
  int status = 0;
  while (::waitpid(writer, &status, WNOHANG) == 0) RemoveAbandoned(temporary);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Names(folder), ElementsAre("a"));
  ASSERT_OK_AND_ASSIGN(const std::string found, ReadWholeFile(path, 100));
  EXPECT_EQ(found, "whole");
}

// A name that is no file of ours.
TEST(TemporaryFileTest, LinksAndFoldersStay) {
  const std::string folder = NewFolder("kinds");
  std::filesystem::create_directories(folder + "/a.1.tmp");
  EXPECT_FALSE(RemoveAbandoned(folder + "/a.1.tmp"));
  EXPECT_OK(WriteWholeFile(folder + "/target", "mine"));
  std::filesystem::create_symlink(folder + "/target", folder + "/a.2.tmp");
  EXPECT_FALSE(RemoveAbandoned(folder + "/a.2.tmp"));
  EXPECT_FALSE(RemoveAbandoned(folder + "/none"));
  EXPECT_EQ(Names(folder).size(), 3u);
}

}  // namespace
}  // namespace meshwright
