#include "executor/cuda/testing/warp_player.h"

#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 256 * 1024;  // bytes

enum class Call : uint8_t {
  kNone,
  kSync,
  kArrive,
  kSyncWarp,
  kLoad,
  kLoadTransposed,
  kMma,
  kShuffle,
  kVote,
  kBeginProducts,
  kProduct,
  kCommitProducts,
  kWaitProducts,
  kDone
};

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
  int mask = 0, barrier = 0, threads = 0;
  Elem type = Elem::kBFloat16;
  Product product;
  // Under way: where to, and the bytes.
  struct Copy {
    uint32_t to;
    const std::byte* from;  // null: zeros
    int64_t group;
  };
  std::vector<Copy> copies;
  int64_t groups = 0;  // of copies

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

void WarpPlayer::Check(int thread, const std::string& wrong) {
  if (!wrong.empty()) Fail(thread, wrong);
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
    lane->groups = 0;
  }
  products_ = std::make_unique<WarpgroupProducts>(threads_, shared_, shared_bytes_);
  std::fill(std::begin(barriers_), std::end(barriers_), Barrier());
  const int warps = threads_ / kWarp;
  ready_.assign(static_cast<size_t>(warps), true);
  const auto is_done = [](const auto& lane) { return lane->call == Call::kDone; };
  std::vector<int> order(static_cast<size_t>(warps));
  std::iota(order.begin(), order.end(), 0);
  for (std::mt19937 random(static_cast<uint32_t>(block)); fault_.ok();
       std::shuffle(order.begin(), order.end(), random)) {
    bool moved = false;
    for (const int warp : order) {
      if (!ready_[static_cast<size_t>(warp)]) continue;
      moved = true;
      if (!RunWarp(warp)) return fault_;
    }
    if (moved) continue;
    const auto waiting = std::find_if_not(lanes_.begin(), lanes_.end(), is_done);
    if (waiting == lanes_.end()) break;
    Fail((*waiting)->thread, "is not at the barrier at which others are, or they do not come to its");
  }
  for (const auto& lane : lanes_) {
    if (!lane->copies.empty()) Fail(lane->thread, "ends with copies under way");
    Check(lane->thread, products_->End(lane->thread));
  }
  for (size_t b = 0; b < kBarriers; ++b) {
    if (barriers_[b].arrived > 0)
      Fail(0, absl::StrCat("barrier ", b, " is left with ", barriers_[b].arrived, " threads"));
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

// Does what the lanes of a warp have come to; false where the warp waits for others, or lets them run.
bool WarpPlayer::Meet(int warp) {
  const auto first = lanes_.begin() + warp * kWarp;
  const Call call = (*first)->call;
  for (auto lane = first; lane != first + kWarp; ++lane) {
    if ((*lane)->call != call) Fail((*lane)->thread, "is not at the instruction at which its warp is");
  }
  if (!fault_.ok()) return false;
  if (call == Call::kDone || call == Call::kSync) ready_[static_cast<size_t>(warp)] = false;
  if (call == Call::kDone) return false;
  if (call == Call::kSync || call == Call::kArrive) Arrive(warp);
  if (call == Call::kProduct) return StartProduct(warp);
  if (call == Call::kLoad || call == Call::kLoadTransposed) Load(warp, call == Call::kLoadTransposed);
  if (call == Call::kMma) Multiply(warp);
  if (call == Call::kShuffle) Shuffle(warp);
  if (call == Call::kVote) Vote(warp);
  // Who has come to a barrier lets those run that waited for it: they may do what it should have waited for.
  return fault_.ok() && call != Call::kSync && call != Call::kArrive;
}

// A warp comes to a barrier; those that wait there go on when all that it is for have come.
void WarpPlayer::Arrive(int warp) {
  const auto first = lanes_.begin() + warp * kWarp;
  const int number = (*first)->barrier, threads = (*first)->threads;
  for (auto lane = first; lane != first + kWarp; ++lane) {
    if ((*lane)->barrier != number || (*lane)->threads != threads)
      Fail((*lane)->thread, "differs from its warp in what barrier it is at");
  }
  if (number < 0 || number >= static_cast<int>(kBarriers))
    return Fail((*first)->thread, absl::StrCat("is at barrier ", number));
  Barrier& barrier = barriers_[number];
  if (barrier.arrived > 0 && barrier.threads != threads) {
    return Fail((*first)->thread,
                absl::StrCat("wants ", threads, " threads at barrier ", number, ", others ", barrier.threads));
  }
  barrier.threads = threads;
  barrier.arrived += kWarp;
  if (barrier.arrived > threads) return Fail((*first)->thread, absl::StrCat("is one too many at barrier ", number));
  if (barrier.arrived < threads) return;
  barrier.arrived = 0;
  for (size_t w = 0; w < ready_.size(); ++w) {
    const Lane& lane = *lanes_[w * kWarp];
    if (lane.call == Call::kSync && lane.barrier == number) ready_[w] = true;
  }
}

// A product begins when the last warp of the warpgroup comes to it.
bool WarpPlayer::StartProduct(int warp) {
  constexpr int kWarps = WarpgroupProducts::kThreads / kWarp;
  const int first = warp / kWarps * kWarps;
  std::vector<Product> products;
  for (int w = first; w < first + kWarps; ++w) {
    ready_[static_cast<size_t>(warp)] = false;
    if (static_cast<size_t>(w) >= ready_.size() || ready_[static_cast<size_t>(w)] ||
        lanes_[static_cast<size_t>(w * kWarp)]->call != Call::kProduct)
      return false;
    for (int l = 0; l < kWarp; ++l) products.push_back(lanes_[static_cast<size_t>(w * kWarp + l)]->product);
  }
  Check(first * kWarp, products_->Start(first * kWarp, products));
  for (int w = first; w < first + kWarps; ++w) ready_[static_cast<size_t>(w)] = true;
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
void PlayedContext::Arrive(int barrier, int threads) {
  player_.running_->barrier = barrier;
  player_.running_->threads = threads;
  player_.running_->Yield(player_, Call::kArrive);
}
void PlayedContext::Sync(int barrier, int threads) {
  player_.running_->barrier = barrier;
  player_.running_->threads = threads;
  player_.running_->Yield(player_, Call::kSync);
}
void PlayedContext::SyncWarp() { player_.running_->Yield(player_, Call::kSyncWarp); }

void PlayedContext::CopyAsync(uint32_t to, const void* from, bool there) {
  if (to % 16 != 0 || (there && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
    player_.Fail(thread_, absl::StrCat("copies to ", to, ", which or whose source is not aligned"));
    return;
  }
  std::memset(Shared(to, 16), 0xff, 16);
  auto& lane = *player_.running_;
  lane.copies.push_back({to, there ? static_cast<const std::byte*>(from) : nullptr, lane.groups});
}

void PlayedContext::CommitCopies() { ++player_.running_->groups; }

void PlayedContext::WaitCopiesBut(int64_t pending) {
  auto& lane = *player_.running_;
  const int64_t done = pending < 0 ? lane.groups + 1 : lane.groups - pending;
  std::erase_if(lane.copies, [&](const auto& copy) {
    if (copy.group >= done) return false;
    if (copy.from == nullptr) {
      std::memset(Shared(copy.to, 16), 0, 16);
    } else {
      std::memcpy(Shared(copy.to, 16), copy.from, 16);
    }
    Wrote(copy.to, 16);
    return true;
  });
}

void PlayedContext::FenceCopies() { player_.products_->FenceWrites(thread_); }
void PlayedContext::Wrote(uint32_t at, size_t size) {
  if (player_.fault_.ok()) player_.products_->Wrote(thread_, at, size);
}

void PlayedContext::Begin(const std::vector<Registers>& left) {
  player_.products_->Begin(thread_, left);
  player_.running_->Yield(player_, Call::kBeginProducts);
}
void PlayedContext::Start(const Product& product) {
  player_.running_->product = product;
  player_.running_->Yield(player_, Call::kProduct);
}
void PlayedContext::CommitProducts() {
  player_.products_->Commit(thread_);
  player_.running_->Yield(player_, Call::kCommitProducts);
}
void PlayedContext::Wait(int64_t pending, const std::vector<Registers>& named) {
  player_.Check(thread_, player_.products_->Wait(thread_, pending, named));
  player_.running_->Yield(player_, Call::kWaitProducts);
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
