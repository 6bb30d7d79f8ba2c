#include "ir/mesh.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace meshwright {
namespace {

std::vector<int64_t> PrimesOf(int64_t n) {
  std::vector<int64_t> primes;
  for (int64_t p = 2; p * p <= n; ++p) {
    if (n % p != 0) continue;
    primes.push_back(p);
    while (n % p == 0) n /= p;
  }
  if (n > 1) primes.push_back(n);
  return primes;
}

}  // namespace

Mesh Mesh::RowMajor(const std::vector<std::pair<std::string, int64_t>>& axes) {
  Mesh mesh;
  for (const auto& [name, size] : axes) mesh.num_ranks_ *= size;
  int64_t stride = mesh.num_ranks_;
  for (const auto& [name, size] : axes) {
    stride /= size;
    mesh.axes_.push_back({name, size, stride});
  }
  return mesh;
}

Mesh Mesh::Factored(int64_t stages, int64_t ranks_per_stage) {
  Mesh mesh;
  mesh.num_ranks_ = stages * ranks_per_stage;
  if (stages > 1) mesh.axes_.push_back({"pp", stages, ranks_per_stage});
  const std::vector<int64_t> primes = PrimesOf(ranks_per_stage);
  for (int64_t stride = ranks_per_stage; stride >= 1; --stride) {
    if (ranks_per_stage % stride != 0) continue;
    for (int64_t prime : primes) {
      if (ranks_per_stage % (stride * prime) != 0) continue;
      // With one prime only, the stride says everything.
      std::string name = primes.size() == 1 ? absl::StrCat("x", stride) : absl::StrCat(prime, "x", stride);
      mesh.axes_.push_back({std::move(name), prime, stride});
    }
  }
  return mesh;
}

AxisId Mesh::Find(const std::string& name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return AxisId(i);
  }
  return AxisId();
}

int64_t Mesh::SizeOf(const AxisList& axes) const {
  int64_t size = 1;
  for (AxisId id : axes) size *= axis(id).size;
  return size;
}

int64_t Mesh::PositionOf(int64_t rank, const AxisList& axes) const {
  int64_t position = 0;
  for (AxisId id : axes) position = position * axis(id).size + Coordinate(rank, id);
  return position;
}

std::vector<int64_t> Mesh::Group(int64_t rank, const AxisList& axes) const {
  std::vector<int64_t> ranks = {rank};
  for (AxisId id : axes) {
    std::vector<int64_t> wider;
    wider.reserve(ranks.size() * axis(id).size);
    for (int64_t member : ranks) {
      for (int64_t c = 0; c < axis(id).size; ++c) wider.push_back(WithCoordinate(member, id, c));
    }
    ranks = std::move(wider);
  }
  return ranks;
}

bool Mesh::Orthogonal(AxisId a, AxisId b) const {
  const MeshAxis& x = axis(a);
  const MeshAxis& y = axis(b);
  if (x.size == 1 || y.size == 1) return true;
  if (a == b) return false;
  return x.stride % (y.stride * y.size) == 0 || y.stride % (x.stride * x.size) == 0;
}

bool Mesh::SameGroups(const AxisList& a, const AxisList& b) const {
  // The digits of a rank's number that the axes cover, as runs [stride, end).
  const auto runs = [this](const AxisList& axes) {
    std::vector<std::pair<int64_t, int64_t>> digits;
    for (AxisId id : axes) {
      if (axis(id).size > 1) digits.push_back({axis(id).stride, axis(id).stride * axis(id).size});
    }
    std::sort(digits.begin(), digits.end());
    std::vector<std::pair<int64_t, int64_t>> joined;
    for (const auto& [begin, end] : digits) {
      if (!joined.empty() && joined.back().second == begin) {
        joined.back().second = end;
      } else {
        joined.push_back({begin, end});
      }
    }
    return joined;
  };
  return runs(a) == runs(b);
}

absl::StatusOr<AxisList> Mesh::Compose(int64_t size, int64_t stride) const {
  AxisList result;
  if (ComposeInto(size, stride, result)) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("the mesh ", ToText(*this), " has no axes that make one of size ", size, " and stride ", stride));
}

bool Mesh::ComposeInto(int64_t size, int64_t stride, AxisList& result) const {
  if (size == 1) return true;
  // From the slowest part down: the axis to take covers [stride * size / s, stride * size) of the rank's digits.
  for (size_t i = 0; i < axes_.size(); ++i) {
    const MeshAxis& candidate = axes_[i];
    if (candidate.size == 1 || size % candidate.size != 0 || candidate.name == "pp") continue;
    if (candidate.stride * candidate.size != stride * size) continue;
    result.push_back(AxisId(i));
    if (ComposeInto(size / candidate.size, stride, result)) return true;
    result.pop_back();
  }
  return false;
}

bool operator==(const Mesh& a, const Mesh& b) {
  if (a.num_ranks_ != b.num_ranks_ || a.axes_.size() != b.axes_.size()) return false;
  for (size_t i = 0; i < a.axes_.size(); ++i) {
    const MeshAxis &x = a.axes_[i], &y = b.axes_[i];
    if (x.name != y.name || x.size != y.size || x.stride != y.stride) return false;
  }
  return true;
}

std::string ToText(const Mesh& mesh) {
  if (mesh.axes().empty()) return "one";
  int64_t stride = mesh.num_ranks();
  bool row_major = true;
  for (const MeshAxis& axis : mesh.axes()) {
    stride /= axis.size;
    row_major &= axis.stride == stride;
    if (!row_major) break;
  }
  row_major &= stride == 1;
  std::string text = row_major ? "" : absl::StrCat("ranks=", mesh.num_ranks());
  for (const MeshAxis& axis : mesh.axes()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", axis.name, "=", axis.size);
    if (!row_major) absl::StrAppend(&text, "@", axis.stride);
  }
  return text;
}

namespace {

constexpr int64_t kMaxRanks = int64_t{1} << 24;

// What a layout's text can hold as an axis: no '.', '|', '{', nor '-' alone.
bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

absl::Status BadMesh(const std::string& text, absl::string_view word, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("mesh \"", text, "\": found \"", word, "\", wanted ", wanted));
}

}  // namespace

absl::StatusOr<Mesh> ParseMesh(const std::string& text) {
  if (text == "one") return Mesh();
  Mesh mesh;
  bool row_major = true;
  std::vector<std::pair<std::string, int64_t>> sizes;
  int64_t product = 1;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::StrSplit(parts.second, absl::MaxSplits('@', 1));
    int64_t size = 0, stride = 0;
    const bool named = !parts.first.empty() && absl::c_all_of(parts.first, IsNameCharacter);
    if (!named || !absl::SimpleAtoi(numbers.first, &size) || size < 1 || size > kMaxRanks) {
      return BadMesh(text, word, "name=size, as in dp=4");
    }
    if (sizes.empty() && row_major && mesh.axes_.empty() && parts.first == "ranks") {
      row_major = false;
      mesh.num_ranks_ = size;
      continue;
    }
    for (const auto& [name, unused] : sizes) {
      if (name == parts.first) return BadMesh(text, word, "every axis once");
    }
    if (row_major && absl::StrContains(word, '@')) return BadMesh(text, word, "name=size, as in dp=4");
    if (!row_major && (!absl::SimpleAtoi(numbers.second, &stride) || stride < 1 || stride > kMaxRanks ||
                       mesh.num_ranks_ % (size * stride) != 0)) {
      return BadMesh(text, word, "name=size@stride whose product divides the ranks");
    }
    product *= size;
    if (row_major && product > kMaxRanks) return BadMesh(text, word, "at most 2^24 ranks");
    sizes.push_back({std::string(parts.first), size});
    mesh.axes_.push_back({std::string(parts.first), size, stride});
  }
  if (sizes.empty()) return BadMesh(text, text, "at least one axis, as in dp=4 tp=2");
  return row_major ? Mesh::RowMajor(sizes) : mesh;
}

}  // namespace meshwright
