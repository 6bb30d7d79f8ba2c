// What nvcc has made of the kernels for Hopper: how many products, and that exponentials stand between the waits for
// them. An assembler that moves a wait ahead of them makes a kernel that is right and half as fast.
//
// Instructions are told by the lowest 12 bits of their 16 bytes, as nvcc 13.0 writes them for 9.0a; there is no
// document of them. MUFU, STL, LDL are in every disassembly, the others were found by their number and place.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace meshwright::cuda {
namespace {

enum Code : uint32_t {
  kProduct = 0x9f0,  // HGMMA, both operands in shared memory
  kProductOfRegisters = 0xdf0,
  kWarpgroup = 0x9c5,  // WARPGROUP.ARRIVE, and .DEPBAR: a wait
  kRegisters = 0x9c8,  // USETMAXREG
  kFunction = 0x308,   // MUFU: among them the exponentials
  kSpill = 0x387,
  kReload = 0x983,  // STL, LDL
};
struct Instruction {
  uint32_t code, operand;
  bool waits() const { return code == kWarpgroup && (operand & 0x8000u) != 0; }
};

// The instructions of the one kernel whose name contains all of `parts`.
std::vector<Instruction> CodeOf(std::initializer_list<std::string> parts) {
  std::ifstream file("executor/cuda/kernels/hopper_code.cubin", std::ios::binary);
  const std::string image(std::istreambuf_iterator<char>(file), {});
  std::vector<Instruction> code;
  if (image.size() < sizeof(Elf64_Ehdr)) return code;
  const auto read = [&](auto& to, size_t at) { std::memcpy(&to, image.data() + at, sizeof(to)); };
  Elf64_Ehdr header;
  read(header, 0);
  const auto section = [&](size_t i) {
    Elf64_Shdr s;
    read(s, header.e_shoff + i * header.e_shentsize);
    return s;
  };
  const size_t names = section(header.e_shstrndx).sh_offset;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    const std::string name = image.c_str() + names + s.sh_name;
    if (!absl::StartsWith(name, ".text.")) continue;
    if (!std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return absl::StrContains(name, p); })) continue;
    EXPECT_TRUE(code.empty()) << name << " is a second one";
    for (size_t at = s.sh_offset; at < s.sh_offset + s.sh_size; at += 16) {
      uint64_t low;
      read(low, at);
      code.push_back({static_cast<uint32_t>(low & 0xfff), static_cast<uint32_t>(low >> 32)});
    }
  }
  return code;
}

std::vector<Instruction> CodeOf(const std::string& body, int width) {
  return CodeOf({absl::StrCat(body, "OfI"), absl::StrCat("ELi", width, "E"), "ElemE3"});  // bfloat16
}

int64_t Count(const std::vector<Instruction>& code, uint32_t which) {
  return std::count_if(code.begin(), code.end(), [&](const Instruction& i) { return i.code == which; });
}

// Between the two waits behind the first product of `kind`.
int64_t FunctionsBetweenWaits(const std::vector<Instruction>& code, uint32_t kind) {
  const auto waits = [](const Instruction& i) { return i.waits(); };
  const auto product = std::find_if(code.begin(), code.end(), [&](const Instruction& i) { return i.code == kind; });
  const auto first = std::find_if(product, code.end(), waits);
  if (first == code.end()) return -1;
  const auto second = std::find_if(first + 1, code.end(), waits);
  return std::count_if(first, second, [](const Instruction& i) { return i.code == kFunction; });
}

struct Wanted {
  const char* body;
  int width;
  int64_t products, of_registers, waits;
  uint32_t overlapped;  // behind these products exponentials stand between two waits
  int64_t exponentials;
};
// Products of 64 x N x 16: of each tile width / 16 for scores, twice that with dy v^T, and a sixteenth of its rows for
// what is summed. The forward pass has the first scores and the last values outside of its loop.
constexpr Wanted kWanted[] = {
    {"HopperForward", 64, 2 * 4, 2 * 8, 4, kProductOfRegisters, 64},
    {"HopperForward", 128, 2 * 8, 2 * 8, 4, kProductOfRegisters, 64},
    {"HopperQueryGradient", 64, 2 * 4, 8, 3, kProduct, 64},
    {"HopperQueryGradient", 128, 2 * 8, 4, 3, kProduct, 32},
    {"HopperKeyGradient", 64, 2 * 4, 2 * 4, 3, 0, 0},
    {"HopperKeyGradient", 128, 2 * 8, 2 * 4, 3, 0, 0},
};

TEST(MachineCodeTest, ProductsRunBesideExponentialsAndNothingIsSpilled) {
  for (const Wanted& want : kWanted) {
    SCOPED_TRACE(absl::StrCat(want.body, ", heads of ", want.width));
    const std::vector<Instruction> code = CodeOf(want.body, want.width);
    ASSERT_FALSE(code.empty());
    EXPECT_EQ(Count(code, kProduct), want.products);
    EXPECT_EQ(Count(code, kProductOfRegisters), want.of_registers);
    EXPECT_EQ(std::count_if(code.begin(), code.end(), [](const Instruction& i) { return i.waits(); }), want.waits)
        << "more of them where the assembler runs products one after the other";
    EXPECT_EQ(Count(code, kRegisters), 2);
    EXPECT_EQ(Count(code, kSpill) + Count(code, kReload), 0);
    if (want.overlapped != 0) {
      EXPECT_GE(FunctionsBetweenWaits(code, want.overlapped), want.exponentials);
    }
  }
}

}  // namespace
}  // namespace meshwright::cuda
