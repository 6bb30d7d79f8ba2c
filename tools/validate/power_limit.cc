#include "tools/validate/power_limit.h"

#include <algorithm>
#include <regex>
#include <string>

#include "costmodel/power_clock.h"

namespace meshwright {
namespace {

// Of a card's power, what it draws idle: 62 of 400 W (A100, costmodel/power_clock_test.cc).
constexpr double kIdleShare = 62.0 / 400;

// No card takes a lower limit, of its own (nvidia-smi, Min Power Limit: 100 of 400 W on A100, 200 of 700 on H100).
constexpr double kLeastLimit = 0.25;

}  // namespace

double ClockUnderLimit(const std::string& text, const KernelConstants& kernels) {
  static const std::regex* const kLimit = new std::regex(R"(\b(\d{2,4}) of (\d{2,4}) ?w(atts?)?\b(?!/))");
  std::smatch match;
  if (!std::regex_search(text, match, *kLimit)) return 1;
  const double limit = std::stod(match[1].str()), own = std::stod(match[2].str()), idle = kIdleShare * own;
  if (limit >= own || limit < kLeastLimit * own) return 1;
  const double clock = std::min(1.0, kernels.loop_clock);
  return ClockAtPower(PowerAtClock(clock) * (limit - idle) / (own - idle)) / clock;
}

}  // namespace meshwright
