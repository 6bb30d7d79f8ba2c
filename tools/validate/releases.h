// The table of what releases of frameworks do: one row each.
//
// Thread safety: pure functions.
#ifndef MESHWRIGHT_TOOLS_VALIDATE_RELEASES_H_
#define MESHWRIGHT_TOOLS_VALIDATE_RELEASES_H_

#include "tools/validate/framework.h"
#include "tools/validate/signs.h"

namespace meshwright {

// Does to `framework` what each release does that the signs tell of, in the table's order: a later one has the last
// word.
void ApplyReleases(const Signs& signs, Framework* framework);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_VALIDATE_RELEASES_H_
