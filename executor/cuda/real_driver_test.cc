// The real driver, on libraries that only watch (testing/strict_libraries.h): whether it keeps their rules. What the
// libraries do on a GPU is not seen here.
#include "executor/cuda/real_driver.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/substitute.h"
#include "absl/time/time.h"
#include "executor/cuda/cuda_backend.h"
#include "executor/cuda/testing/strict_libraries.h"
#include "executor/host/thread_fabric.h"
#include "executor/runner.h"
#include "executor/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/status.h"
#include "ir/testing.h"

namespace meshwright::cuda {
namespace {

using testing::BrokenRules;
using testing::CountsOfLibraries;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LibraryOptions;
using testing::ResetLibraries;

// Writes zeros: what is asked of the device is in the right order, and means nothing.
class Zeros : public Kernels {
 public:
  explicit Zeros(Driver& driver) : driver_(driver) {}
  bool fail = false;
  absl::Status Run(DeviceStream stream, const KernelCall& call, Scratch&, StepValues*) override {
    if (fail) return absl::InternalError("it fails");
    for (const TensorView& out : call.outputs) {
      MESHWRIGHT_RETURN_IF_ERROR(driver_.Fill(stream, out.data, 0, Bytes(out.bytes())));
    }
    return absl::OkStatus();
  }
  absl::Status Copy(DeviceStream, const StridedCopy&) override { return absl::OkStatus(); }

 private:
  Driver& driver_;
};

// Each rank's outcome.
std::vector<absl::Status> RunOnLibraries(const Program& program, const RunOptions& options) {
  const int64_t n = program.mesh.num_ranks();
  ThreadFabric fabric(n, {.deadline = absl::Minutes(5)});
  std::vector<absl::Status> statuses(n);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      const auto run = [&]() -> absl::Status {
        MESHWRIGHT_ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver, OpenDevice(rank));
        Zeros kernels(*driver);
        CudaOptions cuda;
        cuda.deadline_floor = absl::Minutes(5);
        MESHWRIGHT_ASSIGN_OR_RETURN(const auto backend,
                                    CudaBackend::Make(*driver, kernels, fabric.endpoint(rank), program, cuda));
        return RunRank(program, options, SyntheticData(1), rank, *backend).status();
      };
      statuses[rank] = run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(RealDriverTest, APollThatFindsWorkLeavesNoErrorForTheNextLaunch) {
  ResetLibraries();
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Driver> driver, OpenDevice(0));
  ASSERT_OK_AND_ASSIGN(const DeviceStream stream, driver->MakeStream());
  ASSERT_OK_AND_ASSIGN(const DeviceEvent event, driver->MakeEvent(false));
  ASSERT_OK_AND_ASSIGN(std::byte* const data, driver->Allocate(Bytes(256)));
  ASSERT_OK(driver->Fill(stream, data, 0, Bytes(256)));
  ASSERT_OK(driver->Record(stream, event));
  ASSERT_OK_AND_ASSIGN(const bool idle, driver->IsIdle(stream));
  EXPECT_FALSE(idle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_OK_AND_ASSIGN(const bool happened, driver->HasHappened(event));
  EXPECT_FALSE(happened);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_THAT(driver->Allocate(GiB(2)).status(), StatusIs(absl::StatusCode::kResourceExhausted, "2147483648 bytes"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  driver->Free(data);
  driver->Destroy(event);
  driver->Destroy(stream);
}

TEST(RealDriverTest, ADriverThatIsTooOldIsNotNone) {
  LibraryOptions options;
  options.driver = 12040;
  ResetLibraries(options);
  EXPECT_THAT(CountDevices().status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                "the driver is for CUDA 12.4, this program was built with 13.0"));
  options.driver = 0;
  ResetLibraries(options);
  ASSERT_OK_AND_ASSIGN(const int64_t devices, CountDevices());
  EXPECT_EQ(devices, 0);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(RealDriverTest, StepsAsGraphsKeepTheRules) {
  const std::string data_parallel = absl::Substitute(kOracleDataParallel, 1);
  for (const std::string& text : {data_parallel, std::string(kOraclePipeline), std::string(kOracleTensorParallel)}) {
    const Program program = ProgramFromText(text);
    for (const bool trace : {true, false}) {
      ResetLibraries();
      EXPECT_THAT(RunOnLibraries(program, {.steps = 4, .trace = trace}), Each(IsOk()));
      EXPECT_THAT(BrokenRules(), IsEmpty());
      EXPECT_GE(CountsOfLibraries().graphs, program.mesh.num_ranks());
      EXPECT_GT(CountsOfLibraries().polls, CountsOfLibraries().groups);
      EXPECT_EQ(CountsOfLibraries().aborted, 0);
    }
  }
}

TEST(RealDriverTest, ARecordingThatNcclRefusesKeepsTheRules) {
  LibraryOptions options;
  options.refuses_captured = true;
  ResetLibraries(options);
  EXPECT_THAT(RunOnLibraries(ProgramFromText(kOracleTensorParallel), {.steps = 4, .trace = false}), Each(IsOk()));
  EXPECT_THAT(BrokenRules(), IsEmpty());
  EXPECT_EQ(CountsOfLibraries().captures, 4);
}

// A step whose first wait is for the step before: where the recording of the second is given up, its event is of a
// capture that is over.
TEST(RealDriverTest, AnEventOfACaptureThatIsOverIsNotWaitedFor) {
  ResetLibraries();
  const Program program = ProgramFromText(kOracleOneRank);
  ThreadFabric fabric(1, {.deadline = absl::Minutes(5)});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Driver> driver, OpenDevice(0));
  Zeros kernels(*driver);
  ASSERT_OK_AND_ASSIGN(const auto backend, CudaBackend::Make(*driver, kernels, fabric.endpoint(0), program));
  ASSERT_OK(backend->PrepareEvents(1));
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_OK(backend->StartClock());
    ASSERT_OK(backend->BeginStep(step, false).status());
    for (bool done = false; !done;) {
      ASSERT_OK(backend->Wait(Stream::kCompute, 0));
      ASSERT_OK(backend->Record(Stream::kCompute, 0));
      kernels.fail = CountsOfLibraries().captures == 1 && step == 1 && !kernels.fail;
      ASSERT_OK(backend->RunKernel(Stream::kCompute, KernelCall{}));
      ASSERT_OK_AND_ASSIGN(done, backend->EndStep());
    }
    ASSERT_OK(backend->Synchronize());
  }
  EXPECT_EQ(CountsOfLibraries().captures, 1);
  EXPECT_THAT(BrokenRules(), IsEmpty());
}

TEST(RealDriverTest, CommunicatorsAreAbortedTogetherAndOnce) {
  for (const int version : {22809, 21805}) {
    LibraryOptions options;
    options.nccl = version;
    // Whichever rank splits second: of all communicators, the n-th may be one of the world, on which no step calls.
    options.failing_split = 1;
    options.fails_at = 1;
    ResetLibraries(options);
    const std::vector<absl::Status> statuses =
        RunOnLibraries(ProgramFromText(kOracleTensorParallel), {.steps = 4, .trace = false});
    EXPECT_THAT(statuses, ::testing::Contains(StatusIs(absl::StatusCode::kInternal, "ncclInternalError")));
    EXPECT_THAT(BrokenRules(), IsEmpty());
    EXPECT_EQ(CountsOfLibraries().aborted, CountsOfLibraries().communicators);
  }
}

class ProductsTest : public ::testing::Test {
 protected:
  absl::Status Multiply(const LibraryOptions& options) {
    ResetLibraries(options);
    MESHWRIGHT_ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver, OpenDevice(0));
    MESHWRIGHT_ASSIGN_OR_RETURN(const DeviceStream stream, driver->MakeStream());
    alignas(256) static std::byte memory[1024];
    GemmCall call;
    call.m = 4, call.n = 8, call.k = 2;
    call.a = {memory, DType::kBFloat16, 2};
    call.b = {memory + 256, DType::kBFloat16, 8};
    call.c = {memory + 512, DType::kBFloat16, 8};
    call.epilogue = GemmEpilogue::kGelu;
    call.aux = memory + 768;
    const absl::Status status = driver->Gemm(stream, call);
    driver->Destroy(stream);
    return status;
  }
};

// Each candidate that runs is launched once, and three times to be timed; the first of equals once more.
TEST_F(ProductsTest, CandidatesThatAreNoneAreNotUsed) {
  LibraryOptions options;
  options.good = {false, true, true, true};
  options.launches = {true, false, true, true};
  ASSERT_OK(Multiply(options));
  EXPECT_THAT(BrokenRules(), IsEmpty());
  EXPECT_THAT(CountsOfLibraries().products, ElementsAre(0, 0, 5, 4));
}

TEST_F(ProductsTest, WhereNoneRunsThatIsSaidWithTheOperands) {
  LibraryOptions options;
  options.good = {true, false};
  options.launches = {false, false};
  const absl::Status status = Multiply(options);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, "cublasLtMatmul: CUBLAS_STATUS_NAME"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(4 x 2 times 2 x 8, batch 1, a bfloat16 leading 2 at ...0, b bfloat16 leading 8"));
}

TEST_F(ProductsTest, BehindWorkThatHangsTheWaitEnds) {
  LibraryOptions options;
  options.hangs = true;
  setenv("MESHWRIGHT_SETUP_SECONDS", "0.05", 1);
  const absl::Status status = Multiply(options);
  unsetenv("MESHWRIGHT_SETUP_SECONDS");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, "no end within 50ms"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace meshwright::cuda
