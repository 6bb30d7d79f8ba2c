#include "planner/redistribute.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

// Bytes on the wire per rank, ring-optimal (facts in costmodel/collective_cost.h); local steps cost one unit.
Nanos WireBytes(const Shape& global, DType dtype, const Work& work, const Mesh& mesh, const Layout& before,
                const Layout& after) {
  const auto local = [&](const Layout& layout) {
    return static_cast<double>((SizeOf(dtype) * NumElements(LocalShape(global, layout, mesh))).raw());
  };
  if (const auto* collective = std::get_if<Collective>(&work)) {
    const double n = static_cast<double>(mesh.SizeOf(collective->axes));
    switch (collective->kind) {
      case CollectiveKind::kAllReduce:
        return Nanos(static_cast<int64_t>(2 * local(before) * (n - 1) / n) + 10);
      case CollectiveKind::kAllGather:
        return Nanos(static_cast<int64_t>(local(after) * (n - 1) / n) + 10);
      case CollectiveKind::kReduceScatter:
      case CollectiveKind::kAllToAll:
        return Nanos(static_cast<int64_t>(local(before) * (n - 1) / n) + 10);
      case CollectiveKind::kBroadcast:
        break;
    }
  }
  return std::holds_alternative<Permute>(work) ? Nanos(static_cast<int64_t>(local(before)) + 10) : Nanos(1);
}

class RedistributeTest : public testing::Test {
 protected:
  StepPrice Price(const Mesh& mesh) {
    return [mesh](const Shape& global, DType dtype, const Work& work, const Layout& before, const Layout& after) {
      return WireBytes(global, dtype, work, mesh, before, after);
    };
  }
  // "AllGather d0 x2.x1 | Slice": the steps as text.
  std::string Steps(const Shape& shape, const std::string& from, const std::string& to, const Mesh& mesh) {
    const auto a = ParseLayout(from, mesh), b = ParseLayout(to, mesh);
    EXPECT_OK(a);
    EXPECT_OK(b);
    const auto way = Redistribute(shape, DType::kFloat32, *a, *b, mesh, Price(mesh));
    EXPECT_OK(way);
    return absl::StrJoin(way->steps, " | ", [&](std::string* out, const RedistributionStep& step) {
      if (const auto* collective = std::get_if<Collective>(&step.work)) {
        absl::StrAppend(out, NameOf(collective->kind), " ");
      } else {
        absl::StrAppend(out, std::holds_alternative<Slice>(step.work) ? "slice " : "permute ");
      }
      absl::StrAppend(out, ToText(step.after, mesh));
    });
  }
};

// The table of S7.6, on 4 devices, tensor (8,8).
TEST_F(RedistributeTest, TableOfTheSemantics) {
  const Mesh mesh = Mesh::Factored(1, 4);  // x2 x1
  EXPECT_EQ(Steps({8, 8}, "{x2.x1 | -}", "{- | -}", mesh), "all_gather {- | -}");
  EXPECT_EQ(Steps({8, 8}, "{- | x2.x1}", "{- | -}", mesh), "all_gather {- | -}");
  EXPECT_EQ(Steps({8, 8}, "{- | -}", "{x2.x1 | -}", mesh), "slice {x2.x1 | -}");
  EXPECT_EQ(Steps({8, 8}, "{- | x2.x1}", "{x2.x1 | -}", mesh), "all_to_all {x2.x1 | -}");
  EXPECT_EQ(Steps({8, 8}, "{x2.x1 | -}", "{x2 | x1}", mesh), "all_to_all {x2 | x1}");
  // Same placement, nothing to do.
  EXPECT_EQ(Steps({8, 8}, "{x2 | x1}", "{x2 | x1}", mesh), "");
}

TEST_F(RedistributeTest, PartialSums) {
  const Mesh mesh = Mesh::Factored(1, 4);
  EXPECT_EQ(Steps({8, 8}, "{- | -} partial sum x2.x1", "{- | -}", mesh), "all_reduce {- | -}");
  EXPECT_EQ(Steps({8, 8}, "{- | -} partial sum x2.x1", "{x2.x1 | -}", mesh), "reduce_scatter {x2.x1 | -}");
  // Half of the sum is scattered, the other half reduced: reduce-scatter first, then the rest is smaller.
  EXPECT_EQ(Steps({8, 8}, "{- | -} partial sum x2.x1", "{x2 | -}", mesh),
            "reduce_scatter {x2 | -} partial sum x1 | all_reduce {x2 | -}");
}

// 6 ranks read as 2 x 3 and as 3 x 2: the axes do not fit together, so the tensor is gathered and cut anew.
TEST_F(RedistributeTest, AxesThatAreNotOrthogonal) {
  const Mesh mesh = Mesh::Factored(1, 6);
  const AxisList two_slow = *mesh.Compose(2, 3), three_slow = *mesh.Compose(3, 2);
  Layout from = Layout::Replicated(1), to = Layout::Replicated(1);
  from.dims[0] = two_slow;
  to.dims[0] = three_slow;
  const auto way = Redistribute({12}, DType::kFloat32, from, to, mesh, Price(mesh));
  ASSERT_OK(way);
  EXPECT_EQ(way->steps.size(), 2u);
}

// --- Values: every rank's piece, element by element
// --------------------------------------------------------------------

// A rank's piece: what it holds of each element, by global index. Partial pieces hold summands.
using Piece = std::map<std::vector<int64_t>, double>;

std::vector<std::vector<int64_t>> Indices(const Shape& begin, const Shape& size) {
  std::vector<std::vector<int64_t>> all = {{}};
  for (size_t d = 0; d < size.size(); ++d) {
    std::vector<std::vector<int64_t>> wider;
    for (const auto& prefix : all) {
      for (int64_t i = 0; i < size[d]; ++i) {
        wider.push_back(prefix);
        wider.back().push_back(begin[d] + i);
      }
    }
    all = std::move(wider);
  }
  return all;
}

double ValueAt(const std::vector<int64_t>& index) {
  double value = 1;
  for (int64_t i : index) value = value * 31 + static_cast<double>(i);
  return value;
}

// What `layout` says that the ranks hold. The summands of a partial value are the value at position 0 and 0 elsewhere.
std::vector<Piece> Held(const Shape& global, const Layout& layout, const Mesh& mesh) {
  std::vector<Piece> ranks(mesh.num_ranks());
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const Shape local = LocalShape(global, layout, mesh);
    for (const auto& index : Indices(SliceBegin(global, layout, mesh, r), local)) {
      ranks[r][index] = mesh.PositionOf(r, layout.partial) == 0 ? ValueAt(index) : 0;
    }
  }
  return ranks;
}

// Plays one step by definition: a rank may only get elements that some rank of its group holds (a slice: it itself),
// and a reduction adds what the group holds.
std::vector<Piece> Play(const Shape& global, const RedistributionStep& step, const Mesh& mesh,
                        const std::vector<Piece>& before) {
  std::vector<Piece> after(before.size());
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    std::vector<int64_t> group = {r};
    bool sums = false;
    if (const auto* collective = std::get_if<Collective>(&step.work)) {
      group = mesh.Group(r, collective->axes);
      sums = InfoOf(collective->kind).reduces;
    } else if (std::holds_alternative<Permute>(step.work)) {
      for (int64_t other = 0; other < mesh.num_ranks(); ++other) group.push_back(other);
    }
    const Shape local = LocalShape(global, step.after, mesh);
    for (const auto& index : Indices(SliceBegin(global, step.after, mesh, r), local)) {
      double value = 0;
      int holders = 0;
      for (int64_t member : group) {
        const auto found = before[member].find(index);
        if (found == before[member].end()) continue;
        value = sums ? value + found->second : found->second;
        ++holders;
      }
      EXPECT_GT(holders, 0) << "rank " << r << " wants an element that its group does not hold";
      if (sums) {
        EXPECT_EQ(holders, static_cast<int>(group.size())) << "a summand is missing";
      }
      after[r][index] = value;
    }
  }
  return after;
}

Layout RandomLayout(std::mt19937& random, const Shape& shape, const Mesh& mesh, bool partial) {
  Layout layout = Layout::Replicated(shape.size());
  for (size_t a = 0; a < mesh.axes().size(); ++a) {
    const size_t place = random() % (shape.size() + 2);
    Layout next = layout;
    if (place < shape.size()) {
      // In front or behind: the order of axes matters.
      AxisList& axes = next.dims[place];
      axes.insert(random() % 2 == 0 ? axes.begin() : axes.end(), AxisId(a));
    } else if (place == shape.size() && partial) {
      next.partial.push_back(AxisId(a));
    }
    if (CheckLayout(shape, next, mesh).ok()) layout = next;
  }
  return layout;
}

// S18.3 (a): random layout pairs, every slice reproduced (S7.2).
TEST_F(RedistributeTest, RandomPairsReproduceEverySlice) {
  const std::vector<Mesh> meshes = {Mesh::Factored(1, 4), Mesh::Factored(1, 6), Mesh::Factored(1, 8),
                                    Mesh::RowMajor({{"a", 2}, {"b", 4}})};
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    const Mesh& mesh = meshes[random() % meshes.size()];
    Shape shape;
    for (size_t d = 0, rank = 1 + random() % 3; d < rank; ++d)
      shape.push_back(std::vector<int64_t>{8, 12, 24}[random() % 3]);
    const Layout from = RandomLayout(random, shape, mesh, true), to = RandomLayout(random, shape, mesh, false);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", ToText(shape), " ", ToText(from, mesh), " to ", ToText(to, mesh),
                              " on ", ToText(mesh)));
    const auto way = Redistribute(shape, DType::kFloat32, from, to, mesh, Price(mesh));
    ASSERT_OK(way);
    std::vector<Piece> held = Held(shape, from, mesh);
    for (const RedistributionStep& step : way->steps) held = Play(shape, step, mesh, held);
    ASSERT_EQ(held, Held(shape, to, mesh));
  }
}

}  // namespace
}  // namespace meshwright
