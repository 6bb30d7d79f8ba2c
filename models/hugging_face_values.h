// Values of a config.json, in which null is a missing one. Used by hugging_face and what reads parts of it.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_MODELS_HUGGING_FACE_VALUES_H_
#define MESHWRIGHT_MODELS_HUGGING_FACE_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ir/document.h"

namespace meshwright::config_json {

inline constexpr int64_t kMost = int64_t{1} << 24;  // of any size

inline absl::Status NotModelled(const NodeRef& at, absl::string_view what) {
  return at.Locate(absl::UnimplementedError(absl::StrCat(what, " is not modelled")));
}

inline bool Given(const NodeRef& in) { return in.present() && !in.is_null(); }

inline absl::StatusOr<int64_t> IntOr(const NodeRef& in, int64_t fallback, int64_t min = 1) {
  if (!Given(in)) return fallback;
  return in.AsInt(min, kMost);
}

inline absl::StatusOr<bool> BoolOr(const NodeRef& in, bool fallback) {
  if (!Given(in)) return fallback;
  return in.AsBool();
}

inline absl::StatusOr<double> DoubleOr(const NodeRef& in, double fallback, double min, double max) {
  if (!Given(in)) return fallback;
  return in.AsDouble(min, max);
}

// "a.b": the key b of the map a.
inline NodeRef Find(const NodeRef& in, absl::string_view key) {
  const size_t dot = key.find('.');
  return dot == absl::string_view::npos ? in[key] : Find(in[key.substr(0, dot)], key.substr(dot + 1));
}

// What families call by different names: the first that the file has, or else the first.
inline NodeRef FirstGiven(const NodeRef& in, absl::Span<const absl::string_view> keys) {
  for (const absl::string_view key : keys) {
    if (Given(Find(in, key))) return Find(in, key);
  }
  return Find(in, keys[0]);
}

// What a list has for each layer, where all have the same.
inline absl::StatusOr<NodeRef> SameOfAll(const NodeRef& in) {
  if (!in.is_list() || in.size() == 0) return in;
  for (const NodeRef& one : in.children()) {
    if (one.text() != in.children()[0].text()) return NotModelled(one, "another in each layer");
  }
  return in.children()[0];
}

}  // namespace meshwright::config_json

#endif  // MESHWRIGHT_MODELS_HUGGING_FACE_VALUES_H_
