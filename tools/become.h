// How a program that needs no library hands over to one beside it that needs CUDA's, or MPI's.
//
// Thread safety: called from main.
#ifndef MESHWRIGHT_TOOLS_BECOME_H_
#define MESHWRIGHT_TOOLS_BECOME_H_

#include <string>
#include <vector>

#include "tools/flags.h"

namespace meshwright {

// Whether `argv` asks for --device=gpu. Flags that are wrong are for the program itself to tell.
bool WantsGpu(const std::vector<FlagSpec>& flags, int argc, char** argv);

// Replaces this program by the one whose path is its own and `suffix`. Returns only where that cannot be done: the exit
// code, after saying why; `when` is when it is needed, "on GPUs".
int Become(const std::string& tool, const std::string& suffix, const std::string& when, char** argv);

// The same for GPUs, after a look at the driver: CUDA's libraries are as likely to be missing as that.
int BecomeForGpus(const std::string& tool, const std::string& suffix, char** argv);

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_BECOME_H_
