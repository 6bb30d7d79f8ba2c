// Plays a block of a kernel for tensor cores (kernels/warp_tiles.h, kernels/warpgroup_tiles.h) on the host: its threads
// are coroutines of one host thread, and the lanes of a warp, or the warps of a warpgroup, meet at each of the
// machine's instructions, which is done when the last of them comes.
//
// Instructions are as the PTX ISA describes them, with its layout of fragments. Shared memory is filled with 0xff at
// the start of a block, as is what an asynchronous copy will write, which arrives only when its thread waits: so that a
// missing wait, a barrier that is not there, or a buffer used too early ends in NaN. A warp runs as far as it can
// before the next one does, in an order that is drawn anew when all have run.
//
// Faults: lanes or threads that do not meet at the same call, barriers that some wait at and others do not come to,
// places outside shared memory, places that are not aligned; those of products by warpgroups are in
// warpgroup_products.h. For tests only. Thread safety: one host thread.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARP_PLAYER_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARP_PLAYER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "executor/cuda/kernels/simt.h"
#include "executor/cuda/testing/warpgroup_products.h"

namespace meshwright::cuda::testing {

class WarpPlayer;

// The context of a thread that is played.
class PlayedContext {
 public:
  PlayedContext(WarpPlayer& player, int thread) : player_(player), thread_(thread) {}
  int64_t block() const;
  int64_t blocks() const;
  int thread() const { return thread_; }
  int threads() const;
  void Sync() { Sync(0, threads()); }
  void SyncWarp();
  void CopyAsync(uint32_t to, const void* from, bool there);
  void WaitCopies() { WaitCopiesBut(-1); }
  void LoadMatrices(uint32_t (&r)[4], uint32_t at);
  void LoadMatricesTransposed(uint32_t (&r)[4], uint32_t at);
  template <Elem kElem>
  void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    Multiply(kElem, c, a, b0, b1);
  }
  float ShuffleXor(float x, int mask);
  bool Any(bool x);
  // Of bodies for Hopper.
  uint32_t AddressOf(uint32_t at) const { return WarpgroupProducts::kAddress + at; }
  void CommitCopies();
  template <int kPending>
  void WaitCopies() {
    WaitCopiesBut(kPending);
  }
  void FenceCopies();
  void Arrive(int barrier, int threads);
  void Sync(int barrier, int threads);
  template <int kRegisters>
  void KeepRegisters() {}
  template <int kRegisters>
  void TakeRegisters() {}
  template <class... T>
  void BeginProducts(T&... left) {
    Begin({{&left, sizeof(left)}...});
  }
  template <Elem kElem, int kN>
  void Multiply(float (&acc)[kN][4], uint64_t a, uint64_t b, bool add) {
    Start({kElem, kN * 8, add, false, a, b, nullptr, acc[0]});
  }
  template <Elem kElem, int kN>
  void MultiplyColumns(float (&acc)[kN][4], const uint32_t (&a)[4], uint64_t b) {
    Start({kElem, kN * 8, true, true, 0, b, a, acc[0]});
  }
  void CommitProducts();
  template <int kPending, class... T>
  void WaitProducts(T&... done) {
    Wait(kPending, {{&done, sizeof(done)}...});
  }
  template <class... T>
  void Settle(T&...) {}
  template <class T>
  T Get(uint32_t at) {
    T value;
    std::memcpy(&value, Shared(at, sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void Put(uint32_t at, const T& value) {
    std::memcpy(Shared(at, sizeof(T)), &value, sizeof(T));
    Wrote(at, sizeof(T));
  }

 private:
  void WaitCopiesBut(int64_t pending);  // -1: all of them
  void Begin(const std::vector<Registers>& left);
  void Start(const Product& product);
  void Wait(int64_t pending, const std::vector<Registers>& named);
  void Wrote(uint32_t at, size_t size);
  void Multiply(Elem type, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
  std::byte* Shared(uint32_t at, size_t size);

  WarpPlayer& player_;
  const int thread_;
};

class WarpPlayer {
 public:
  // `threads`: a multiple of 32.
  WarpPlayer(int threads, int64_t shared_bytes);
  ~WarpPlayer();
  WarpPlayer(const WarpPlayer&) = delete;
  WarpPlayer& operator=(const WarpPlayer&) = delete;

  // Every thread of a block runs `body`; the first fault, if there is one.
  absl::Status Play(int64_t block, int64_t blocks, const std::function<void(PlayedContext&)>& body);

 private:
  friend class PlayedContext;
  struct Lane;

  static constexpr size_t kBarriers = 16;
  struct Barrier {
    int threads = 0, arrived = 0;
  };

  static void Enter();  // where a coroutine starts
  bool RunWarp(int warp);
  bool Meet(int warp);
  void Arrive(int warp);
  bool StartProduct(int warp);
  void Load(int warp, bool transposed);
  void Multiply(int warp);
  void Shuffle(int warp);
  void Vote(int warp);
  void Fail(int thread, const std::string& what);
  void Check(int thread, const std::string& wrong);  // fails where something is

  const int threads_;
  std::vector<std::byte> memory_;  // shared, and what aligns it
  std::byte* shared_ = nullptr;
  int64_t shared_bytes_ = 0, block_ = 0, blocks_ = 1;
  std::vector<bool> ready_;  // warps that can go on
  Barrier barriers_[kBarriers];
  std::unique_ptr<WarpgroupProducts> products_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* running_ = nullptr;
  void* scheduler_[5] = {};  // of __builtin_setjmp
  const std::function<void(PlayedContext&)>* body_ = nullptr;
  absl::Status fault_;
};

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARP_PLAYER_H_
