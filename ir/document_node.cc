#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "ir/document.h"
#include "ir/document_tree.h"
#include "ir/status.h"

namespace meshwright {
namespace {

const Node* FindChild(const Node& map, absl::string_view field) {
  for (const Node* child : map.children) {
    if (child->key == field) return child;
  }
  return nullptr;
}

bool IsNameLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Whether `key` can stand in a path as it is.
bool IsIdentifier(absl::string_view key) {
  return !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), IsNameLetter);
}

void AppendField(absl::string_view field, std::string* path) {
  if (!path->empty()) path->push_back('.');
  path->append(IsIdentifier(field) ? std::string(field) : QuoteForMessage(field));
}

std::string PathOf(const Node& node) {
  if (node.parent == nullptr) return "";
  std::string path = PathOf(*node.parent);
  if (node.parent->kind == NodeKind::kMap) {
    AppendField(node.key, &path);
  } else {
    absl::StrAppend(&path, "[", node.index, "]");
  }
  return path;
}

const std::string& EmptyString() {
  static const std::string* const kEmpty = new std::string;
  return *kEmpty;
}

}  // namespace

NodeRef NodeRef::operator[](absl::string_view field) const {
  NodeRef result = *this;
  if (is_map()) {
    if (const Node* child = FindChild(*node_, field)) return At(child);
  }
  AppendField(field, &result.missing_);
  return result;
}

NodeKind NodeRef::kind() const { return node_->kind; }

size_t NodeRef::size() const { return present() ? node_->children.size() : 0; }

std::vector<NodeRef> NodeRef::children() const {
  std::vector<NodeRef> refs;
  refs.reserve(size());
  if (!present()) return refs;
  for (const Node* child : node_->children) refs.push_back(At(child));
  return refs;
}

const std::string& NodeRef::key() const { return present() ? node_->key : EmptyString(); }
const std::string& NodeRef::text() const { return present() ? node_->text : EmptyString(); }
bool NodeRef::quoted() const { return present() && node_->quoted; }
int NodeRef::line() const { return node_->line; }
int NodeRef::column() const { return node_->column; }

std::string NodeRef::Path() const {
  std::string path = PathOf(*node_);
  if (!missing_.empty()) absl::StrAppend(&path, path.empty() ? "" : ".", missing_);
  return path;
}

std::string NodeRef::Found() const {
  if (!present()) return "nothing";
  switch (node_->kind) {
    case NodeKind::kNull:
      return "nothing";
    case NodeKind::kScalar:
      return node_->quoted ? absl::StrCat("the text ", QuoteForMessage(node_->text)) : QuoteForMessage(node_->text);
    case NodeKind::kList:
      return node_->children.empty() ? "an empty list" : absl::StrFormat("a list of %d", node_->children.size());
    case NodeKind::kMap:
      return node_->children.empty() ? "an empty map" : absl::StrFormat("a map of %d", node_->children.size());
  }
  return "nothing";
}

absl::Status NodeRef::Locate(const absl::Status& status) const {
  if (status.ok()) return status;
  const std::string path = Path();
  return absl::Status(status.code(), absl::StrFormat("%s:%d:%d: %s%s%s", tree_->file_name, line(), column(), path,
                                                     path.empty() ? "" : ": ", std::string(status.message())));
}

absl::Status NodeRef::Error(absl::string_view found, absl::string_view wanted, absl::string_view remedy) const {
  return Locate(WrongInput(found, wanted, remedy));
}

// What is here is not what was wanted.
absl::Status NodeRef::Wanted(absl::string_view wanted) const {
  if (present()) return Error(Found(), wanted, is_null() ? "write a value or remove the key" : "");
  // The first of the missing fields says why: there is no map to hold it, or the map lacks it.
  if (node_->kind != NodeKind::kMap) {
    return At(node_).Error(At(node_).Found(), absl::StrFormat("a map with the key %s", missing_));
  }
  return Error("nothing", wanted, "add it");
}

absl::Status NodeRef::CheckScalar(absl::string_view wanted, bool quotes_allowed) const {
  if (!is_scalar()) return Wanted(wanted);
  if (quoted() && !quotes_allowed) return Error(Found(), wanted, "remove the quotes");
  return absl::OkStatus();
}

absl::Status NodeRef::CheckKeys(absl::Span<const absl::string_view> allowed) const {
  if (!is_map()) return Wanted("a map");
  for (const Node* child : node_->children) {
    if (std::find(allowed.begin(), allowed.end(), child->key) != allowed.end()) continue;
    const absl::string_view nearest = NearestName(child->key, allowed);
    const bool tuple = child->key.find_first_of("()") != std::string::npos;  // of `shard: ((2, 4), (4, 1))`
    const std::string remedy = tuple             ? "a tuple is written as a list: [[2, 4], [4, 1]]"
                               : nearest.empty() ? "remove it"
                                                 : absl::StrFormat("did you mean \"%s\"?", nearest);
    const std::string path = PathOf(*child);
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s:%d:%d: %s: %s", tree_->file_name, child->key_line, child->key_column, path,
        std::string(WrongInput("an unknown key", absl::StrFormat("one of %s", ListNames(allowed)), remedy).message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> NodeRef::AsInt(int64_t min, int64_t max) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("an integer", /*quotes_allowed=*/false));
  const absl::StatusOr<int64_t> value = ParseInt(text(), min, max);
  if (!value.ok()) return Locate(value.status());
  return *value;
}

absl::StatusOr<int64_t> NodeRef::AsIntOr(int64_t fallback, int64_t min, int64_t max) const {
  if (!present()) return fallback;
  return AsInt(min, max);
}

absl::StatusOr<double> NodeRef::AsDouble(double min, double max) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("a number", /*quotes_allowed=*/false));
  const absl::StatusOr<double> value = ParseDouble(text(), min, max);
  if (!value.ok()) return Locate(value.status());
  return *value;
}

absl::StatusOr<double> NodeRef::AsDoubleOr(double fallback, double min, double max) const {
  if (!present()) return fallback;
  return AsDouble(min, max);
}

absl::StatusOr<bool> NodeRef::AsBool() const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("true or false", /*quotes_allowed=*/false));
  if (text() == "true") return true;
  if (text() == "false") return false;
  return Wanted("true or false");
}

absl::StatusOr<bool> NodeRef::AsBoolOr(bool fallback) const {
  if (!present()) return fallback;
  return AsBool();
}

absl::StatusOr<std::string> NodeRef::AsString() const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("text", /*quotes_allowed=*/true));
  return text();
}

absl::StatusOr<std::string> NodeRef::AsStringOr(absl::string_view fallback) const {
  if (!present()) return std::string(fallback);
  return AsString();
}

absl::StatusOr<std::string> NodeRef::AsName() const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("a name", /*quotes_allowed=*/true));
  MESHWRIGHT_RETURN_IF_ERROR(Locate(CheckName(text())));
  return text();
}

absl::StatusOr<size_t> NodeRef::AsChoice(absl::Span<const absl::string_view> names) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar(absl::StrFormat("one of %s", ListNames(names)), /*quotes_allowed=*/true));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text()) return i;
  }
  return Locate(UnknownName(text(), names));
}

absl::StatusOr<NodeRef::Variant> NodeRef::AsVariant(absl::Span<const absl::string_view> names) const {
  if (!is_map()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const size_t index, AsChoice(names));
    return Variant{index, (*this)[names[index]]};
  }
  MESHWRIGHT_RETURN_IF_ERROR(CheckKeys(names));
  if (size() != 1) return Wanted(absl::StrFormat("a map with one of the keys %s", ListNames(names)));
  const NodeRef options = children()[0];
  return Variant{static_cast<size_t>(std::find(names.begin(), names.end(), options.key()) - names.begin()), options};
}

absl::StatusOr<double> NodeRef::AsQuantity(UnitKind kind) const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("a number with a unit", /*quotes_allowed=*/true));
  const absl::StatusOr<double> value = ParseQuantity(text(), kind);
  if (!value.ok()) return Locate(value.status());
  return *value;
}

absl::StatusOr<Bytes> NodeRef::AsBytes() const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("a size such as \"80 GB\"", /*quotes_allowed=*/true));
  const absl::StatusOr<Bytes> value = ParseBytes(text());
  if (!value.ok()) return Locate(value.status());
  return *value;
}

absl::StatusOr<Bytes> NodeRef::AsBytesOr(Bytes fallback) const {
  if (!present()) return fallback;
  return AsBytes();
}

absl::StatusOr<Nanos> NodeRef::AsNanos() const {
  MESHWRIGHT_RETURN_IF_ERROR(CheckScalar("a time such as \"10 us\"", /*quotes_allowed=*/true));
  const absl::StatusOr<Nanos> value = ParseNanos(text());
  if (!value.ok()) return Locate(value.status());
  return *value;
}

absl::StatusOr<BytesPerSecond> NodeRef::AsBytesPerSecond() const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const double rate, AsQuantity(UnitKind::kBytesPerSecond));
  return BytesPerSecond(rate);
}

absl::StatusOr<FlopsPerSecond> NodeRef::AsFlopsPerSecond() const {
  MESHWRIGHT_ASSIGN_OR_RETURN(const double rate, AsQuantity(UnitKind::kFlopsPerSecond));
  return FlopsPerSecond(rate);
}

absl::StatusOr<std::vector<NodeRef>> NodeRef::AsList() const {
  if (!is_list()) return Wanted("a list");
  return children();
}

absl::StatusOr<std::vector<NodeRef>> NodeRef::AsListIfPresent() const {
  if (!present()) return std::vector<NodeRef>();
  return AsList();
}

absl::StatusOr<std::vector<NodeRef>> NodeRef::AsMap() const {
  if (!is_map()) return Wanted("a map");
  return children();
}

absl::StatusOr<std::vector<NodeRef>> NodeRef::AsMapIfPresent() const {
  if (!present()) return std::vector<NodeRef>();
  return AsMap();
}

absl::StatusOr<std::vector<int64_t>> NodeRef::AsInts(int64_t min, int64_t max) const {
  if (!is_list()) return Wanted("a list of integers");
  std::vector<int64_t> values;
  for (const NodeRef& child : children()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t value, child.AsInt(min, max));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<double>> NodeRef::AsDoubles(double min, double max) const {
  if (!is_list()) return Wanted("a list of numbers");
  std::vector<double> values;
  for (const NodeRef& child : children()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(const double value, child.AsDouble(min, max));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> NodeRef::AsStrings() const {
  if (!is_list()) return Wanted("a list of texts");
  std::vector<std::string> values;
  for (const NodeRef& child : children()) {
    MESHWRIGHT_ASSIGN_OR_RETURN(std::string value, child.AsString());
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace meshwright
