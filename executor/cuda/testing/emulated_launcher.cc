#include "executor/cuda/testing/emulated_launcher.h"

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "executor/cuda/testing/warp_player.h"
#include "ir/status.h"

namespace meshwright::cuda::testing {
namespace {

// What the threads of a block have in common.
struct Block {
  explicit Block(int threads, int64_t shared_bytes)
      : barrier(threads), slots(threads), shared(static_cast<size_t>(shared_bytes) / sizeof(double) + 1) {}
  std::barrier<> barrier;
  std::vector<double> slots;   // one per thread
  std::vector<double> shared;  // aligned for every element
};

class EmulatedContext {
 public:
  static constexpr int kPlays = 256;  // as many as a launch has at most
  EmulatedContext(Block& block, int thread, int threads, int64_t blocks)
      : common_(block), thread_(thread), threads_(threads), blocks_(blocks) {}

  int64_t block() const { return block_; }
  int64_t blocks() const { return blocks_; }
  int thread() const { return thread_; }
  int threads() const { return threads_; }
  void Sync() {
    if (threads_ > 1) common_.barrier.arrive_and_wait();
  }
  void* shared() { return common_.shared.data(); }
  template <class T>
  T Sum(T value) {
    return Combine(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T Max(T value) {
    return Combine(value, [](T a, T b) { return a != a || a > b ? a : b; });
  }
  void Enter(int64_t block) { block_ = block; }

 private:
  template <class T, class F>
  T Combine(T value, F f) {
    if (threads_ == 1) return value;
    common_.slots[static_cast<size_t>(thread_)] = static_cast<double>(value);
    Sync();
    T result = static_cast<T>(common_.slots[0]);
    for (int t = 1; t < threads_; ++t) result = f(result, static_cast<T>(common_.slots[static_cast<size_t>(t)]));
    Sync();
    return result;
  }

  Block& common_;
  const int thread_, threads_;
  const int64_t blocks_;
  int64_t block_ = 0;
};

template <class A, class Body>
void Play(const Body& body, const LaunchShape& shape, int threads) {
  Block common(threads, shape.shared);
  const auto play = [&](int thread) {
    EmulatedContext context(common, thread, threads, shape.blocks);
    for (int64_t block = 0; block < shape.blocks; ++block) {
      context.Enter(block);
      body.template Run<A>(context);
      context.Sync();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(play, thread);
  play(0);
  for (std::thread& other : others) other.join();
}

template <class Body>
constexpr bool kOnTensorCores = requires(const Body& body) {
  body.Visit([](const auto&) {});
};

// A body for tensor cores has all its threads, as it must.
template <class Body>
absl::Status PlayWarps(const Body& body, const LaunchShape& shape) {
  return body.Visit([&](const auto& variant) -> absl::Status {
    if (shape.threads != variant.kThreads || shape.shared != variant.kShared) {
      return absl::InternalError("the launch shape is not that of the body");
    }
    WarpPlayer player(shape.threads, shape.shared);
    for (int64_t block = 0; block < shape.blocks; ++block) {
      MESHWRIGHT_RETURN_IF_ERROR(
          player.Play(block, shape.blocks, [&](PlayedContext& context) { variant.Run(context); }));
    }
    return absl::OkStatus();
  });
}

}  // namespace

template <class Body>
absl::Status EmulatedLauncher::Queue(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body) {
  const int threads = std::min(threads_, static_cast<int>(shape.threads));
  return driver_.RunKernel(stream, {}, [=]() -> absl::Status {
    if constexpr (kOnTensorCores<Body>) {
      return PlayWarps(body, shape);
    } else if (wide) {
      Play<double>(body, shape, threads);
    } else {
      Play<float>(body, shape, threads);
    }
    return absl::OkStatus();
  });
}

#define MESHWRIGHT_LAUNCH(Body)                                                                                       \
  absl::Status EmulatedLauncher::Launch(DeviceStream stream, const LaunchShape& shape, bool wide, const Body& body) { \
    launched_.push_back(#Body);                                                                                       \
    return Queue(stream, shape, wide, body);                                                                          \
  }
MESHWRIGHT_BODIES(MESHWRIGHT_LAUNCH)
#undef MESHWRIGHT_LAUNCH

}  // namespace meshwright::cuda::testing
