// Graphs of programs that their author splits by hand (S1.4: stand_alone, data_parallel, hybrid_parallel): what each
// rank computes for itself, and the operators by which ranks talk.
//
// A value is either common, the same on all ranks, or each rank has its own. The graph knows no devices, so the own
// values of all ranks are one tensor whose dim 0, labelled "rank", counts the ranks; a strategy that splits that label
// over all of them gives each rank its own part. An operator of such values is the plain one with "rank" in front of
// its operands: no pass asks for more.
//
//   label        rank b, rank b -> rank                CrossEntropy of each rank's rows
//   AllReduce    rank d0 -> d0, then d0 -> rank d0     the sum is partial until the second op wants it whole
//   AllGather    rank d0! d1 -> =rank d1, then ...     rows beside each other; gathered likewise
//
// The communication is what layouts ask for, and the derivatives of S3.8 are those of these ops.
//
// Thread safety: one thread.
#ifndef MESHWRIGHT_MODELS_BY_HAND_H_
#define MESHWRIGHT_MODELS_BY_HAND_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ir/graph.h"

namespace meshwright {

inline constexpr absl::string_view kRankLabel = "rank";

class RankGraph {
 public:
  // `builder` must outlive this.
  RankGraph(GraphBuilder& builder, int64_t ranks) : builder_(builder), ranks_(ranks) {}

  int64_t ranks() const { return ranks_; }
  bool IsOwn(TensorId id) const { return own_.count(id) > 0; }
  // What one rank sees.
  Shape ShapeOf(TensorId id) const;

  // A parameter of which each rank has its own, all drawn alike.
  TensorId OwnParameter(std::string name, DType dtype, Shape shape, Initializer init, bool trainable);
  // The value as one of which each rank has its own.
  absl::StatusOr<TensorId> Own(TensorId id);

  // Adds an op, written as one rank sees it. Its outputs are the ranks' own if an input is.
  absl::StatusOr<std::vector<TensorId>> Add(GraphBuilder::OpSpec spec);

  // What the ranks do with each other, S3.1 to S3.5, over all of them. Outputs are their own.
  // `reduction`: kReduceSum, kReduceMax or kReduceMin.
  absl::StatusOr<TensorId> AllReduce(const std::string& name, TensorId x, OpKind reduction = OpKind::kReduceSum);
  absl::StatusOr<TensorId> AllGather(const std::string& name, TensorId x);
  absl::StatusOr<TensorId> ReduceScatter(const std::string& name, TensorId x);
  absl::StatusOr<TensorId> Broadcast(const std::string& name, TensorId x, int64_t root);
  absl::StatusOr<TensorId> AlltoAll(const std::string& name, TensorId x, size_t split_dim, size_t concat_dim);
  // Rows [r q, r q + q) of x on rank r, q = rows / ranks (S17.1). Rows that are left over nobody gets.
  absl::StatusOr<TensorId> RankSlice(const std::string& name, TensorId x);

  // Of rows that no rank gets.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::StatusOr<TensorId> AddOwn(GraphBuilder::OpSpec spec);
  absl::StatusOr<TensorId> ReduceOverRanks(const std::string& name, TensorId x, OpKind reduction);

  GraphBuilder& builder_;
  const int64_t ranks_;
  std::set<TensorId> own_;
  std::vector<std::string> warnings_;
  std::map<TensorId, TensorId> made_own_;  // common value -> the ranks' own
};

}  // namespace meshwright

#endif  // MESHWRIGHT_MODELS_BY_HAND_H_
