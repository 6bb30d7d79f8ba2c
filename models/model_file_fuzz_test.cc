// Runs the fuzz target over the model zoo and deterministic mutations of it.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace meshwright {
namespace {

constexpr absl::string_view kConfigs[] = {"gpt2_124m",   "llama3_8b", "mixtral_8x7b",     "deepseek_v3",
                                          "matmul_relu", "oracle_d",  "mnist_mlp_manual", "mnist_mlp_layout"};

constexpr absl::string_view kWords[] = {
    "0",
    "1",
    "-1",
    "3",
    "7",
    "64",
    "9223372036854775807",
    "4294967296",
    "1e9",
    "[]",
    "{}",
    "[1, 2]",
    "null",
    "true",
    "x",
    "float64",
    "int32",
    "bfloat16",
    "MatMul",
    "Reshape",
    "[-1, 4]",
    "Gather",
    "BatchMatMul",
    "ReduceMean",
    "Transpose",
    "data",
    "zeros",
    "full_batch",
    "pipeline_stages: 2",
    "pipeline_stage: 1",
    "experts: 4",
    "shape: [2, 3, 4]",
    "axis: 1",
    "perm: [1, 0]",
    "transpose_b: true",
};

bool IsWordLetter(char c) { return c != ' ' && c != '\n' && c != ',' && c != '{' && c != '}' && c != '[' && c != ']'; }

// Replaces a word (a number, a name) by another one of the file or of kWords, so that most texts stay YAML.
std::string Mutate(std::string text, std::mt19937& random) {
  for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
    std::vector<size_t> begins;
    for (size_t i = 1; i < text.size(); ++i) {
      if (IsWordLetter(text[i]) && !IsWordLetter(text[i - 1])) begins.push_back(i);
    }
    if (begins.empty()) return text;
    const auto word_at = [&](size_t begin) {
      size_t end = begin;
      while (end < text.size() && IsWordLetter(text[end])) ++end;
      return text.substr(begin, end - begin);
    };
    const size_t begin = begins[random() % begins.size()];
    const std::string old_word = word_at(begin);
    std::string new_word = random() % 3 == 0 ? word_at(begins[random() % begins.size()])
                                             : std::string(kWords[random() % std::size(kWords)]);
    if (random() % 16 == 0) new_word = std::string(1, static_cast<char>(random()));
    if (old_word.back() == ':' && new_word.back() != ':') absl::StrAppend(&new_word, ":");
    text.replace(begin, old_word.size(), new_word);
  }
  return text;
}

TEST(ModelFileFuzzTest, NothingCrashes) {
  std::vector<std::string> seeds;
  for (const absl::string_view name : kConfigs) {
    std::ifstream file(absl::StrCat("models/configs/", name, ".yaml"));
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    ASSERT_FALSE(seeds.back().empty()) << name;
  }
  std::mt19937 random(20240502);
  for (int round = 0; round < 8000; ++round) {
    const std::string text = Mutate(seeds[random() % seeds.size()], random);
    SCOPED_TRACE(text);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace meshwright
