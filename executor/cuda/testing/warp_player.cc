#include "executor/cuda/testing/warp_player.h"

#include <ucontext.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 256 * 1024;  // bytes

enum class Call : uint8_t { kNone, kSync, kSyncWarp, kLoad, kLoadTransposed, kMma, kShuffle, kVote, kDone };

// The player whose coroutine is about to start, of this host thread.
thread_local WarpPlayer* entering = nullptr;

// Switching by the compiler's own setjmp takes nanoseconds; swapcontext asks the kernel each time.
// noipa: callers must take all registers for lost.
[[gnu::noipa]] __attribute__((no_sanitize("address"))) void Jump(void** to) { __builtin_longjmp(to, 1); }
[[gnu::noipa]] __attribute__((no_sanitize("address"))) void Switch(void** from, void** to) {
  if (__builtin_setjmp(from) == 0) Jump(to);
}

// Begins `run` on a stack of its own; back when someone jumps to `from`.
[[gnu::noipa]] void Begin(void** from, char* stack, void (*run)()) {
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = stack;
  start.uc_stack.ss_size = kStack;
  makecontext(&start, run, 0);
  if (__builtin_setjmp(from) == 0) setcontext(&start);
}

float HalfOf(Elem type, uint32_t word, int half) {
  const auto bits = static_cast<uint16_t>(word >> 16 * half);
  return type == Elem::kBFloat16 ? FromBits(static_cast<uint32_t>(bits) << 16) : FromFloat16(bits);
}

}  // namespace

struct WarpPlayer::Lane {
  int thread = 0;
  std::unique_ptr<char[]> stack{new char[kStack]};
  void* place[5] = {};
  bool started = false;
  Call call = Call::kNone;
  // What it brings to the call, and where it wants the result.
  uint32_t at = 0, b[2] = {}, *words = nullptr;
  const uint32_t* a = nullptr;
  float *c = nullptr, x = 0;
  int mask = 0;
  Elem type = Elem::kBFloat16;
  // Under way: where to, and the bytes.
  struct Copy {
    uint32_t to;
    const std::byte* from;  // null: zeros
  };
  std::vector<Copy> copies;

  void Yield(WarpPlayer& player, Call what) {
    call = what;
    Switch(place, player.scheduler_);
  }
};

WarpPlayer::WarpPlayer(int threads, int64_t shared_bytes)
    : threads_(threads), memory_(static_cast<size_t>(shared_bytes) + 1024), shared_bytes_(shared_bytes) {
  shared_ = memory_.data();
  while (reinterpret_cast<uintptr_t>(shared_) % 1024 != 0) ++shared_;
  for (int t = 0; t < threads; ++t) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->thread = t;
  }
}
WarpPlayer::~WarpPlayer() = default;

void WarpPlayer::Fail(int thread, const std::string& what) {
  if (fault_.ok()) fault_ = absl::InternalError(absl::StrCat("block ", block_, ", thread ", thread, ": ", what));
}

void WarpPlayer::Enter() {
  WarpPlayer& player = *entering;
  Lane& lane = *player.running_;
  PlayedContext context(player, lane.thread);
  (*player.body_)(context);
  lane.Yield(player, Call::kDone);  // and never comes back
}

absl::Status WarpPlayer::Play(int64_t block, int64_t blocks, const std::function<void(PlayedContext&)>& body) {
  block_ = block;
  blocks_ = blocks;
  body_ = &body;
  std::memset(shared_, 0xff, static_cast<size_t>(shared_bytes_));
  for (const auto& lane : lanes_) {
    lane->started = false;
    lane->call = Call::kNone;
    lane->copies.clear();
  }
  const int warps = threads_ / kWarp;
  for (bool backwards = false; fault_.ok(); backwards = !backwards) {
    for (int w = 0; w < warps; ++w) {
      if (!RunWarp(backwards ? warps - 1 - w : w)) return fault_;
    }
    const Call call = lanes_[0]->call;
    for (const auto& lane : lanes_) {
      if (lane->call != call) Fail(lane->thread, "is not at the barrier at which others are");
      if (call == Call::kDone && !lane->copies.empty()) Fail(lane->thread, "ends with copies under way");
    }
    if (call == Call::kDone) break;
    for (const auto& lane : lanes_) lane->call = Call::kNone;
  }
  return fault_;
}

// To the next barrier of the block, or to the end.
bool WarpPlayer::RunWarp(int warp) {
  do {
    for (int l = 0; l < kWarp; ++l) {
      Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
      running_ = &lane;
      if (lane.started) {
        Switch(scheduler_, lane.place);
      } else {
        lane.started = true;
        entering = this;
        Begin(scheduler_, lane.stack.get(), &WarpPlayer::Enter);
      }
      if (!fault_.ok()) return false;
    }
  } while (Meet(warp));
  return fault_.ok();
}

// Does what the lanes of a warp have come to; false at a barrier of the block.
bool WarpPlayer::Meet(int warp) {
  const auto first = lanes_.begin() + warp * kWarp;
  const Call call = (*first)->call;
  for (auto lane = first; lane != first + kWarp; ++lane) {
    if ((*lane)->call != call) Fail((*lane)->thread, "is not at the instruction at which its warp is");
  }
  if (!fault_.ok() || call == Call::kSync || call == Call::kDone) return false;
  if (call == Call::kLoad || call == Call::kLoadTransposed) Load(warp, call == Call::kLoadTransposed);
  if (call == Call::kMma) Multiply(warp);
  if (call == Call::kShuffle) Shuffle(warp);
  if (call == Call::kVote) Vote(warp);
  return fault_.ok();
}

// Lanes 8m to 8m + 7 bring the rows of matrix m, 8 elements each; a lane gets two neighbours of each matrix: of row l /
// 4, or of column l / 4 where it is transposed.
void WarpPlayer::Load(int warp, bool transposed) {
  uint16_t matrices[4][8][8];
  for (int l = 0; l < kWarp; ++l) {
    const Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
    if (lane.at % 16 != 0) return Fail(lane.thread, absl::StrCat("a row of a matrix at ", lane.at));
    if (lane.at + 16 > shared_bytes_) return Fail(lane.thread, absl::StrCat("reads shared memory at ", lane.at));
    std::memcpy(matrices[l / 8][l % 8], shared_ + lane.at, 16);
  }
  for (int l = 0; l < kWarp; ++l) {
    Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
    for (int m = 0; m < 4; ++m) {
      const int i = l / 4, j = l % 4 * 2;
      const uint32_t low = transposed ? matrices[m][j][i] : matrices[m][i][j];
      const uint32_t high = transposed ? matrices[m][j + 1][i] : matrices[m][i][j + 1];
      lane.words[m] = low | high << 16;
    }
  }
}

void WarpPlayer::Multiply(int warp) {
  float a[16][16], b[16][8];
  for (int l = 0; l < kWarp; ++l) {
    const Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
    const int group = l / 4, in_group = l % 4;
    for (int i = 0; i < 8; ++i) {  // the i-th element of the fragment, as the ISA counts them
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      a[row][column] = HalfOf(lane.type, lane.a[i / 2], i % 2);
    }
    for (int i = 0; i < 4; ++i) {
      b[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = HalfOf(lane.type, lane.b[i / 2], i % 2);
    }
  }
  for (int l = 0; l < kWarp; ++l) {
    Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + (i >= 2 ? 8 : 0), column = l % 4 * 2 + (i & 1);
      float sum = lane.c[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      lane.c[i] = sum;
    }
  }
}

void WarpPlayer::Shuffle(int warp) {
  float brought[kWarp];
  for (int l = 0; l < kWarp; ++l) brought[l] = lanes_[static_cast<size_t>(warp * kWarp + l)]->x;
  for (int l = 0; l < kWarp; ++l) {
    Lane& lane = *lanes_[static_cast<size_t>(warp * kWarp + l)];
    lane.x = brought[(l ^ lane.mask) % kWarp];
  }
}

void WarpPlayer::Vote(int warp) {
  const auto first = lanes_.begin() + warp * kWarp;
  const bool any = std::any_of(first, first + kWarp, [](const auto& lane) { return lane->x != 0; });
  std::for_each(first, first + kWarp, [&](const auto& lane) { lane->x = any ? 1 : 0; });
}

int64_t PlayedContext::block() const { return player_.block_; }
int64_t PlayedContext::blocks() const { return player_.blocks_; }
int PlayedContext::threads() const { return player_.threads_; }
void PlayedContext::Sync() { player_.running_->Yield(player_, Call::kSync); }
void PlayedContext::SyncWarp() { player_.running_->Yield(player_, Call::kSyncWarp); }

void PlayedContext::CopyAsync(uint32_t to, const void* from, bool there) {
  if (to % 16 != 0 || (there && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
    player_.Fail(thread_, absl::StrCat("copies to ", to, ", which or whose source is not aligned"));
    return;
  }
  std::memset(Shared(to, 16), 0xff, 16);
  player_.running_->copies.push_back({to, there ? static_cast<const std::byte*>(from) : nullptr});
}

void PlayedContext::WaitCopies() {
  for (const auto& copy : player_.running_->copies) {
    if (copy.from == nullptr) {
      std::memset(Shared(copy.to, 16), 0, 16);
    } else {
      std::memcpy(Shared(copy.to, 16), copy.from, 16);
    }
  }
  player_.running_->copies.clear();
}

void PlayedContext::LoadMatrices(uint32_t (&r)[4], uint32_t at) {
  player_.running_->at = at;
  player_.running_->words = r;
  player_.running_->Yield(player_, Call::kLoad);
}
void PlayedContext::LoadMatricesTransposed(uint32_t (&r)[4], uint32_t at) {
  player_.running_->at = at;
  player_.running_->words = r;
  player_.running_->Yield(player_, Call::kLoadTransposed);
}

void PlayedContext::Multiply(Elem type, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  auto& lane = *player_.running_;
  lane.type = type;
  lane.c = c;
  lane.a = a;
  lane.b[0] = b0;
  lane.b[1] = b1;
  lane.Yield(player_, Call::kMma);
}

float PlayedContext::ShuffleXor(float x, int mask) {
  auto& lane = *player_.running_;
  lane.x = x;
  lane.mask = mask;
  lane.Yield(player_, Call::kShuffle);
  return lane.x;
}

bool PlayedContext::Any(bool x) {
  auto& lane = *player_.running_;
  lane.x = x ? 1 : 0;
  lane.Yield(player_, Call::kVote);
  return lane.x != 0;
}

std::byte* PlayedContext::Shared(uint32_t at, size_t size) {
  if (at % std::min<size_t>(size, 16) != 0 || at + size > static_cast<size_t>(player_.shared_bytes_)) {
    player_.Fail(thread_, absl::StrCat("uses ", size, " bytes of shared memory at ", at));
    return player_.shared_;
  }
  return player_.shared_ + at;
}

}  // namespace meshwright::cuda::testing
