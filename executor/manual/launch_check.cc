// What launch_test starts as the processes of a job: a rank prints one line and the process ends with 0; or it prints
// "error: ..." and ends with 1.
//
//   launch_check toy          "rank R of N: w W loss L" of the toy after three steps
//   launch_check scatter      ReduceScatter of six rows, which four ranks do not divide
//   launch_check wait FILE    all ranks meet, say "rank R: here", wait until there is the file, and meet again
//   launch_check die RANK     that rank's process ends between two collectives without a word
//   launch_check fail RANK    that rank returns an error between two collectives
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "executor/manual/collectives.h"
#include "executor/manual/launch.h"
#include "executor/manual/mpi_launch.h"
#include "executor/manual/toy.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

absl::Status Toy(Context& context) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const ToyResult result, TrainToy(context, GradientUse::kAsWritten, 3));
  std::printf("rank %d of %d: w %.17g loss %.17g\n", static_cast<int>(context.GetRank().value()),
              static_cast<int>(context.GetGroupSize().value()), result.w, result.loss);
  return absl::OkStatus();
}

// `argument` is a rank or a file.
absl::Status MeetTwice(Context& context, const std::string& mode, const std::string& argument) {
  MESHWRIGHT_RETURN_IF_ERROR(context.Init());
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t rank, context.GetRank());
  const Tensor one = Tensor::Full<int64_t>({}, 1);
  MESHWRIGHT_RETURN_IF_ERROR(AllReduce(context, one).status());
  const bool chosen = argument == absl::StrCat(rank);
  if (mode == "wait") {
    std::printf("rank %d: here\n", static_cast<int>(rank));
    std::fflush(stdout);
    while (access(argument.c_str(), F_OK) != 0) absl::SleepFor(absl::Milliseconds(5));
  }
  if (mode == "die" && chosen) _exit(9);
  if (mode == "fail" && chosen) return absl::InternalError("out of cheese");
  MESHWRIGHT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(context, one));
  std::printf("rank %d: met %d\n", static_cast<int>(rank), static_cast<int>(sum.As<int64_t>()[0]));
  return absl::OkStatus();
}

absl::Status Scatter(Context& context) {
  MESHWRIGHT_RETURN_IF_ERROR(context.Init());
  return ReduceScatter(context, Tensor::Zeros({6, 2}, DType::kFloat32)).status();
}

int Main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string mode = argv[1];
  const std::string argument = argc > 2 ? argv[2] : "";
  const absl::Status status = Launch({.join_mpi = JoinWithMpi()}, [&](Context& context) {
    if (mode == "toy") return Toy(context);
    if (mode == "scatter") return Scatter(context);
    return MeetTwice(context, mode, argument);
  });
  if (status.ok()) return 0;
  std::printf("error: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace meshwright::manual

int main(int argc, char** argv) { return meshwright::manual::Main(argc, argv); }
