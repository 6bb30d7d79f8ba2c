#include "executor/testing.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "ir/program_text.h"

namespace meshwright {

const char kOracleOneRank[] = R"(program oracle mesh x1=1
class all
  buffer x float64 (16, 32) {- | -} input init formula a=7 b=3 modulus=11 divide=11
  buffer y float64 (16, 16) {- | -} input init formula a=5 b=2 modulus=13 divide=13
  buffer w float64 (32, 16) {- | -} parameter init formula a=3 b=5 modulus=7 subtract=3 divide=20
  buffer w2 float64 (16, 16) {- | -} parameter init formula a=2 b=3 modulus=5 subtract=2 divide=20
  buffer u float64 (32, 16) {- | -} optimizer_state
  buffer u2 float64 (16, 16) {- | -} optimizer_state
  buffer dw float64 (32, 16) {- | -} gradient
  buffer dw2 float64 (16, 16) {- | -} gradient
  buffer z float64 (16, 16) {- | -} activation
  buffer a float64 (16, 16) {- | -} activation
  buffer o float64 (16, 16) {- | -} activation
  buffer do float64 (16, 16) {- | -} temporary
  buffer da float64 (16, 16) {- | -} temporary
  buffer dz float64 (16, 16) {- | -} temporary
  buffer loss float64 () {} loss
  buffer dloss float64 () {} temporary
  block zero forward
    compute Fill "-> m n" scale=0 writes dw
    compute Fill "-> m n" scale=0 writes dw2
    compute Fill "-> " scale=0 writes loss
    compute Fill "-> " scale=1 writes dloss
  block forward forward
    compute Feed "-> m n" writes x
    compute Feed "-> m n" writes y
    compute MatMul "m k, k n -> m n" reads x w writes z @matmul
    compute ReLU reads z writes a @relu
    compute MatMul "m k, k n -> m n" reads a w2 writes o @matmul2
    compute MSELoss accumulate scale=0.00390625 reads o y writes loss @loss
  block backward backward
    compute MSELossGrad scale=0.00390625 reads dloss o y writes do
    compute MatMul "m n, k n -> m k" reads do w2 writes da
    compute MatMul "m k, m n -> k n" accumulate reads a do writes dw2
    compute ReLUGrad reads da z writes dz
    compute MatMul "m k, m n -> k n" accumulate reads x dz writes dw
  block update backward
    compute Momentum learning_rate=0.4 beta1=0.1 reads w dw u writes w u
    compute Momentum learning_rate=0.4 beta1=0.1 reads w2 dw2 u2 writes w2 u2
  slot zero mb 0 layer 0
  slot forward mb 0 layer 0
  slot backward mb 0 layer 0
  slot update mb 0 layer 0
)";

const char kOracleDataParallel[] = R"(program oracle_dp mesh x1=8 loss_divisor 8
class all
  buffer x float64 (16, 32) {x1 | -} input init formula a=7 b=3 modulus=11 divide=11
  buffer y float64 (16, 16) {x1 | -} input init formula a=5 b=2 modulus=13 divide=13
  buffer w float64 (32, 16) {- | -} parameter init formula a=3 b=5 modulus=7 subtract=3 divide=20
  buffer w2 float64 (16, 16) {- | -} parameter init formula a=2 b=3 modulus=5 subtract=2 divide=20
  buffer u float64 (32, 16) {- | -} optimizer_state
  buffer u2 float64 (16, 16) {- | -} optimizer_state
  buffer dw float64 (32, 16) {- | -} partial sum x1 gradient
  buffer dw2 float64 (16, 16) {- | -} partial sum x1 gradient
  buffer dw@whole float64 (32, 16) {- | -} gradient alias dw
  buffer dw2@whole float64 (16, 16) {- | -} gradient alias dw2
  buffer z float64 (16, 16) {x1 | -} activation
  buffer a float64 (16, 16) {x1 | -} activation
  buffer o float64 (16, 16) {x1 | -} activation
  buffer do float64 (16, 16) {x1 | -} temporary
  buffer da float64 (16, 16) {x1 | -} temporary
  buffer dz float64 (16, 16) {x1 | -} temporary
  buffer loss float64 () {} partial sum x1 loss
  buffer loss@whole float64 () {} loss alias loss
  buffer dloss float64 () {} temporary
  block zero forward
    compute Fill "-> m n" scale=0 writes dw
    compute Fill "-> m n" scale=0 writes dw2
    compute Fill "-> " scale=0 writes loss
    compute Fill "-> " scale=1 writes dloss
  block forward forward
    compute Feed "-> m n" writes x
    compute Feed "-> m n" writes y
    compute MatMul "m k, k n -> m n" reads x w writes z @matmul
    compute ReLU reads z writes a @relu
    compute MatMul "m k, k n -> m n" reads a w2 writes o @matmul2
    compute MSELoss accumulate scale=0.03125 reads o y writes loss @loss
  block backward backward
    compute MSELossGrad scale=0.03125 reads dloss o y writes do
    compute MatMul "m n, k n -> m k" reads do w2 writes da
    compute MatMul "m k, m n -> k n" accumulate reads a do writes dw2
    compute ReLUGrad reads da z writes dz
    compute MatMul "m k, m n -> k n" accumulate reads x dz writes dw
    compute all_reduce sum (x1) gradient reads dw2 dw writes dw2@whole dw@whole
    compute Scale scale=$0 reads dw@whole writes dw@whole
    compute Scale scale=$0 reads dw2@whole writes dw2@whole
    compute all_reduce sum (x1) report reads loss writes loss@whole
  block update backward
    compute Momentum learning_rate=0.4 beta1=0.1 reads w dw@whole u writes w u
    compute Momentum learning_rate=0.4 beta1=0.1 reads w2 dw2@whole u2 writes w2 u2
  slot zero mb 0 layer 0
  slot forward mb 0 layer 0
  slot backward mb 0 layer 0
  slot update mb 0 layer 0
)";

const char kOracleTensorParallel[] = R"(program oracle_tp mesh x1=4
class all
  buffer x float64 (16, 32) {- | x1} input init formula a=7 b=3 modulus=11 divide=11
  buffer y float64 (16, 16) {- | -} input init formula a=5 b=2 modulus=13 divide=13
  buffer w float64 (32, 16) {x1 | -} parameter init formula a=3 b=5 modulus=7 subtract=3 divide=20
  buffer w2 float64 (16, 16) {- | -} parameter init formula a=2 b=3 modulus=5 subtract=2 divide=20
  buffer u float64 (32, 16) {x1 | -} optimizer_state
  buffer u2 float64 (16, 16) {- | -} optimizer_state
  buffer dw float64 (32, 16) {x1 | -} gradient
  buffer dw2 float64 (16, 16) {- | -} gradient
  buffer z float64 (16, 16) {- | -} partial sum x1 activation
  buffer z@1 float64 (16, 16) {- | -} activation
  buffer a float64 (16, 16) {- | -} activation
  buffer o float64 (16, 16) {- | -} activation
  buffer do float64 (16, 16) {- | -} temporary
  buffer da float64 (16, 16) {- | -} temporary
  buffer dz float64 (16, 16) {- | -} temporary
  buffer loss float64 () {} loss
  buffer dloss float64 () {} temporary
  block zero forward
    compute Fill "-> m n" scale=0 writes dw
    compute Fill "-> m n" scale=0 writes dw2
    compute Fill "-> " scale=0 writes loss
    compute Fill "-> " scale=1 writes dloss
  block forward forward
    compute Feed "-> m n" writes x
    compute Feed "-> m n" writes y
    compute MatMul "m k, k n -> m n" reads x w writes z @matmul
    compute all_reduce sum (x1) activation reads z writes z@1
    compute ReLU reads z@1 writes a @relu
    compute MatMul "m k, k n -> m n" reads a w2 writes o @matmul2
    compute MSELoss accumulate scale=0.00390625 reads o y writes loss @loss
  block backward backward
    compute MSELossGrad scale=0.00390625 reads dloss o y writes do
    compute MatMul "m n, k n -> m k" reads do w2 writes da
    compute MatMul "m k, m n -> k n" accumulate reads a do writes dw2
    compute ReLUGrad reads da z@1 writes dz
    compute MatMul "m k, m n -> k n" accumulate reads x dz writes dw
  block update backward
    compute Momentum learning_rate=0.4 beta1=0.1 reads w dw u writes w u
    compute Momentum learning_rate=0.4 beta1=0.1 reads w2 dw2 u2 writes w2 u2
  slot zero mb 0 layer 0
  slot forward mb 0 layer 0
  slot backward mb 0 layer 0
  slot update mb 0 layer 0
)";

const char kOraclePipeline[] = R"(program oracle_pp mesh pp=2 x1=2 microbatches 4
class "stage 0"
  buffer x float64 (4, 32) {x1 | -} input microbatches 4 init formula a=7 b=3 modulus=11 divide=11
  buffer w float64 (32, 16) {- | -} parameter init formula a=3 b=5 modulus=7 subtract=3 divide=20
  buffer u float64 (32, 16) {- | -} optimizer_state
  buffer dw float64 (32, 16) {- | -} partial sum x1 gradient
  buffer dw@whole float64 (32, 16) {- | -} gradient alias dw
  buffer z float64 (4, 16) {x1 | -} activation microbatches 4
  buffer a float64 (4, 16) {x1 | -} activation microbatches 4
  buffer da float64 (4, 16) {x1 | -} activation microbatches 4
  buffer dz float64 (4, 16) {x1 | -} temporary
  event ready microbatches 4
  event arrived microbatches 4
  block zero forward
    compute Fill "-> m n" scale=0 writes dw
  block forward forward
    compute Feed "-> m n" writes x
    compute MatMul "m k, k n -> m n" reads x w writes z @matmul
    compute ReLU reads z writes a records ready @relu
    send to +1 activation reads a waits ready
  block backward backward
    receive from +1 gradient writes da records arrived
    compute ReLUGrad reads da z writes dz waits arrived
    compute MatMul "m k, m n -> k n" accumulate reads x dz writes dw
  block update backward
    compute all_reduce sum (x1) gradient reads dw writes dw@whole
    compute Momentum learning_rate=0.4 beta1=0.1 reads w dw@whole u writes w u
  slot zero mb 0 layer 0
  slot forward mb 0 layer 0
  slot forward mb 1 layer 0
  slot forward mb 2 layer 0
  slot forward mb 3 layer 0
  slot backward mb 0 layer 0
  slot backward mb 1 layer 0
  slot backward mb 2 layer 0
  slot backward mb 3 layer 0
  slot update mb 0 layer 0
class "stage 1"
  buffer y float64 (4, 16) {x1 | -} input microbatches 4 init formula a=5 b=2 modulus=13 divide=13
  buffer w2 float64 (16, 16) {- | -} parameter init formula a=2 b=3 modulus=5 subtract=2 divide=20
  buffer u2 float64 (16, 16) {- | -} optimizer_state
  buffer dw2 float64 (16, 16) {- | -} partial sum x1 gradient
  buffer dw2@whole float64 (16, 16) {- | -} gradient alias dw2
  buffer a float64 (4, 16) {x1 | -} activation microbatches 4
  buffer da float64 (4, 16) {x1 | -} activation microbatches 4
  buffer o float64 (4, 16) {x1 | -} activation microbatches 4
  buffer do float64 (4, 16) {x1 | -} temporary
  buffer loss float64 () {} partial sum x1 loss microbatches 4
  buffer loss@whole float64 () {} loss microbatches 4 alias loss
  buffer dloss float64 () {} temporary
  event ready microbatches 4
  event arrived microbatches 4
  block zero forward
    compute Fill "-> m n" scale=0 writes dw2
    compute Fill "-> " scale=1 writes dloss
  block forward forward
    receive from -1 activation writes a records arrived
    compute Feed "-> m n" writes y
    compute MatMul "m k, k n -> m n" reads a w2 writes o waits arrived @matmul2
    compute MSELoss scale=0.015625 reads o y writes loss @loss
    compute all_reduce sum (x1) report reads loss writes loss@whole
  block backward backward
    compute MSELossGrad scale=0.015625 reads dloss o y writes do
    compute MatMul "m n, k n -> m k" reads do w2 writes da records ready
    send to -1 gradient reads da waits ready
    compute MatMul "m k, m n -> k n" accumulate reads a do writes dw2
  block update backward
    compute all_reduce sum (x1) gradient reads dw2 writes dw2@whole
    compute Momentum learning_rate=0.4 beta1=0.1 reads w2 dw2@whole u2 writes w2 u2
  slot zero mb 0 layer 0
  slot forward mb 0 layer 0
  slot forward mb 1 layer 0
  slot forward mb 2 layer 0
  slot forward mb 3 layer 0
  slot backward mb 0 layer 0
  slot backward mb 1 layer 0
  slot backward mb 2 layer 0
  slot backward mb 3 layer 0
  slot update mb 0 layer 0
)";

const char kOneRankFails[] = R"(program failing mesh x1=8
class all
  buffer table float64 (7, 1) {- | -} input init constant value=1
  buffer ids int32 (8) {x1} input init formula a=1 b=0 modulus=8
  buffer rows float64 (8, 1) {x1 | -} temporary
  buffer sum float64 () {} partial sum x1 loss
  buffer sum@whole float64 () {} loss alias sum
  block b forward
    compute Feed "-> v h" writes table
    compute Feed "-> s" writes ids
    compute Gather "v h, s -> s h" reads table ids writes rows @lookup
    compute ReduceSum "s h -> " reads rows writes sum
    compute all_reduce sum (x1) report reads sum writes sum@whole
  slot b mb 0 layer 0
)";

void PlaceBuffers(Program& program) {
  for (RankClass& rank_class : program.classes) {
    Bytes end;
    for (Buffer& b : rank_class.buffers) {
      const int64_t local = LocalBytes(b, program.mesh).raw();
      b.bytes = Bytes((local + kAlignment - 1) / kAlignment * kAlignment);
      if (b.alias.valid()) {
        b.offset = rank_class.buffers[b.alias.index()].offset;
        continue;
      }
      b.offset = end;
      end += b.bytes * (b.layers * b.microbatches);
    }
    rank_class.arena = end;
  }
}

void SetPrecision(Program& program, DType dtype) {
  for (RankClass& rank_class : program.classes) {
    for (Buffer& b : rank_class.buffers) {
      if (InfoOf(b.dtype).floating) b.dtype = dtype;
    }
  }
}

Program ProgramFromText(absl::string_view text, DType precision) {
  absl::StatusOr<Program> program = ParseProgram(text);
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().ToString().c_str());
    std::abort();
  }
  SetPrecision(*program, precision);
  PlaceBuffers(*program);
  return *std::move(program);
}

}  // namespace meshwright
