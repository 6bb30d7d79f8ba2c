// Programs in text, and the times of their instructions, for tests of prices.
#ifndef MESHWRIGHT_SIMULATOR_PRICE_TESTING_H_
#define MESHWRIGHT_SIMULATOR_PRICE_TESTING_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "costmodel/cost_model.h"
#include "gtest/gtest.h"
#include "ir/program.h"
#include "ir/program_text.h"
#include "ir/quantities.h"
#include "ir/testing.h"
#include "simulator/price.h"

namespace meshwright {

// Two stages of `tp` ranks each; the first sends the second 1024 x 512 x 4 bytes = 2 MiB.
inline std::string TransferOver(int tp) {
  return absl::StrCat("program transfer mesh pp=2 tp=", tp, R"(
class "stage 0"
  buffer x float32 (1024, 512) {- | -} activation
  block b forward
    send to +1 activation reads x
  slot b mb 0 layer 0
class "stage 1"
  buffer x float32 (1024, 512) {- | -} activation
  block b forward
    receive from -1 activation writes x
  slot b mb 0 layer 0
)");
}

// What each instruction of block `block` of the first class takes; none, and a failure of the test, where the text is
// no program or has no price.
inline std::vector<Nanos> TimesOf(const std::string& text, const CostModel& costs, const HostPace& host,
                                  size_t block = 0) {
  std::vector<Nanos> times;
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_OK(program);
  if (!program.ok()) return times;
  const absl::StatusOr<Prices> prices = PriceProgram(*program, costs, host);
  EXPECT_OK(prices);
  if (!prices.ok()) return times;
  for (const InstructionPrice& price : prices->classes[0][block]) times.push_back(price.time);
  return times;
}

}  // namespace meshwright

#endif  // MESHWRIGHT_SIMULATOR_PRICE_TESTING_H_
