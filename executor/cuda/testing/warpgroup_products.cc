#include "executor/cuda/testing/warpgroup_products.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace meshwright::cuda::testing {
namespace {

constexpr int kDepth = 16;                 // of a product
constexpr uint32_t kPoison = 0x7fc0deadu;  // NaN

float ValueOf(Elem type, uint16_t bits) {
  return type == Elem::kBFloat16 ? FromBits(static_cast<uint32_t>(bits) << 16) : FromFloat16(bits);
}

bool Within(const Registers& part, const Registers& whole) {
  const auto *const begin = static_cast<const std::byte*>(part.data), *const all =
                                                                          static_cast<const std::byte*>(whole.data);
  return begin >= all && begin + part.bytes <= all + whole.bytes;
}

Registers AccumulatorsOf(const Product& product) {
  return {product.acc, static_cast<size_t>(product.columns) / 2 * sizeof(float)};
}
Registers OperandOf(const Product& product) {
  return {product.a_registers, product.a_registers == nullptr ? 0 : 4 * sizeof(uint32_t)};
}

bool IsPoisoned(const Product& product) {
  return std::all_of(product.acc, product.acc + product.columns / 2,
                     [](const float& x) { return ToBits(x) == kPoison; });
}

}  // namespace

// Element (i, k) of an operand, i < rows, as the ISA's canonical layouts have it for 128-byte swizzling. By rows: rows
// of 128 bytes, groups of eight a stride apart. By columns: 64 rows in 128 bytes, the next 64 by the leading dimension;
// columns one below the other, groups of eight a stride apart. Swizzling exchanges bits of addresses.
std::string WarpgroupProducts::Read(uint64_t descriptor, bool by_columns, int rows, Elem type,
                                    std::vector<float>& values, Elements& read) const {
  const auto field = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fffu) << 4; };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  constexpr uint64_t kFields = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62;
  if (descriptor >> 62 != 1 || (descriptor & ~kFields) != 0) {
    return absl::StrCat("a product by descriptor ", absl::Hex(descriptor),
                        ", which is not played: wanted swizzling of 128 bytes without offset");
  }
  if ((start & 0x380u) != 0 || (!by_columns && start % 128 + 2 * kDepth > 128)) {
    return absl::StrCat("a product's operand begins at ", start, ", within the pattern of its swizzling");
  }
  for (int i = 0; i < rows; ++i) {
    for (int k = 0; k < kDepth; ++k) {
      const auto row = static_cast<uint32_t>(i), column = static_cast<uint32_t>(k);
      const uint32_t linear = by_columns
                                  ? start + row / 64 * leading + row % 64 * 2 + column / 8 * stride + column % 8 * 128
                                  : start + row / 8 * stride + row % 8 * 128 + column * 2;
      const uint32_t address = linear ^ (linear >> 3 & 0x70u), at = address - kAddress;
      if (address < kAddress || at + 2 > shared_bytes_) {
        return absl::StrCat("a product reads shared memory at ", static_cast<int64_t>(address) - kAddress);
      }
      if (const int writer = writers_[at / 16]; writer != kNobody) {
        return absl::StrCat("a product reads shared memory at ", at, ", which thread ", writer,
                            " has written and not fenced");
      }
      uint16_t bits;
      std::memcpy(&bits, shared_ + at, sizeof(bits));
      read.emplace_back(at, bits);
      values.push_back(ValueOf(type, bits));
    }
  }
  return "";
}

// Accumulators under way may be added to; else they, and operands, are as they were left to products.
std::string WarpgroupProducts::CheckRegisters(const Thread& thread, const Product& product) {
  const auto left = [&](const Registers& registers) {
    if (registers.bytes == 0) return true;
    return std::any_of(thread.left.begin(), thread.left.end(), [&](const Left& l) {
      if (!Within(registers, l.registers)) return false;
      const ptrdiff_t from =
          static_cast<const std::byte*>(registers.data) - static_cast<const std::byte*>(l.registers.data);
      return std::memcmp(registers.data, l.content.data() + from, registers.bytes) == 0;
    });
  };
  if (!left(OperandOf(product))) return "a product's operand is in registers that were not left to it";
  if (thread.sums.count(product.acc) > 0) {
    return IsPoisoned(product) ? "" : "accumulators of a product under way have been written";
  }
  return left(AccumulatorsOf(product)) ? "" : "a product's accumulators are in registers that were not left to it";
}

std::string WarpgroupProducts::Start(int first_thread, const std::vector<Product>& products) {
  const Product& first = products.front();
  for (const Product& p : products) {
    if (p.type != first.type || p.columns != first.columns || p.add != first.add || p.a_at != first.a_at ||
        p.b_at != first.b_at || p.b_by_columns != first.b_by_columns) {
      return "a product's threads differ in what they want";
    }
  }
  std::vector<float> a, b;
  auto read = std::make_shared<Elements>();
  if (first.a_registers != nullptr) {
    a.resize(64 * kDepth);
    for (int t = 0; t < kThreads; ++t) {
      const int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
      for (int e = 0; e < 8; ++e) {  // the e-th element of the fragment, as the ISA counts them
        const uint32_t word = products[static_cast<size_t>(t)].a_registers[e / 2];
        a[static_cast<size_t>((row + e / 2 % 2 * 8) * kDepth + column + e / 4 * 8 + e % 2)] =
            ValueOf(first.type, static_cast<uint16_t>(word >> e % 2 * 16));
      }
    }
  } else if (std::string wrong = Read(first.a_at, false, 64, first.type, a, *read); !wrong.empty()) {
    return wrong;
  }
  std::string wrong = Read(first.b_at, first.b_by_columns, first.columns, first.type, b, *read);
  if (!wrong.empty()) return wrong;
  for (int t = 0; t < kThreads; ++t) {
    Thread& thread = threads_[static_cast<size_t>(first_thread + t)];
    const Product& product = products[static_cast<size_t>(t)];
    wrong = CheckRegisters(thread, product);
    if (!wrong.empty()) return wrong;
    const size_t n = static_cast<size_t>(product.columns) / 2;
    std::vector<float>& sums = thread.sums.try_emplace(product.acc, product.acc, product.acc + n).first->second;
    for (size_t e = 0; e < n; ++e) {
      const size_t row = static_cast<size_t>(t / 32 * 16 + t % 32 / 4) + e / 2 % 2 * 8;
      const size_t column = e / 4 * 8 + static_cast<size_t>(t % 4 * 2) + e % 2;
      float sum = product.add ? sums[e] : 0.0f;
      for (int k = 0; k < kDepth; ++k)
        sum += a[row * kDepth + static_cast<size_t>(k)] * b[column * kDepth + static_cast<size_t>(k)];
      sums[e] = sum;
      std::memcpy(product.acc + e, &kPoison, sizeof(float));
    }
    Flight flight = {product, {}, read, thread.groups};
    if (product.a_registers != nullptr) std::copy_n(product.a_registers, 4, flight.a);
    thread.flights.push_back(flight);
  }
  return "";
}

std::string WarpgroupProducts::CheckUntouched(int thread, const Flight& flight) const {
  for (const auto& [at, bits] : *flight.read) {
    if (thread % 32 != 0) break;  // once a warp
    if (std::memcmp(shared_ + at, &bits, sizeof(bits)) != 0) {
      return absl::StrCat("shared memory at ", at, " has changed under a product");
    }
  }
  if (!IsPoisoned(flight.product)) return "accumulators of a product under way have been written";
  const uint32_t* const a = flight.product.a_registers;
  if (a != nullptr && !std::equal(a, a + 4, flight.a)) return "operands of a product under way have been written";
  return "";
}

std::string WarpgroupProducts::Wait(int thread, int64_t pending, const std::vector<Registers>& named) {
  Thread& own = threads_[static_cast<size_t>(thread)];
  const auto is_named = [&](const Registers& registers) {
    return registers.bytes == 0 ||
           std::any_of(named.begin(), named.end(), [&](const Registers& r) { return Within(registers, r); });
  };
  const auto done = std::stable_partition(own.flights.begin(), own.flights.end(),
                                          [&](const Flight& flight) { return flight.group < own.groups - pending; });
  for (auto flight = own.flights.begin(); flight != done; ++flight) {
    std::string wrong = CheckUntouched(thread, *flight);
    if (!wrong.empty()) return wrong;
    if (!is_named(AccumulatorsOf(flight->product)) || !is_named(OperandOf(flight->product))) {
      return "a wait does not name the registers of a product that it ends";
    }
  }
  std::vector<float*> accumulators;
  for (auto flight = own.flights.begin(); flight != done; ++flight) accumulators.push_back(flight->product.acc);
  own.flights.erase(own.flights.begin(), done);
  for (float* const acc : accumulators) {
    const auto goes_on = [&](const Flight& flight) { return flight.product.acc == acc; };
    const auto sums = own.sums.find(acc);
    if (sums == own.sums.end() || std::any_of(own.flights.begin(), own.flights.end(), goes_on)) continue;
    std::copy(sums->second.begin(), sums->second.end(), acc);
    own.sums.erase(sums);
  }
  return "";
}

std::string WarpgroupProducts::End(int thread) const {
  return threads_[static_cast<size_t>(thread)].flights.empty() ? "" : "ends with products under way";
}

void WarpgroupProducts::Begin(int thread, const std::vector<Registers>& left) {
  std::vector<Left>& own = threads_[static_cast<size_t>(thread)].left;
  own.clear();
  for (const Registers& registers : left) {
    const auto* const data = static_cast<const std::byte*>(registers.data);
    own.push_back({registers, {data, data + registers.bytes}});
  }
}

void WarpgroupProducts::Wrote(int thread, uint32_t at, size_t bytes) {
  for (uint32_t piece = at / 16; piece * 16 < at + bytes; ++piece) {
    writers_[piece] = thread;
    threads_[static_cast<size_t>(thread)].written.push_back(piece);
  }
}

void WarpgroupProducts::FenceWrites(int thread) {
  std::vector<uint32_t>& written = threads_[static_cast<size_t>(thread)].written;
  for (const uint32_t piece : written) {
    if (writers_[piece] == thread) writers_[piece] = kNobody;
  }
  written.clear();
}

}  // namespace meshwright::cuda::testing
