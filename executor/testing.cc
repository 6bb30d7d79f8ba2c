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
    compute Fill "" scale=0 writes dw dw2 loss
    compute Fill "" scale=1 writes dloss
  block forward forward
    compute Feed "" writes x y
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
