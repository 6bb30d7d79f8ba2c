// Products of warpgroups (wgmma, PTX ISA 9.7.15) for warp_player.h: descriptors decoded bit by bit, addresses swizzled,
// and what may not be touched looked after.
//
// A product's accumulators hold NaN until its thread waits for it. Faults: registers that are not those which were left
// to products by the last wgmma.fence, as they were then; registers or shared memory that change under a product; a
// wait that does not name the registers whose product it ends; shared memory that its writer has not fenced;
// descriptors that differ within a warpgroup, that have another swizzle than that of 128 bytes, or that begin within
// its pattern.
#ifndef MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARPGROUP_PRODUCTS_H_
#define MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARPGROUP_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/kernels/simt.h"

namespace meshwright::cuda::testing {

// Of a thread: registers, as an array that does not move.
struct Registers {
  const void* data = nullptr;
  size_t bytes = 0;
};

// acc (64 rows, `columns`) = a b^T, plus acc where `add`. An operand lies by rows (K-major), or by columns, as b with
// trans-b.
struct Product {
  Elem type = Elem::kBFloat16;
  int columns = 0;
  bool add = true, b_by_columns = false;
  uint64_t a_at = 0, b_at = 0;            // descriptors
  const uint32_t* a_registers = nullptr;  // four, instead of a_at
  float* acc = nullptr;
};

class WarpgroupProducts {
 public:
  static constexpr int kThreads = 128;        // of a warpgroup
  static constexpr uint32_t kAddress = 1024;  // of shared memory: what a device's begins with is its own

  WarpgroupProducts(int threads, const std::byte* shared, int64_t shared_bytes)
      : shared_(shared),
        shared_bytes_(shared_bytes),
        threads_(static_cast<size_t>(threads)),
        writers_(static_cast<size_t>(shared_bytes + 15) / 16, kNobody) {}

  // Each says what is wrong, if something is.
  std::string Start(int first_thread, const std::vector<Product>& products);  // one for each of its threads
  std::string Wait(int thread, int64_t pending, const std::vector<Registers>& named);
  std::string End(int thread) const;

  void Begin(int thread, const std::vector<Registers>& left);
  void Commit(int thread) { ++threads_[static_cast<size_t>(thread)].groups; }

  // Shared memory is written, and the writer fences what it has written so far.
  void Wrote(int thread, uint32_t at, size_t bytes);
  void FenceWrites(int thread);

 private:
  using Elements = std::vector<std::pair<uint32_t, uint16_t>>;  // of shared memory: where, and what stood there
  struct Flight {
    Product product;
    uint32_t a[4] = {};
    std::shared_ptr<const Elements> read;
    int64_t group = 0;
  };
  struct Left {
    Registers registers;
    std::vector<std::byte> content;
  };
  struct Thread {
    std::vector<Left> left;
    std::vector<Flight> flights;
    std::map<float*, std::vector<float>> sums;  // what accumulators under way will be
    int64_t groups = 0;
    std::vector<uint32_t> written;  // pieces, since its last fence
  };
  static constexpr int kNobody = -1;

  std::string Read(uint64_t descriptor, bool by_columns, int rows, Elem type, std::vector<float>& values,
                   Elements& read) const;
  static std::string CheckRegisters(const Thread& thread, const Product& product);
  std::string CheckUntouched(int thread, const Flight& flight) const;

  const std::byte* const shared_;
  const int64_t shared_bytes_;
  std::vector<Thread> threads_;
  std::vector<int> writers_;  // of pieces of 16 bytes, who wrote them and has not fenced it
};

}  // namespace meshwright::cuda::testing

#endif  // MESHWRIGHT_EXECUTOR_CUDA_TESTING_WARPGROUP_PRODUCTS_H_
