// F21: fusion by parameter and operator (S10.7 to S10.10).
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/error_kind.h"
#include "ir/testing.h"
#include "tests/semantics/calls.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// The network of S17.11, with one more product: weights (48, 64), (64, 16), (16, 16); `more` per parameter.
std::string Net(const std::vector<std::string>& more, const std::string& rest = "",
                const std::string& parallel = "parallel_mode: data_parallel") {
  return absl::StrCat("name: net\ninputs: {x: {shape: [8, 48]}, y: {shape: [8, 16]}}\nparameters:\n",
                      "  net.p1: {shape: [48, 64]", more[0], "}\n  net.p2: {shape: [64, 16]", more[1],
                      "}\n  head.p3: {shape: [16, 16]", more[2], R"(}
operators:
  - {name: matmul1, op: MatMul, inputs: [x, net.p1]}
  - {name: matmul2, op: MatMul, inputs: [matmul1, net.p2]}
  - {name: matmul3, op: MatMul, inputs: [matmul2, head.p3]}
  - {name: loss, op: MSELoss, inputs: [matmul3, y]}
training: {dtype: float64}
cluster: {device: host, nodes: 1, devices_per_node: 2}
parallel: {)",
                      parallel, "}\n", rest);
}

std::vector<std::string> Calls(const std::string& model, Purpose purpose = Purpose::kGradient) {
  const absl::StatusOr<PlannedRun> planned = PlanModel(model);
  EXPECT_OK(planned);
  return planned.ok() ? CallsOf(planned->program, purpose) : std::vector<std::string>();
}

TEST(F21ParameterFusion, EqualIdsTogetherIdZeroAlone) {
  EXPECT_THAT(Calls(Net({"", "", ""})), ElementsAre("all_reduce {0,1}: dnet.p1 dnet.p2 dhead.p3"));
  EXPECT_THAT(Calls(Net({"", ", comm_fusion: 0", ""})),
              ElementsAre("all_reduce {0,1}: dnet.p1 dhead.p3", "all_reduce {0,1}: dnet.p2"));
  EXPECT_THAT(Calls(Net({", comm_fusion: 2", "", ", comm_fusion: 2"})),
              ElementsAre("all_reduce {0,1}: dnet.p1 dhead.p3", "all_reduce {0,1}: dnet.p2"));
  EXPECT_THAT(Calls(Net({", comm_fusion: 0", ", comm_fusion: 0", ", comm_fusion: 0"})),
              ElementsAre("all_reduce {0,1}: dnet.p1", "all_reduce {0,1}: dnet.p2", "all_reduce {0,1}: dhead.p3"));
}

// cell.set_comm_fusion(k); the last one wins. In E's example p1 = 2 is set, and then 2 on the whole net.
TEST(F21ParameterFusion, CellsInOrder) {
  EXPECT_THAT(Calls(Net({", comm_fusion: 2", "", ""}, "cells: {\"\": {comm_fusion: 2}}\n")),
              ElementsAre("all_reduce {0,1}: dnet.p1 dnet.p2 dhead.p3"));
  EXPECT_THAT(Calls(Net({"", "", ""}, "cells: {net: {comm_fusion: 2}}\n")),
              ElementsAre("all_reduce {0,1}: dnet.p1 dnet.p2", "all_reduce {0,1}: dhead.p3"));
  EXPECT_THAT(Calls(Net({"", "", ""}, "cells: {\"\": {comm_fusion: 2}, net.p2: {comm_fusion: 3}}\n")),
              ElementsAre("all_reduce {0,1}: dnet.p1 dhead.p3", "all_reduce {0,1}: dnet.p2"));
  // The cell that comes last overwrites what was said below it.
  EXPECT_THAT(Calls(Net({"", "", ""}, "cells: {net.p2: {comm_fusion: 3}, \"\": {comm_fusion: 2}}\n")),
              ElementsAre("all_reduce {0,1}: dnet.p1 dnet.p2 dhead.p3"));
}

// S10.3: an id other than 1 wins over the index list, which counts the others; that over the size.
TEST(F21ParameterFusion, IdsWinOverListsAndSizes) {
  const std::string data = "parallel_mode: data_parallel, ";
  EXPECT_THAT(Calls(Net({"", ", comm_fusion: 0", ""}, "", data + "all_reduce_fusion_config: [0]")),
              ElementsAre("all_reduce {0,1}: dnet.p2", "all_reduce {0,1}: dnet.p1", "all_reduce {0,1}: dhead.p3"));
  // 48 x 64 float64 are over 1 MB only together with nothing: ids hold whatever the size.
  EXPECT_THAT(Calls(Net({", comm_fusion: 5", ", comm_fusion: 5", ""}, "",
                        data + "comm_fusion: {allreduce: {mode: size, config: 1}}")),
              ElementsAre("all_reduce {0,1}: dnet.p1 dnet.p2", "all_reduce {0,1}: dhead.p3"));
}

// Of the parallel optimizer's calls too.
TEST(F21ParameterFusion, GathersAndScattersOfTheParallelOptimizer) {
  const std::string semi =
      "parallel_mode: semi_auto_parallel, enable_parallel_optimizer: true, parallel_optimizer_config: "
      "{parallel_optimizer_threshold: 0}";
  const std::string model = Net({"", ", comm_fusion: 0", ""}, "", semi);
  EXPECT_THAT(Calls(model), ElementsAre("reduce_scatter {0,1}: dnet.p1 dhead.p3", "reduce_scatter {0,1}: dnet.p2"));
  EXPECT_THAT(Calls(model, Purpose::kParameter),
              ElementsAre("all_gather {0,1}: net.p1@master head.p3@master", "all_gather {0,1}: net.p2@master"));
}

TEST(F21ParameterFusion, ValuesAreTheSame) {
  ASSERT_OK_AND_ASSIGN(const RunResult together, RunModel(Net({"", "", ""}), 3));
  ASSERT_OK_AND_ASSIGN(const RunResult apart, RunModel(Net({", comm_fusion: 2", ", comm_fusion: 0", ""}), 3));
  EXPECT_EQ(together.losses, apart.losses);
}

// S10.9: p1 is read as float64 by one product and through a Cast by another.
TEST(F21ParameterFusion, AParameterReadInTwoTypesIsReducedAlone) {
  const std::string model = R"(name: types
inputs: {x: {shape: [8, 4]}, z: {shape: [8, 4], dtype: float32}, y: {shape: [8, 4]}}
parameters: {p1: {shape: [4, 4]}, p2: {shape: [4, 4]}, p3: {shape: [4, 4]}}
operators:
  - {name: a, op: MatMul, inputs: [x, p1]}
  - {name: narrow, op: Cast, inputs: [p1], dtype: float32}
  - {name: b, op: MatMul, inputs: [z, narrow]}
  - {name: wide, op: Cast, inputs: [b], dtype: float64}
  - {name: c, op: Add, inputs: [a, wide]}
  - {name: d, op: MatMul, inputs: [c, p2]}
  - {name: e, op: MatMul, inputs: [d, p3]}
  - {name: loss, op: MSELoss, inputs: [e, y]}
training: {dtype: float64}
parallel: {parallel_mode: data_parallel}
cluster: {device: host, nodes: 1, devices_per_node: 2}
)";
  ASSERT_OK_AND_ASSIGN(const PlannedRun planned, PlanModel(model));
  EXPECT_THAT(planned.notices, Contains(HasSubstr("\"p1\" is read in several types; its gradient is reduced alone")));
  EXPECT_THAT(CallsOf(planned.program, Purpose::kGradient),
              ElementsAre("all_reduce {0,1}: dp1", "all_reduce {0,1}: dp2 dp3"));
}

// S10.8: collectives that the author wrote. `u` waits for `s`, so they are two calls whatever their ids.
TEST(F21ParameterFusion, OperatorsOfTheAuthor) {
  const auto model = [](absl::string_view op, absl::string_view s, absl::string_view t, absl::string_view u) {
    return absl::StrCat(R"(name: by_hand
inputs: {x: {shape: [4, 4], init: {uniform: [0, 1]}}, y: {shape: [4, 4], init: {uniform: [0, 1]}}}
parameters: {w: {shape: [4, 4]}}
operators:
  - {name: own_x, op: RankSlice, inputs: [x]}
  - {name: own_y, op: RankSlice, inputs: [y]}
  - {name: a, op: MatMul, inputs: [own_x, w]}
  - {name: s, op: )",
                        op, ", inputs: [a]", s, "}\n  - {name: t, op: ", op, ", inputs: [own_y]", t,
                        "}\n  - {name: both, op: Add, inputs: [s, t]}\n  - {name: u, op: ", op, ", inputs: [both]", u,
                        R"(}
  - {name: squares, op: Mul, inputs: [u, u]}
  - {name: rows, op: ReduceSum, inputs: [squares], axis: 1}
  - {name: loss, op: ReduceSum, inputs: [rows], axis: 0}
training: {dtype: float64}
parallel: {parallel_mode: stand_alone}
cluster: {device: host, nodes: 1, devices_per_node: 2}
)");
  };
  const std::string one = ", fusion: 1", two = ", fusion: 2";
  // An AllReduce's sum is read, and what an AllGather takes.
  const std::string of_s = "all_reduce {0,1}: s", of_t = "all_reduce {0,1}: t", of_u = "all_reduce {0,1}: u";
  const std::string of_a = "all_gather {0,1}: a", of_y = "all_gather {0,1}: own_y", of_both = "all_gather {0,1}: both";
  const auto calls = [&](absl::string_view op, absl::string_view s, absl::string_view t, absl::string_view u) {
    return Calls(model(op, s, t, u), Purpose::kActivation);
  };
  EXPECT_THAT(calls("AllReduce", "", "", ""), IsSupersetOf({of_s, of_t, of_u}));
  EXPECT_THAT(calls("AllReduce", one, one, one), IsSupersetOf({of_s + " t", of_u}));
  EXPECT_THAT(calls("AllReduce", one, two, ""), IsSupersetOf({of_s, of_t, of_u}));
  EXPECT_THAT(calls("AllGather", "", "", ""), IsSupersetOf({of_a, of_y, of_both}));
  EXPECT_THAT(calls("AllGather", one, one, one), IsSupersetOf({of_a + " own_y", of_both}));
  EXPECT_THAT(calls("AllGather", one, two, ""), IsSupersetOf({of_a, of_y, of_both}));
  for (const char* op : {"AllReduce", "AllGather"}) {
    ASSERT_OK_AND_ASSIGN(const RunResult alone, RunModel(model(op, "", "", ""), 3));
    ASSERT_OK_AND_ASSIGN(const RunResult fused, RunModel(model(op, one, one, one), 3));
    EXPECT_EQ(alone.losses, fused.losses);
  }
  EXPECT_EQ(KindOf(PlanModel(model("AllReduce", ", fusion: -1", "", "")).status()), "E-VALUE");
  EXPECT_EQ(KindOf(PlanModel(model("AllGather", ", fusion: 1.5", "", "")).status()), "E-TYPE");
}

// R21, and cells that are not there.
TEST(F21ParameterFusion, Errors) {
  const auto kind = [](const std::string& model) { return std::string(KindOf(PlanModel(model).status())); };
  EXPECT_EQ(kind(Net({", comm_fusion: -1", "", ""})), "E-VALUE");
  EXPECT_EQ(kind(Net({"", "", ""}, "cells: {net: {comm_fusion: -1}}\n")), "E-VALUE");
  EXPECT_EQ(kind(Net({"", "", ""}, "cells: {body: {comm_fusion: 2}}\n")), "E-VALUE");
  EXPECT_EQ(kind(Net({"", "", ""}, "cells: {net: {fusion: 2}}\n")), "E-KEY");
}

}  // namespace
}  // namespace meshwright
