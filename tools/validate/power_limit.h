// A power limit below a card's own, as the words of a row say it.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_POWER_LIMIT_H_
#define MESHWRIGHT_TOOLS_VALIDATE_POWER_LIMIT_H_

#include <string>

#include "ir/cluster.h"

namespace meshwright {

// "280 of 350 W" in `text`, which has no capitals: what the limit leaves of the clock that products without pause have
// under the card's own, in (0, 1]; 1 where the text has none, or one that no card takes.
double ClockUnderLimit(const std::string& text, const KernelConstants& kernels);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_POWER_LIMIT_H_
