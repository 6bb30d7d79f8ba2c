#include "tools/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/exit_code.h"

namespace meshwright {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kMost = 1 << 20;

std::string TempPath(const std::string& name) { return std::string(testing::TempDir()) + "/" + name; }

TEST(FilesTest, WhatIsWrittenIsRead) {
  const std::string path = TempPath("plan.yaml"), text("a\0b\n", 4);
  ASSERT_OK(WriteFile(path, text));
  ASSERT_OK(WriteFile(path, text));  // over the old one
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadFile(path, kMost));
  EXPECT_EQ(read, text);
  for (const auto& entry : fs::directory_iterator(testing::TempDir())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(FilesTest, ALinkIsWrittenThrough) {
  const std::string target = TempPath("target"), link = TempPath("link");
  ASSERT_OK(WriteFile(target, "old"));
  fs::remove(link);
  fs::create_symlink(target, link);
  ASSERT_OK(WriteFile(link, "new"));
  EXPECT_TRUE(fs::is_symlink(link));
  ASSERT_OK_AND_ASSIGN(const std::string read, ReadFile(target, kMost));
  EXPECT_EQ(read, "new");
}

TEST(FilesTest, AFileThatIsNotThereIsAnIoErrorWithTheReason) {
  const absl::Status status = ReadFile(TempPath("nowhere"), kMost).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere: cannot be opened: No such file or directory"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kIo);
  EXPECT_EQ(ExitCodeOf(ReadFile(testing::TempDir(), kMost).status()), ExitCode::kIo);
  const absl::Status written = WriteFile(TempPath("no/such/folder"), "x");
  EXPECT_EQ(ExitCodeOf(written), ExitCode::kIo);
}

TEST(FilesTest, AFileThatIsTooLargeIsBadInput) {
  const std::string path = TempPath("large");
  ASSERT_OK(WriteFile(path, std::string(1001, 'x')));
  const absl::Status status = ReadFile(path, 1000).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("found more than 1000 bytes"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kBadInput);
}

}  // namespace
}  // namespace meshwright
