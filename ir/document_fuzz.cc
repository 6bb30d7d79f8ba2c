// Fuzz target of ir/document.h, in libFuzzer's form. document_fuzz_test.cc runs it over mutated seeds as a plain test;
// with clang it is a fuzzer of its own:
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. ir/document_fuzz.cc ir/document.cc
//     ir/document_node.cc ir/text.cc -lyaml-cpp $(pkg-config --libs absl_status absl_statusor absl_str_format)
//
// Whatever the bytes: parsing ends in a Document or in an error with a place, every reader of every value returns, and
// text that was read can be written with QuoteYaml and read back.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "ir/document.h"

namespace meshwright {
namespace {

void Require(bool condition, const char* what, absl::string_view detail) {
  if (condition) return;
  std::fprintf(stderr, "document_fuzz: %s: %.*s\n", what, static_cast<int>(detail.size()), detail.data());
  std::abort();
}

void RequirePlace(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  Require(status.code() == absl::StatusCode::kInvalidArgument, "an error of another kind", message);
  Require(message.rfind("fuzz:", 0) == 0 && message[5] >= '1' && message[5] <= '9', "an error without place", message);
  Require(message.size() < 4096, "an endless message", message);
}

void RequireRoundTrip(const std::string& text) {
  const absl::StatusOr<Document> again = ParseDocument("x: " + QuoteYaml(text) + "\n", "fuzz");
  Require(again.ok(), "QuoteYaml wrote what cannot be read", text);
  Require(again->root()["x"].text() == text, "QuoteYaml wrote another text", text);
}

void Read(const NodeRef& node, int depth) {
  Require(depth <= kMaxDocumentDepth, "deeper than the limit", node.Path());
  Require(node.line() >= 1 && node.column() >= 1, "a value without place", node.Path());
  RequirePlace(node.AsInt(0, 100).status());
  RequirePlace(node.AsDouble().status());
  RequirePlace(node.AsBool().status());
  RequirePlace(node.AsString().status());
  RequirePlace(node.AsName().status());
  RequirePlace(node.AsChoice({"apple", "pear"}).status());
  RequirePlace(node.AsBytes().status());
  RequirePlace(node.AsNanos().status());
  RequirePlace(node.AsFlopsPerSecond().status());
  RequirePlace(node.AsInts(0).status());
  RequirePlace(node["field"].AsInt(0).status());
  RequirePlace(node["a"]["b"].AsMap().status());
  RequirePlace(node.CheckKeys({"name", "inputs"}));
  if (node.is_scalar() && node.text().size() < 4096) RequireRoundTrip(node.text());
  for (const NodeRef& child : node.children()) Read(child, depth + (child.is_list() || child.is_map() ? 1 : 0));
}

}  // namespace
}  // namespace meshwright

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<meshwright::Document> document = meshwright::ParseDocument(text, "fuzz");
  meshwright::RequirePlace(document.status());
  if (document.ok()) meshwright::Read(document->root(), 1);
  return 0;
}
