// Runs the programs of tools/ as a user does, for tests.
#ifndef MESHWRIGHT_TESTS_CLI_RUN_TOOL_H_
#define MESHWRIGHT_TESTS_CLI_RUN_TOOL_H_

#include <string>
#include <utility>
#include <vector>

namespace meshwright {

struct ToolResult {
  int exit_code = -1;  // 128 + the signal where one ended it
  std::string out, err;
  double seconds = 0;  // of processors, the program's own: a busy machine does not change them
};

struct ToolOptions {
  std::string folder = {};                                          // where the user stands; "": the test's own folder
  std::vector<std::pair<std::string, std::string>> variables = {};  // set on top of the environment
  std::vector<std::string> launcher = {};                           // in front of the program: {"mpirun", "-np", "8"}
};

// `tool` is "plan", "simulate", ...; it must be in the test's data.
ToolResult RunTool(const std::string& tool, const std::vector<std::string>& args, const ToolOptions& options = {});

// The path of a file in the test's data, absolute.
std::string DataPath(const std::string& path);
std::string ReadText(const std::string& path);

}  // namespace meshwright

#endif  // MESHWRIGHT_TESTS_CLI_RUN_TOOL_H_
