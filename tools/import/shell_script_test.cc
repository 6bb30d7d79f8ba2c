#include "tools/import/shell_script.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The words of the last command, with '|' between them.
std::string Last(absl::string_view text, const std::map<std::string, std::string>& given = {}) {
  const absl::StatusOr<ShellScript> script = ReadShellScript(text, "train.sh", given);
  if (!script.ok()) return std::string(script.status().message());
  if (script->commands.empty()) return "";
  return absl::StrJoin(script->commands.back(), "|",
                       [](std::string* out, const ShellWord& word) { absl::StrAppend(out, word.text); });
}

TEST(ShellScriptTest, QuotesAndVariables) {
  EXPECT_EQ(Last("A=3\ntorchrun --a $A ${A}x \"$A y\" '$A' a\\ b"), "torchrun|--a|3|3x|3 y|$A|a b");
  EXPECT_EQ(Last("export A=3 B=\"4 5\"; go $B \"$B\" x$B"), "go|4|5|4 5|x4|5");
  EXPECT_EQ(Last("A=1 go --b  # not this\n"), "go|--b");
  EXPECT_EQ(Last("go a \\\n  b \\\r\n  c"), "go|a|b|c");
  EXPECT_EQ(Last("go \"\" \"${X[@]}\" \"$@\" end"), "go||${X[@]}|end");
  EXPECT_EQ(Last("go a > out.log 2>&1 b < in &> all"), "go|a|b");
}

TEST(ShellScriptTest, ArraysKeepTheirWordsAndLines) {
  const std::string text =
      "ARGS=(\n  --layers 8 # of Llama\n  \"--name a b\"\n)\nARGS+=( --more )\ngo \"${ARGS[@]}\" ${#ARGS[@]} "
      "${ARGS[*]}\n";
  EXPECT_EQ(Last(text), "go|--layers|8|--name a b|--more|4|--layers|8|--name|a|b|--more");
  ASSERT_OK_AND_ASSIGN(const ShellScript script, ReadShellScript(text, "train.sh"));
  EXPECT_EQ(script.commands[0][1].line, 2);
  EXPECT_EQ(script.commands[0][4].line, 5);
  EXPECT_EQ(script.commands[0][0].line, 6);
  EXPECT_EQ(Last("A=\"--x 1 \\\n  --y 2\"\nA=\"$A --z 3\"; A+=\" --w\"\ngo $A"), "go|--x|1|--y|2|--z|3|--w");
}

TEST(ShellScriptTest, DefaultsAndArithmetic) {
  EXPECT_EQ(Last("go ${A:-8} ${A-9} ${A:=7} $A ${A:+yes} ${B:+no} ${B:-${C:-deep}}"), "go|8|9|7|7|yes|deep");
  EXPECT_EQ(Last("A=\ngo ${A:-8} \"${A-9}\" end"), "go|8||end");
  EXPECT_EQ(Last("N=4; G=8\ngo $((N * G)) $(( (N+1)*$G )) $((${N}%3)) $((-N))"), "go|32|40|1|-4");
  // Nobody knows what these are: they stay as they are written.
  EXPECT_EQ(Last("go $NODES ${NODES} $(nproc) `nproc` $((NODES * 2)) ${NODES%x} $((1 / 0))"),
            "go|${NODES}|${NODES}|$(nproc)|$(nproc)|$((NODES * 2))|${NODES%x}|$((1 / 0))");
  EXPECT_EQ(Last("NODES=2\ngo $NODES ${1:-a} $1", {{"NODES", "16"}, {"1", "first"}}), "go|16|first|first");
  EXPECT_TRUE(IsUnknown("a${X}") && IsUnknown("$(nproc)") && !IsUnknown("$5"));
}

TEST(ShellScriptTest, Conditions) {
  const std::string text =
      "if [[ \"$T\" == fp8 && $N -gt 1 ]]; then A=one\nelif [ \"$T\" = bf16 ] || [ -z \"$T\" ]; then\n  A=two\nelse "
      "A=three; fi\n"
      "go $A";
  EXPECT_EQ(Last(absl::StrCat("T=fp8; N=2\n", text)), "go|one");
  EXPECT_EQ(Last(absl::StrCat("T=fp8; N=1\n", text)), "go|three");
  EXPECT_EQ(Last(absl::StrCat("T=bf16\n", text)), "go|two");
  EXPECT_EQ(Last(text), "go|two");
  EXPECT_EQ(Last("T=x\n[ $T = x ] && A=1\n[ $T = x ] || A=2\n[[ ! $T == y* ]] && B=3\ngo $A $B"), "go|1|3");
  EXPECT_EQ(Last("N=3\nif (( N > 2 )); then A=1; else A=2; fi\nif ! [[ $N -eq 3 ]]; then A=9; fi\ngo $A"), "go|1");
  EXPECT_EQ(Last("case $M in\n  7b|8b) L=32 ;;\n  70*) L=80;;\n  *) L=1 ;;\nesac\ngo $L", {{"M", "70b"}}), "go|80");
  EXPECT_EQ(Last("if false; then if true; then A=1; fi; A=2; fi; A=${A:-0}; go $A"), "go|0");
}

TEST(ShellScriptTest, WhatIsTakenForGrantedIsSaid) {
  ASSERT_OK_AND_ASSIGN(ShellScript script,
                       ReadShellScript("if [ -f /data/x ]; then A=1; else A=2; fi\ngo $A\n", "t.sh"));
  EXPECT_EQ(script.commands.back()[1].text, "2");
  EXPECT_THAT(script.notes, ElementsAre("line 1: a condition that cannot be told is taken not to hold"));
  ASSERT_OK_AND_ASSIGN(script, ReadShellScript("source env.sh\nfor L in 8 16; do\n  go $L\ndone\n", "t.sh"));
  EXPECT_EQ(script.commands.back()[1].text, "8");
  EXPECT_THAT(script.notes, ElementsAre("line 1: env.sh is not read", "line 2: of a loop its first turn is read"));
  ASSERT_OK_AND_ASSIGN(script,
                       ReadShellScript("while [[ $# -gt 0 ]]; do case $1 in -n) N=$2; shift;; esac; done\ngo\n", "t"));
  EXPECT_EQ(script.commands.back()[0].text, "go");
}

TEST(ShellScriptTest, FunctionsHeredocsAndDirectives) {
  const std::string text =
      "#!/bin/bash\n#SBATCH --nodes=4 --ntasks-per-node 8  # comment\nusage() {\n  echo \"go --no\"\n}\n"
      "cat <<EOF > f\ngo --neither 'unclosed\nEOF\ntrain() { go --yes; }\ntrain\n";
  ASSERT_OK_AND_ASSIGN(const ShellScript script, ReadShellScript(text, "t.sh"));
  ASSERT_EQ(script.commands.size(), 2u);
  EXPECT_EQ(script.commands[0][1].text, "--yes");
  ASSERT_EQ(script.directives.size(), 3u);
  EXPECT_EQ(script.directives[0].text, "--nodes=4");
  EXPECT_EQ(script.directives[2].text, "8");
}

TEST(ShellScriptTest, Errors) {
  EXPECT_EQ(Last("go\n'never\n"), "train.sh:2: found a quote that never ends, wanted a second '");
  EXPECT_THAT(Last("go \"never\n"), HasSubstr("train.sh:1: found a quote that never ends"));
  EXPECT_THAT(Last("go $(never\n"), HasSubstr("found \"$(\" that never ends"));
  EXPECT_THAT(Last("fi\n"), HasSubstr("found \"fi\", wanted \"if\""));
  EXPECT_THAT(ReadShellScript(std::string(kMostScriptBytes + 1, 'x'), "t.sh").status().message(),
              HasSubstr("wanted at most"));
}

// 2^60 bytes, and 2^40 words, if nothing stopped it.
TEST(ShellScriptTest, WhatGrowsWithoutEndIsRefused) {
  std::string word = "A=0123456789\n", array = "A=(1 2)\n", nested;
  for (int i = 0; i < 60; ++i) word += "A=\"$A$A\"\n";
  for (int i = 0; i < 40; ++i) array += "A=(${A[@]} ${A[@]})\n";
  for (int i = 0; i < 1000; ++i) nested += "${A:-";
  EXPECT_THAT(Last(word), HasSubstr("a word that grows without end"));
  EXPECT_THAT(Last(array), HasSubstr("more words than"));
  EXPECT_THAT(Last(absl::StrCat("go ", nested)), HasSubstr("values within values"));
  EXPECT_EQ(Last(absl::StrCat("go $((", std::string(1000, '('), "1", std::string(1000, ')'), "))")).substr(0, 8),
            "go|$((((");
  std::string ifs;
  for (int i = 0; i < 1000; ++i) ifs += "if true; then\n";
  EXPECT_THAT(Last(ifs), HasSubstr("commands within commands"));
}

// Whatever a script holds, it is read to its end or refused.
TEST(ShellScriptTest, RandomTextIsReadOrRefused) {
  constexpr const char* kPieces[] = {"A=",
                                     "(",
                                     ")",
                                     "\"",
                                     "'",
                                     "$A",
                                     "${A:-",
                                     "}",
                                     "$((",
                                     "))",
                                     "if ",
                                     "[[ ",
                                     " ]]",
                                     "; then ",
                                     "fi\n",
                                     "case x in ",
                                     ";;",
                                     "esac\n",
                                     "for i in 1 2; do ",
                                     "done\n",
                                     "\n",
                                     " ",
                                     "\\",
                                     "&&",
                                     "||",
                                     "`",
                                     "#",
                                     "<<E\n",
                                     "E\n",
                                     "go",
                                     "--x",
                                     "${A[@]}",
                                     "!",
                                     "((",
                                     "elif ",
                                     "else ",
                                     "$(",
                                     "{",
                                     "}",
                                     ">",
                                     "&",
                                     "\r\n",
                                     "\\\n"};
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < 40; ++i) text += kPieces[random() % std::size(kPieces)];
    const absl::StatusOr<ShellScript> script = ReadShellScript(text, "t.sh");
    if (!script.ok()) {
      EXPECT_THAT(script.status().message(), HasSubstr("t.sh:"));
    }
  }
}

}  // namespace
}  // namespace meshwright
