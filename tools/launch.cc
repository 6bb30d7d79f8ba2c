// launch: starts the processes of a job, without mpirun. See tools/launcher.h.
#include <unistd.h>

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/files.h"
#include "ir/status.h"
#include "tools/command.h"
#include "tools/exit_code.h"
#include "tools/launcher.h"

namespace meshwright {
namespace {

constexpr int64_t kMostWorkers = 4096;

Command LaunchCommandLine() {
  Command command{
      .name = "launch",
      .summary = "Starts a program as the worker processes of a job, and a scheduler by which they find each other.",
      .arguments = "-- PROGRAM [ARGUMENTS]",
      .example = {"launch --worker_num=4 --join --log_dir=logs -- run models/configs/samples/seed_a.yaml --steps=20"},
      .flags = {{"worker_num", "N", "workers of the job; 8 unless given"},
                {"local_worker_num", "N", "of them, on this machine; as many, at most 8, unless given"},
                {"master_addr", "HOST", "of the machine with the scheduler; 127.0.0.1 unless given"},
                {"master_port", "N", "where the scheduler listens; 8118 unless given"},
                {"node_rank", "N", "this machine's number, from 0; -1 unless given: in order of arrival"},
                {"log_dir", "FOLDER", "for scheduler.log and worker_RANK.log; . unless given"},
                {"join", "", "wait for the job, and end as it ends; else it runs on in the background"},
                {"cluster_time_out", "SECONDS", "for all workers to arrive; 600 unless given"}},
  };
  command.more_arguments = true;
  return command;
}

absl::StatusOr<LaunchedJob> JobFrom(const Flags& flags) {
  LaunchedJob job;
  job.command = flags.arguments();
  MESHWRIGHT_ASSIGN_OR_RETURN(job.workers, flags.IntOr("worker_num", 8, 1, kMostWorkers));
  const int64_t local = job.workers < 8 ? job.workers : 8;
  MESHWRIGHT_ASSIGN_OR_RETURN(job.local_workers, flags.IntOr("local_worker_num", local, 1, kMostWorkers));
  if (flags.Has("master_addr")) job.address = flags.Text("master_addr");
  MESHWRIGHT_ASSIGN_OR_RETURN(job.port, flags.IntOr("master_port", job.port, 1024, 65535));
  MESHWRIGHT_ASSIGN_OR_RETURN(job.node, flags.IntOr("node_rank", -1, -1, kMostWorkers));
  if (flags.Has("log_dir")) job.log_dir = flags.Text("log_dir");
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t seconds, flags.IntOr("cluster_time_out", 600, 1, 7 * 24 * 3600));
  job.timeout = absl::Seconds(seconds);
  const absl::Status fits = CheckJob(job);
  if (!fits.ok()) return WithExit(ExitCode::kUsage, fits);
  if (const absl::Status program = CheckProgram(job); !program.ok()) return WithExit(ExitCode::kUsage, program);
  return job;
}

absl::Status Launch(const Flags& flags) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const LaunchedJob job, JobFrom(flags));
  if (!flags.True("join")) {
    const pid_t watcher = ::fork();
    if (watcher != 0) {
      std::fprintf(stderr, "started %d workers; their output is in %s\n", static_cast<int>(job.local_workers),
                   job.log_dir.c_str());
      return absl::OkStatus();
    }
    ::setsid();
  }
  const absl::Status status = RunJob(job);
  return WithExit(IsFileError(status) ? ExitCode::kIo : ExitCode::kRunFailed, status);
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  return meshwright::RunCommand(meshwright::LaunchCommandLine(), meshwright::Launch, argc, argv);
}
