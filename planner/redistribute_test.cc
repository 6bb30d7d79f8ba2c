#include "planner/redistribute.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
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

// What ranks of an axis hold alike is cut before it goes over slow links and gathered behind, on a mesh of any size.
// Over the slow axis a byte costs ten times as much: 4 ranks with the same S bytes pay 10 x 7/8 S for an all-to-all of
// all of it; of a quarter each 10 x 7/32 S, and 3/4 S to gather.
TEST_F(RedistributeTest, CopiesAreCutBeforeSlowLinks) {
  const Mesh mesh = Mesh::RowMajor({{"slow", 8}, {"fast", 4}});
  const auto from = ParseLayout("{slow | -}", mesh), to = ParseLayout("{- | slow}", mesh);
  ASSERT_OK(from);
  ASSERT_OK(to);
  const AxisId slow = mesh.Find("slow");
  const auto price = [&](const Shape& global, DType dtype, const Work& work, const Layout& before,
                         const Layout& after) {
    const auto* collective = std::get_if<Collective>(&work);
    const bool crosses = collective != nullptr && absl::c_linear_search(collective->axes, slow);
    return WireBytes(global, dtype, work, mesh, before, after) * (crosses ? 10 : 1);
  };
  const auto way = Redistribute({64, 64}, DType::kFloat32, *from, *to, mesh, price);
  ASSERT_OK(way);
  ASSERT_EQ(way->steps.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<Slice>(way->steps[0].work));
  EXPECT_EQ(std::get<Collective>(way->steps[1].work).kind, CollectiveKind::kAllToAll);
  EXPECT_EQ(std::get<Collective>(way->steps[2].work).kind, CollectiveKind::kAllGather);
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

// Whatever was asked before, what is kept is what Redistribute finds, and is looked for once: each of tensors, layouts
// (also in the order of what is partial) and meshes that differ in one thing has its own.
TEST_F(RedistributeTest, WhatIsKeptIsWhatWouldBeFound) {
  struct Case {
    Mesh mesh;
    Shape shape;
    std::string from, to;
  };
  const Mesh wide = Mesh::RowMajor({{"dp", 4}, {"tp", 2}}), deep = Mesh::RowMajor({{"dp", 2}, {"tp", 4}});
  const std::vector<Case> cases = {
      {wide, {16, 32}, "{dp | -}", "{- | dp}"},
      {deep, {16, 32}, "{dp | -}", "{- | dp}"},
      {wide, {32, 16}, "{dp | -}", "{- | dp}"},
      {wide, {16, 32}, "{dp | -}", "{tp | dp}"},
      {wide, {16, 32}, "{tp | -}", "{- | dp}"},
      {wide, {16, 32}, "{- | -} partial sum dp.tp", "{dp | -}"},
      {wide, {16, 32}, "{- | -} partial sum tp.dp", "{dp | -}"},
  };
  KeptRedistributions kept;
  for (const bool again : {false, true}) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto& [mesh, shape, from_text, to_text] = cases[i];
      ASSERT_OK_AND_ASSIGN(const Layout from, ParseLayout(from_text, mesh));
      ASSERT_OK_AND_ASSIGN(const Layout to, ParseLayout(to_text, mesh));
      int asked = 0;
      const StepPrice price = [&, of = Price(mesh)](const Shape& global, DType dtype, const Work& work,
                                                    const Layout& before, const Layout& after) {
        ++asked;
        return of(global, dtype, work, before, after);
      };
      ASSERT_OK_AND_ASSIGN(const Redistribution found, kept.Find(shape, DType::kFloat32, from, to, mesh, price));
      EXPECT_EQ(asked == 0, again) << i;
      ASSERT_OK_AND_ASSIGN(const Redistribution made, Redistribute(shape, DType::kFloat32, from, to, mesh, price));
      EXPECT_EQ(found.cost, made.cost) << i;
      ASSERT_EQ(found.steps.size(), made.steps.size()) << i;
      for (size_t k = 0; k < found.steps.size(); ++k) EXPECT_EQ(found.steps[k].after, made.steps[k].after) << i;
    }
  }
}

}  // namespace
}  // namespace meshwright
