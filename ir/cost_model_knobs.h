// The knobs of the compatible cost model (S14.2): what the searches of S15 weigh, as plain data. Models read them, the
// planner's search acts on them.
#ifndef MESHWRIGHT_IR_COST_MODEL_KNOBS_H_
#define MESHWRIGHT_IR_COST_MODEL_KNOBS_H_

#include <cstdint>

#include "ir/quantities.h"

namespace meshwright {

// Bytes touched and bytes moved, weighted. Names as users write them, without the prefix costmodel_.
struct CostModelKnobs {
  Bytes device_memory_capacity = GiB(16);       // of what S14.8 counts, on one device
  double alpha = 1;                             // weight of computation
  double beta = 50;                             // weight of communication; 400 where links are Ascend's
  double gamma = 0.001;                         // share of the gradients' all-reduce that is not hidden
  double communi_threshold = 2048;              // bytes up to which latency decides,
  double communi_const = 3072;                  // and what these then count
  double communi_bias = 1024;                   // added to larger messages
  bool inference = false;                       // run_phase 1: backward does not count
  bool simplify_cal = true;                     // of equal choices only costs that none beats are kept
  bool multi_subgraphs = false;                 // the graph may fall into parts
  bool fully_use_devices = true;                // candidates use all devices of a stage, or one
  bool elementwise_op_strategy_follow = false;  // elementwise operators are split as what they read
  bool tensor_slice_align_enable = false;       // rows and columns of a product's slices are multiples of the next
  int64_t tensor_slice_align_size = 16;
  bool dp_algo_enable_approxi = false;  // lists keep at most 1 / the next costs
  double dp_algo_approxi_epsilon = 0.1;
  bool dp_algo_single_loop = false;  // repeated layers are split alike
  double rp_matmul_mem_coef = 0.25;  // weight of cutting the rows of a product (S15.10)
};

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_COST_MODEL_KNOBS_H_
