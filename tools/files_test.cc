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

// A command's inputs are not lost to its outputs, nor these to each other, whatever the paths are called.
TEST(FilesTest, OutputsAreNoInputsAndNotOneAnother) {
  const std::string model = TempPath("model.yaml"), link = TempPath("same.yaml"), out = TempPath("out.yaml");
  ASSERT_OK(WriteFile(model, "x"));
  fs::remove(link);
  fs::remove(out);
  fs::create_symlink(model, link);
  EXPECT_OK(CheckOutputs({out, ""}, {model, ""}));
  EXPECT_OK(CheckOutputs({"-"}, {"-"}));  // standard output and input
  EXPECT_OK(CheckOutputs({"/dev/null", "/dev/null"}, {"/dev/null"}));
  for (const std::string& same : {model, link, TempPath("./model.yaml")}) {
    const absl::Status status = CheckOutputs({out, same}, {model});
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kIo) << same;
    EXPECT_EQ(status.message(), same + ": cannot be written: found a file that this command reads; name another");
  }
  for (const std::string& twice : {out, std::string("-")}) {
    EXPECT_EQ(CheckOutputs({twice, twice}, {model}).message(),
              twice + ": cannot be written: found two outputs that go there; name another for one of them");
  }
}

// Before the work: what WriteFile would say after it, and more.
TEST(FilesTest, WhatCannotBeWrittenIsSaidBeforehand) {
  const auto message = [](const std::string& path) {
    const absl::Status status = CheckWritable(path);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kIo) << status;
    EXPECT_FALSE(WriteFile(path, "x").ok());
    return std::string(status.message());
  };
  const std::string file = TempPath("plain"), folder = TempPath("folder");
  ASSERT_OK(WriteFile(file, "old"));
  fs::create_directories(folder);
  EXPECT_EQ(
      message(folder),
      folder + ": cannot be written: found a folder, wanted a file; name a file in it, such as " + folder + "/out");
  EXPECT_THAT(message(folder + "/"), HasSubstr("such as " + folder + "/out"));
  EXPECT_EQ(message(folder + "/none/x.yaml"), folder + "/none/x.yaml: cannot be written: found no folder " + folder +
                                                  "/none; mkdir -p " + folder + "/none makes it");
  EXPECT_THAT(message(file + "/x.yaml"), HasSubstr("found " + file + ", which is a file, wanted a folder"));
  // Nobody makes files there, whatever they may do.
  EXPECT_THAT(message("/proc/x.yaml"), HasSubstr("found that no file can be made in /proc ("));
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(folder.c_str(), 0500), 0);
    EXPECT_THAT(message(folder + "/x.yaml"), HasSubstr("(Permission denied); name a file in a folder"));
    ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  }
}

TEST(FilesTest, WhatCanBeWrittenIsLeftAsItIs) {
  const std::string file = TempPath("kept"), folder = TempPath("empty"), link = TempPath("dangling");
  ASSERT_OK(WriteFile(file, "old"));
  fs::create_directories(folder);
  fs::remove(link);
  fs::create_symlink(folder + "/target", link);
  for (const std::string& path : {file, folder + "/new", link, std::string("-"), std::string("/dev/null"),
                                  std::string("in_this_folder"), std::string()}) {
    EXPECT_OK(CheckWritable(path)) << path;
  }
  EXPECT_TRUE(fs::is_empty(folder));
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile(file, kMost));
  EXPECT_EQ(text, "old");
  EXPECT_OK(CheckWritableInNewFolder(folder + "/a/b/c.yaml"));
  EXPECT_TRUE(fs::is_directory(folder + "/a/b"));
  fs::remove_all(folder);
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
