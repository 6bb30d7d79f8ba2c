// Reads a YAML file into a checked tree: the one door through which models, clusters, devices and plans come in.
//
//   absl::StatusOr<Link> ReadLink(const NodeRef& in) {
//     Link link;
//     MESHWRIGHT_RETURN_IF_ERROR(in.CheckKeys({"kind", "bandwidth", "latency", "lanes"}));
//     MESHWRIGHT_ASSIGN_OR_RETURN(link.kind, in["kind"].AsEnum<LinkKind>(kLinkKindNames));
//     MESHWRIGHT_ASSIGN_OR_RETURN(link.bandwidth, in["bandwidth"].AsBytesPerSecond());
//     MESHWRIGHT_ASSIGN_OR_RETURN(link.latency, in["latency"].AsNanos());
//     MESHWRIGHT_ASSIGN_OR_RETURN(link.lanes, in["lanes"].AsInt(1, 64));
//     return link;
//   }
//
// Files come from strangers. A file may have at most kMaxDocumentBytes, kMaxDocumentDepth nested lists and maps and
// kMaxDocumentNodes values. Valid YAML that can mean something other than what is on the page is refused: aliases and
// anchors (a few lines can stand for billions of values), `<<`, a key given twice, a second document, tags such as
// !!str, keys that are not plain text, text that is not UTF-8, control characters. What yaml-cpp lets pass silently is
// refused too: a quote that is never closed, a key without its colon. Nothing here throws or recurses without a bound.
//
// Errors: absl::InvalidArgumentError in one form, `file:line:column: field.path: found X, wanted Y; remedy`. Lines and
// columns count from 1, columns in bytes. Reports from yaml-cpp keep its words behind the same `file:line:column: `.
//
// Thread safety: a Document never changes; any number of threads may read it.
#ifndef MESHWRIGHT_IR_DOCUMENT_H_
#define MESHWRIGHT_IR_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/quantities.h"
#include "ir/text.h"

namespace meshwright {

inline constexpr size_t kMaxDocumentBytes = 1 << 20;
inline constexpr int kMaxDocumentDepth = 64;
inline constexpr size_t kMaxDocumentNodes = 100000;

enum class NodeKind : uint8_t { kNull, kScalar, kList, kMap };

struct Node;  // document.cc
struct Tree;

// One value of a document, or the place where a field is missing: `in["x"]` may always be written, and the As functions
// say "found nothing" if there is no x. Small; pass and store it by value. Its Document must outlive it.
class NodeRef {
 public:
  // The value of field `field`. An error in `this` (not a map, itself missing) shows when the result is read.
  NodeRef operator[](absl::string_view field) const;

  // Whether there is a value here. An explicit null (`key:` with nothing behind) is one.
  bool present() const { return missing_.empty(); }
  bool is_null() const { return present() && kind() == NodeKind::kNull; }
  bool is_scalar() const { return present() && kind() == NodeKind::kScalar; }
  bool is_list() const { return present() && kind() == NodeKind::kList; }
  bool is_map() const { return present() && kind() == NodeKind::kMap; }

  // Of a list or map: its values in the order of the file. Empty for anything else: call AsList or AsMap to insist.
  size_t size() const;
  std::vector<NodeRef> children() const;

  const std::string& key() const;   // under which the parent holds this value, if the parent is a map; else ""
  const std::string& text() const;  // of a scalar, quotes and escapes resolved; else ""
  bool quoted() const;              // a scalar in quotes, or a block of text: never a number or a bool
  int line() const;                 // of the value; if it is missing, of the map that should hold it
  int column() const;
  std::string Path() const;  // "operators[3].shard[0]"; "" for the whole document

  // A key other than `allowed` is an error with the nearest allowed one. Implies AsMap.
  absl::Status CheckKeys(absl::Span<const absl::string_view> allowed) const;
  absl::Status CheckKeysIfPresent(absl::Span<const absl::string_view> allowed) const {
    return present() ? CheckKeys(allowed) : absl::OkStatus();
  }

  // The value of this node. The forms with `Or` give `fallback` if it is missing (but an explicit null is an error).
  // Numbers and bools must not be in quotes; quantities may. Integers are digits: 1e3 and 1.0 are refused with advice.
  absl::StatusOr<int64_t> AsInt(int64_t min, int64_t max = std::numeric_limits<int64_t>::max()) const;
  absl::StatusOr<int64_t> AsIntOr(int64_t fallback, int64_t min,
                                  int64_t max = std::numeric_limits<int64_t>::max()) const;
  absl::StatusOr<double> AsDouble(double min = std::numeric_limits<double>::lowest(),
                                  double max = std::numeric_limits<double>::max()) const;
  absl::StatusOr<double> AsDoubleOr(double fallback, double min = std::numeric_limits<double>::lowest(),
                                    double max = std::numeric_limits<double>::max()) const;
  absl::StatusOr<bool> AsBool() const;  // true or false; not yes, on, 1
  absl::StatusOr<bool> AsBoolOr(bool fallback) const;

  // Any scalar, as it stands: text may also look like a number. AsName: one that passes CheckName of ir/text.h.
  absl::StatusOr<std::string> AsString() const;
  absl::StatusOr<std::string> AsStringOr(absl::string_view fallback) const;
  absl::StatusOr<std::string> AsName() const;

  // One of `names`, as its index; or as the enumerator E(index), for names in the order of the enum.
  absl::StatusOr<size_t> AsChoice(absl::Span<const absl::string_view> names) const;
  template <class E>
  absl::StatusOr<E> AsEnum(absl::Span<const absl::string_view> names) const {
    const absl::StatusOr<size_t> index = AsChoice(names);
    if (!index.ok()) return index.status();
    return static_cast<E>(*index);
  }
  template <class E>
  absl::StatusOr<E> AsEnumOr(E fallback, absl::Span<const absl::string_view> names) const {
    if (!present()) return fallback;
    return AsEnum<E>(names);
  }

  // One of `names` with options of its own, `{momentum: {learning_rate: 0.2}}`, or without, `momentum`: the options are
  // then a missing value.
  struct Variant;
  absl::StatusOr<Variant> AsVariant(absl::Span<const absl::string_view> names) const;

  // Numbers with units, "450 GB/s" (ir/text.h lists them). AsQuantity gives the kind's base unit.
  absl::StatusOr<Bytes> AsBytes() const;
  absl::StatusOr<Bytes> AsBytesOr(Bytes fallback) const;
  absl::StatusOr<Nanos> AsNanos() const;
  absl::StatusOr<BytesPerSecond> AsBytesPerSecond() const;
  absl::StatusOr<FlopsPerSecond> AsFlopsPerSecond() const;
  absl::StatusOr<double> AsQuantity(UnitKind kind) const;

  // The values of a list or map, in the order of the file. An explicit null is not an empty list. AsListOr and AsMapOr
  // are called AsListIfPresent and AsMapIfPresent, since a missing one is an empty one.
  absl::StatusOr<std::vector<NodeRef>> AsList() const;
  absl::StatusOr<std::vector<NodeRef>> AsListIfPresent() const;
  absl::StatusOr<std::vector<NodeRef>> AsMap() const;
  absl::StatusOr<std::vector<NodeRef>> AsMapIfPresent() const;
  absl::StatusOr<std::vector<int64_t>> AsInts(int64_t min, int64_t max = std::numeric_limits<int64_t>::max()) const;
  absl::StatusOr<std::vector<double>> AsDoubles(double min = std::numeric_limits<double>::lowest(),
                                                double max = std::numeric_limits<double>::max()) const;
  absl::StatusOr<std::vector<std::string>> AsStrings() const;

  // For checks that span fields: the error `found X, wanted Y; remedy` at this place.
  absl::Status Error(absl::string_view found, absl::string_view wanted, absl::string_view remedy = "") const;
  // The same error with this place in front of its message; OK stays OK. For errors of code that knows no file.
  absl::Status Locate(const absl::Status& status) const;

 private:
  friend class Document;
  NodeRef(const Tree* tree, const Node* node) : tree_(tree), node_(node) {}

  NodeKind kind() const;
  std::string Found() const;  // what is here, for messages
  absl::Status Wanted(absl::string_view wanted) const;
  absl::Status CheckScalar(absl::string_view wanted, bool quotes_allowed) const;
  NodeRef At(const Node* node) const { return NodeRef(tree_, node); }

  const Tree* tree_;
  const Node* node_;     // not null; the deepest value on the way that exists
  std::string missing_;  // the fields from there on; empty if the value exists
};

struct NodeRef::Variant {
  size_t index;  // of `names`
  NodeRef options;
};

// Owns the values of one file. Copies share them, since they never change; a NodeRef is valid while one copy lives.
class Document {
 public:
  NodeRef root() const;
  const std::string& file_name() const;

 private:
  friend absl::StatusOr<Document> ParseDocument(absl::string_view text, absl::string_view file_name);
  explicit Document(std::shared_ptr<const Tree> tree);

  std::shared_ptr<const Tree> tree_;  // not null, except after a move
};

// `file_name` is only used in messages. A text without any value is an error.
absl::StatusOr<Document> ParseDocument(absl::string_view text, absl::string_view file_name);

// The text of the file at `path`, at most kMaxDocumentBytes. kNotFound if it cannot be opened or read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_DOCUMENT_H_
