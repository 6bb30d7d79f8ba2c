#include "tests/cli/run_tool.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

// In the child: never returns.
[[noreturn]] void Exec(const std::vector<std::string>& words, const ToolOptions& options, const std::string& out,
                       const std::string& err) {
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  for (const auto& [name, value] : options.variables) ::setenv(name.c_str(), value.c_str(), 1);
  const int in_file = ::open("/dev/null", O_RDONLY);
  const int out_file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err_file = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(in_file, STDIN_FILENO);
  ::dup2(out_file, STDOUT_FILENO);
  ::dup2(err_file, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

std::string DataPath(const std::string& path) { return std::filesystem::absolute(path); }

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

ToolResult RunTool(const std::string& tool, const std::vector<std::string>& args, const ToolOptions& options) {
  std::vector<std::string> words = options.launcher;
  words.push_back(DataPath(absl::StrCat("tools/", tool)));
  words.insert(words.end(), args.begin(), args.end());
  const std::string out = absl::StrCat(std::string(testing::TempDir()), "/stdout");
  const std::string err = absl::StrCat(std::string(testing::TempDir()), "/stderr");
  ToolResult result;
  const pid_t child = ::fork();
  if (child == 0) Exec(words, options, out, err);
  int status = 0;
  rusage used = {};
  if (child < 0 || ::wait4(child, &status, 0, &used) != child) return result;
  for (const timeval& part : {used.ru_utime, used.ru_stime}) {
    result.seconds += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadText(out);
  result.err = ReadText(err);
  return result;
}

}  // namespace meshwright
