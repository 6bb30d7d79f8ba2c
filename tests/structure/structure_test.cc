// What no compiler checks about the sources: which folder includes which, that files stay short, that header guards are
// named after their file, that no two files define a type of the same name. The arrows are those of DESIGN.md; the
// visibility groups in the root's BUILD.bazel say the same to Bazel, which does not see an include of a header that
// comes with another dependency.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace meshwright {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Folder -> the folders it may include besides itself.
const std::map<std::string, std::set<std::string>>& Arrows() {
  static const auto* const kArrows = new std::map<std::string, std::set<std::string>>{
      {"ir", {}},
      {"models", {"ir"}},
      {"costmodel", {"ir"}},
      {"executor", {"ir"}},
      {"simulator", {"ir", "costmodel"}},
      {"planner", {"ir", "costmodel", "simulator"}},
      {"tools", {"ir", "models", "costmodel", "executor", "simulator", "planner"}},
      {"tests", {"ir", "models", "costmodel", "executor", "simulator", "planner", "tools"}},
  };
  return *kArrows;
}

// Headers that only some places may name: a header that starts with `prefix` is for paths that start with one of
// `places`.
struct Confined {
  absl::string_view prefix;
  std::vector<absl::string_view> places;
};
const std::vector<Confined>& ConfinedHeaders() {
  static const auto* const kHeaders = new std::vector<Confined>{
      {"cuda", {"executor/cuda/", "tests/gpu/"}},
      {"cublas", {"executor/cuda/", "tests/gpu/"}},
      {"nccl", {"executor/cuda/", "tests/gpu/"}},
      {"mpi.h", {"executor/"}},
      {"cblas.h", {"executor/"}},
      {"pugixml", {"tools/import/"}},
      {"toml++/", {"tools/import/"}},
      {"yaml-cpp/", {"ir/", "models/", "costmodel/", "planner/", "tools/", "tests/"}},
  };
  return *kHeaders;
}

constexpr int kMaxLines = 600;
// A longer file says so within its first lines, and why.
constexpr absl::string_view kLongReason = "Longer than 600 lines because";
constexpr int kReasonWithin = 40;

// The header that a line includes, as written between quotes or angle brackets; empty if it includes none.
std::string IncludedHeader(absl::string_view line) {
  absl::string_view rest = absl::StripAsciiWhitespace(line);
  if (!absl::StartsWith(rest, "#")) return "";
  rest.remove_prefix(1);
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (!absl::StartsWith(rest, "include")) return "";
  rest.remove_prefix(absl::string_view("include").size());
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (rest.size() < 2 || (rest[0] != '"' && rest[0] != '<')) return "";
  const size_t end = rest.find(rest[0] == '"' ? '"' : '>', 1);
  return end == absl::string_view::npos ? "" : std::string(rest.substr(1, end - 1));
}

std::string TopFolder(absl::string_view path) { return std::string(path.substr(0, path.find('/'))); }

// What is wrong with `path` including `header`; nothing if it may.
std::optional<std::string> WrongInclude(const std::string& path, const std::string& header) {
  const std::string from = TopFolder(path);
  const std::string to = TopFolder(header);
  if (header.find('/') != std::string::npos && Arrows().contains(to) && from != to && !Arrows().at(from).contains(to)) {
    std::vector<std::string> allowed(Arrows().at(from).begin(), Arrows().at(from).end());
    allowed.push_back("itself");
    return absl::StrCat(path, " includes ", header, ", but ", from, " may include only ", absl::StrJoin(allowed, ", "));
  }
  for (const Confined& confined : ConfinedHeaders()) {
    if (!absl::StartsWith(header, confined.prefix)) continue;
    const bool allowed = std::any_of(confined.places.begin(), confined.places.end(),
                                     [&](absl::string_view place) { return absl::StartsWith(path, place); });
    if (!allowed) {
      return absl::StrCat(path, " includes ", header, ", which is for ", absl::StrJoin(confined.places, ", "), " only");
    }
  }
  return std::nullopt;
}

// "ir/status.h" -> "MESHWRIGHT_IR_STATUS_H_".
std::string HeaderGuard(absl::string_view path) {
  const std::string name = absl::StrReplaceAll(path, {{"/", "_"}, {".", "_"}, {"-", "_"}});
  return absl::StrCat("MESHWRIGHT_", absl::AsciiStrToUpper(name), "_");
}

// Everything that is wrong with the source `text` at `path`.
std::vector<std::string> Faults(const std::string& path, const std::string& text) {
  std::vector<std::string> faults;
  const std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  for (const std::string& line : lines) {
    const std::string header = IncludedHeader(line);
    if (header.empty()) continue;
    if (auto fault = WrongInclude(path, header)) faults.push_back(*std::move(fault));
  }
  if (lines.size() > kMaxLines) {
    const auto head_end = lines.begin() + kReasonWithin;
    if (std::none_of(lines.begin(), head_end, [](const auto& line) { return absl::StrContains(line, kLongReason); })) {
      faults.push_back(absl::StrCat(path, " has ", lines.size(), " lines; split it, or write near its top \"",
                                    kLongReason, " ...\""));
    }
  }
  if (absl::EndsWith(path, ".h") && !absl::StrContains(text, absl::StrCat("\n#define ", HeaderGuard(path), "\n"))) {
    faults.push_back(absl::StrCat(path, " lacks the header guard ", HeaderGuard(path)));
  }
  return faults;
}

// The types that a source defines where other files could, as "meshwright::Graph": not inside of another type, nor in a
// namespace without a name.
std::vector<std::string> TypesOf(const std::string& text) {
  static const auto* const kType = new std::regex(
      R"(^(?:class|struct|union|enum class|enum) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: :[^;{]*| :[^;{]*\{.*| \{.*)$)");
  std::vector<std::string> namespaces, types;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    std::cmatch found;
    if (words[0] == "namespace" && words.back() == "{") {
      namespaces.push_back(words.size() == 3 ? std::string(words[1]) : "");
    } else if (absl::StartsWith(line, "}  // namespace") && !namespaces.empty()) {
      namespaces.pop_back();
    } else if (std::regex_match(line.begin(), line.end(), found, *kType)) {
      const bool hidden = std::find(namespaces.begin(), namespaces.end(), "") != namespaces.end();
      if (!hidden) types.push_back(absl::StrCat(absl::StrJoin(namespaces, "::"), "::", found[1].str()));
    }
  }
  return types;
}

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The folder that holds the sources: where the link to WORKSPACE among this test's files leads.
fs::path SourceRoot() { return fs::canonical("WORKSPACE").parent_path(); }

// The paths of all C++ and CUDA sources, relative to the root, in order.
std::vector<std::string> Sources() {
  std::vector<std::string> sources;
  for (const auto& [folder, unused] : Arrows()) {
    if (!fs::exists(SourceRoot() / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(SourceRoot() / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh") {
        sources.push_back(fs::relative(entry.path(), SourceRoot()));
      }
    }
  }
  std::sort(sources.begin(), sources.end());
  return sources;
}

TEST(StructureTest, TheSourcesHaveNoFaults) {
  const std::vector<std::string> sources = Sources();
  ASSERT_THAT(sources, testing::Contains("ir/status.h")) << "the sources were not found in " << SourceRoot();
  for (const std::string& path : sources) {
    for (const std::string& fault : Faults(path, Read(SourceRoot() / path))) ADD_FAILURE() << fault;
  }
}

// Two types of one name in one program are one type to the linker, which takes the functions of either.
TEST(StructureTest, NoTwoFilesDefineATypeOfTheSameName) {
  std::map<std::string, std::string> defined_in;
  for (const std::string& path : Sources()) {
    for (const std::string& type : TypesOf(Read(SourceRoot() / path))) {
      const auto [other, is_new] = defined_in.try_emplace(type, path);
      EXPECT_TRUE(is_new) << path << " defines " << type << ", as " << other->second << " does; rename one";
    }
  }
  EXPECT_EQ(defined_in["meshwright::Graph"], "ir/graph.h");
}

// A group reads: package_group(name = "may_use_ir", packages = ["//costmodel/...", ...]), one package a line.
TEST(StructureTest, TheVisibilityGroupsAreTheArrows) {
  const std::string build = Read(SourceRoot() / "BUILD.bazel");
  for (const auto& [to, unused] : Arrows()) {
    if (to == "tools" || to == "tests") continue;  // nobody may use these
    std::vector<std::string> wanted;
    for (const auto& [from, allowed] : Arrows()) {
      if (from == to || allowed.contains(to)) wanted.push_back(absl::StrCat("        \"//", from, "/...\",\n"));
    }
    EXPECT_THAT(build, HasSubstr(absl::StrCat("    name = \"may_use_", to, "\",\n    packages = [\n",
                                              absl::StrJoin(wanted, ""), "    ],\n")));
  }
}

TEST(IncludedHeaderTest, ReadsBothForms) {
  EXPECT_EQ(IncludedHeader("#include \"ir/graph.h\""), "ir/graph.h");
  EXPECT_EQ(IncludedHeader("  #  include <mpi.h>  // why"), "mpi.h");
  EXPECT_EQ(IncludedHeader("// #include \"ir/graph.h\""), "");
  EXPECT_EQ(IncludedHeader("#include MACRO"), "");
  EXPECT_EQ(IncludedHeader("#include"), "");
}

TEST(TypesOfTest, ThoseThatAreSeenElsewhere) {
  EXPECT_THAT(TypesOf("namespace a {\nstruct B {\n  struct C {\n};\nclass D;\nenum class E : int { kOne };\n"
                      "namespace {\nstruct F {\n}  // namespace\nclass G final : public B {\nstruct H {};\n"
                      "struct alignas(64) I {\nclass J::K {\nclass all\n}  // namespace a\n"),
              ElementsAre("a::B", "a::E", "a::G", "a::H", "a::I"));
}

TEST(FaultsTest, AnIncludeAgainstTheArrows) {
  EXPECT_THAT(Faults("executor/run.cc", "#include \"planner/plan.h\"\n"),
              ElementsAre("executor/run.cc includes planner/plan.h, but executor may include only ir, itself"));
  EXPECT_THAT(Faults("planner/a.cc", "#include \"models/b.h\"\n").size(), 1);
  EXPECT_THAT(Faults("planner/a.cc", "#include \"tools/b.h\"\n").size(), 1);
  EXPECT_THAT(Faults("planner/a.cc", "#include <vector>\n#include \"simulator/b.h\"\n#include \"planner/c.h\"\n"),
              IsEmpty());
}

TEST(FaultsTest, ALibraryInTheWrongPlace) {
  EXPECT_THAT(Faults("planner/a.cc", "#include <cuda_runtime.h>\n").size(), 1);
  EXPECT_THAT(Faults("executor/host/a.cc", "#include <nccl.h>\n").size(), 1);
  EXPECT_THAT(Faults("executor/cuda/a.cc", "#include <nccl.h>\n"), IsEmpty());
}

TEST(FaultsTest, AFileThatIsTooLong) {
  const auto file = [](int lines, const std::string& first) {
    std::string text = first + "\n";
    for (int line = 1; line < lines; ++line) text += "\n";
    return text;
  };
  EXPECT_THAT(Faults("ir/a.cc", file(600, "//")), IsEmpty());
  EXPECT_THAT(Faults("ir/a.cc", file(601, "//")), ElementsAre(HasSubstr("has 601 lines")));
  EXPECT_THAT(Faults("ir/a.cc", file(601, "// Longer than 600 lines because it is one table.")), IsEmpty());
}

TEST(FaultsTest, AHeaderWithAnotherGuard) {
  EXPECT_THAT(Faults("ir/a_b.h", "#ifndef X\n#define X\n#endif\n"),
              ElementsAre("ir/a_b.h lacks the header guard MESHWRIGHT_IR_A_B_H_"));
  EXPECT_THAT(Faults("ir/a_b.h", "#ifndef MESHWRIGHT_IR_A_B_H_\n#define MESHWRIGHT_IR_A_B_H_\n#endif\n"), IsEmpty());
}

}  // namespace
}  // namespace meshwright
