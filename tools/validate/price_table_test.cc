#include "tools/validate/price_table.h"

#include <string>
#include <vector>

#include "costmodel/collective_cost.h"
#include "costmodel/kernel_cost.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Kernels of other implementations are priced as such, those that are not known are left out.
TEST(PriceTableTest, AttentionByImplementation) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("gpu_type,dtype,op,impl,batch,heads,head_dim,seq_len,causal,time_ms\n"
                                "A100,bf16,,FlashAttention-2,4,16,128,4096,yes,1\n"
                                "A100,bf16,,FlashAttention-1,4,16,128,4096,yes,1\n"
                                "A100,bf16,context attention (TRT-LLM),,4,16,128,4096,yes,1\n"
                                "A100,bf16,,a new one,4,16,128,4096,yes,1\n"
                                "A100,bf16,,xformers,4,16,128,4096,yes,1\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  const Device device = *FindDevice("a100");
  double flash2 = 0;
  for (size_t i = 0; i < 3; ++i) {
    const char* const kernels[] = {"flash2", "flash1", "trtllm"};
    for (const AttentionConstants& constants : device.attention) {
      if (constants.kernel != kernels[i]) continue;
      if (i == 0) flash2 = result.rows[i].seconds.predicted;
      EXPECT_GT(result.rows[i].seconds.predicted, i == 0 ? 0 : 1.2 * flash2) << kernels[i];
    }
  }
  EXPECT_EQ(Summarise(result).skipped.counts().at("another implementation"), 1u);
  EXPECT_EQ(Summarise(result).predicted, 4u);
}

// What a device's file does not have is as much of its FlashAttention-2 as on A100, whose xformers has 0.461 of the
// peak where FlashAttention-2 has 0.858; what A100 does not have either is priced as the kernel that there is.
TEST(PriceTableTest, KernelsThatADeviceDoesNotNameAreTakenFromA100) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,dtype,impl,batch,heads,head_dim,seq_len,time_ms\n"
                                                      "A30,bf16,sdpa efficient,1,48,128,8192,1\n"
                                                      "A30,bf16,flash2,1,48,128,8192,1\n"
                                                      "V100,fp16,xformers,1,48,128,8192,1\n"
                                                      "A30,bf16,FlashAttention-4,1,48,128,8192,1\n"
                                                      "T4,fp16,flash1,1,48,64,8192,1\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_THAT(result.rows[0].approximations, ElementsAre("attention xformers as much of flash2 as on A100"));
  // (1 + 40 / 128) / 0.461 to (1 + 21.9 / 128) / 0.858, and few keys besides.
  EXPECT_NEAR(result.rows[0].seconds.predicted / result.rows[1].seconds.predicted, 2.08, 0.04);
  EXPECT_THAT(result.rows[1].approximations, IsEmpty());
  EXPECT_THAT(result.rows[2].approximations, IsEmpty());
  EXPECT_THAT(result.rows[3].approximations, ElementsAre("attention flash4 as flash2"));
  EXPECT_EQ(result.rows[3].seconds.predicted, result.rows[1].seconds.predicted);
  EXPECT_THAT(result.rows[4].approximations, ElementsAre("attention flash1 as memory_efficient"));
}

// BLAS's matrices are by columns: the result's m is what must be aligned, not its n; with PyTorch's it is n.
TEST(PriceTableTest, SizesOfBlasAreOfColumns) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,dtype,impl,m,n,k,time_ms\n"
                                                      "A100,fp16,cublasLt,4096,4095,4096,1\n"
                                                      "A100,fp16,torch.matmul,4095,4096,4096,1\n"
                                                      "A100,fp16,torch.matmul,4096,4095,4096,1\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_EQ(result.rows[0].seconds.predicted, result.rows[1].seconds.predicted);
  EXPECT_GT(result.rows[2].seconds.predicted, 1.3 * result.rows[0].seconds.predicted);
}

// Empty cells are filled and named; a type that the device lacks, and sizes that no device holds, cost their row.
TEST(PriceTableTest, WhatIsTakenAndWhatCannotBe) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,dtype,m,n,k,batch,heads,head_dim,seq_len,time_ms\n"
                                                      "A100,,512,512,512,,,,,1\n"
                                                      "V100,,512,512,512,,,,,1\n"
                                                      "A100,,,,,4,16,128,4096,1\n"
                                                      "V100,bf16,512,512,512,,,,,1\n"
                                                      "A100,fp8,512,512,512,,,,,1\n"
                                                      "A100,bf16,99999999999,99999999999,99999999999,,,,,1\n"
                                                      "A100,bf16,,,,99999,99999,99999,99999999,1\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_EQ(result.rows[0].defaults, (std::vector<std::string>{"dtype bfloat16"}));
  EXPECT_EQ(result.rows[1].defaults, (std::vector<std::string>{"dtype float16"}));
  EXPECT_EQ(result.rows[2].defaults,
            (std::vector<std::string>{"dtype bfloat16", "impl flash2", "causal no", "pass forward"}));
  EXPECT_EQ(result.rows[3].skipped, "the device has no such type: bfloat16 on v100-sxm-32gb");
  EXPECT_EQ(result.rows[4].skipped, "the device has no such type: float8 on a100-sxm-80gb");
  EXPECT_THAT(result.rows[5].skipped, HasSubstr("more elements than any device holds: 3e+22"));
  EXPECT_THAT(result.rows[6].skipped, HasSubstr("more elements than any device holds"));
  const std::string text = ToText(result, true);
  EXPECT_THAT(text, HasSubstr("; taken: dtype bfloat16, impl flash2, causal no, pass forward\n"));
  EXPECT_THAT(text, HasSubstr("taken 1 causal no; 2 dtype bfloat16;"));
  EXPECT_THAT(text, HasSubstr("skipped 2 more elements than any device holds: "));
}

// V100's general cores leave it more of its clock, 0.955: 8192 cubed takes 1.0995e12 operations at 0.96 x 0.955 of
// 15.7 TFLOP/s, 76.4 ms, which is what it was measured with, 14.4 TFLOP/s. Its matrix units are held to 0.9 of
// 125 x 0.9 TFLOP/s, 10.9 ms, and the tiles' ends besides.
TEST(PriceTableTest, GeneralCoresDrawLessThanMatrixUnits) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,dtype,m,n,k,time_ms\n"
                                                      "V100,fp32,8192,8192,8192,1\n"
                                                      "V100,fp16,8192,8192,8192,1\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_NEAR(result.rows[0].seconds.predicted, 76.4e-3, 0.8e-3);
  EXPECT_NEAR(result.rows[1].seconds.predicted, 11.3e-3, 0.5e-3);
}

// PyTorch's attention adds the mask by a kernel: 8 bytes for each of 64 x 4096^2 scores, 8.6 GB at 1.71 TB/s, 5 ms;
// what is masked is computed all the same.
TEST(PriceTableTest, AMaskIsAKernelOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("gpu_type,dtype,pass,impl,batch,heads,head_dim,seq_len,causal,time_ms\n"
                                "A100,bf16,fwd,PyTorch,4,16,128,4096,yes,1\n"
                                "A100,bf16,fwd,PyTorch,4,16,128,4096,no,1\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_NEAR(result.rows[0].seconds.predicted - result.rows[1].seconds.predicted, 5.0e-3, 0.1e-3);
}

// Three layers cost more than two; a layer that runs its forward pass again costs about a third more.
TEST(PriceTableTest, Layers) {
  ASSERT_OK_AND_ASSIGN(
      const CsvTable table,
      ParseCsv(
          "model,layers,hidden,heads,seq_len,micro_batch_seqs,tp,gpu_type,dtype,seq_parallel,recompute,combined_ms\n"
          "GPT,1,6144,64,2048,4,8,A100,fp16,no,none,19.6\n"
          "GPT,1,6144,64,2048,4,8,A100,fp16,no,full,27.2\n"
          "GPT,1,6144,64,2048,4,8,A100,fp16,no,none,\n",
          "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  const double none = result.rows[0].seconds.predicted, full = result.rows[1].seconds.predicted;
  EXPECT_NEAR(none, 19.6e-3, 3e-3);
  EXPECT_GT(full, 1.25 * none);
  EXPECT_LT(full, 1.5 * none);
  EXPECT_THAT(result.rows[2].skipped, HasSubstr("neither a product nor attention"));
}

// 2 x 4096^3 operations at 200 TFLOP/s are 687 us.
TEST(PriceTableTest, ProductsByTimeOrRate) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,dtype,m,n,k,time_ms,tflops,extra\n"
                                                      "A100,bfloat16,4096,4096,4096,0.5,,x\n"
                                                      "A100,bfloat16,4096,4096,4096,,200,x\n"
                                                      "A100,bfloat16,4096,4096,4096,,,x\n"
                                                      "abacus,bfloat16,4096,4096,4096,1,,x\n"
                                                      "A100,bfloat16,,,,1,,x\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_DOUBLE_EQ(result.rows[0].seconds.measured, 0.0005);
  EXPECT_NEAR(result.rows[1].seconds.measured, 687.2e-6, 1e-7);
  KernelWork work;
  work.kernel = KernelClass::kContraction;
  work.dtype = DType::kBFloat16;
  work.m = work.n = work.k = 4096;
  work.read = MiB(64);
  work.written = MiB(32);
  Device device = *FindDevice("a100");
  device.kernels.sustained_clock = 1;
  EXPECT_EQ(result.rows[0].seconds.predicted, ToSeconds(PriceKernel(work, device)));
  const PriceTableSummary summary = Summarise(result);
  EXPECT_EQ(summary.predicted, 2u);
  EXPECT_EQ(summary.skipped.counts().at("no time or rate"), 1u);
  EXPECT_EQ(summary.skipped.counts().at("unknown device"), 1u);
  EXPECT_EQ(summary.skipped.counts().at("neither a product nor attention"), 1u);
  EXPECT_EQ(summary.groups.at("a100-sxm-80gb, bfloat16 products").count, 2u);
}

// Cards whose power limit binds are priced at the clock that their own loops have: 8192^3 on L4 keeps its matrix units
// busy for a share of the time at the full clock, which --sustained_clock still asks for. Where the voltage is flat, it
// goes at 0.55, the clock of units that never wait, over that share.
TEST(PriceTableTest, ProductsAtTheClockOfTheCardsLoops) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("gpu_type,dtype,m,n,k,tflops\nL4,fp16,8192,8192,8192,54\n", "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  RowOverrides full;
  full.cluster_keys["sustained_clock"] = "1";
  ASSERT_OK_AND_ASSIGN(const PriceTableResult unbound, PriceKernelTable(table, full));
  const double clock = FindDevice("l4")->kernels.loop_clock;
  EXPECT_LT(clock, 0.6);
  const double busy = 2 * 8192.0 * 8192 * 8192 / (0.959 * 121e12 * unbound.rows[0].seconds.predicted);
  EXPECT_LT(clock / busy, 0.77);
  EXPECT_NEAR(unbound.rows[0].seconds.predicted / result.rows[0].seconds.predicted, clock / busy, 0.01);
}

// Nine runs on a locked clock end before L4's limit acts.
TEST(PriceTableTest, FewRunsGoAtTheFullClock) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("source_ref,gpu_type,dtype,m,n,k,tflops\n"
                                "aiconfigurator systems/data/l4/gemm_perf.txt,L4,fp16,8192,8192,8192,90\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult few, PriceKernelTable(table, {}));
  RowOverrides full;
  full.cluster_keys["sustained_clock"] = "1";
  ASSERT_OK_AND_ASSIGN(const PriceTableResult unbound, PriceKernelTable(table, full));
  EXPECT_EQ(few.rows[0].seconds.predicted, unbound.rows[0].seconds.predicted);
}

// A profiler's time of a kernel alone is 1.8 us longer than a loop's.
TEST(PriceTableTest, KernelsTimedAloneTakeLonger) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table, ParseCsv("gpu_type,library,dtype,m,n,k,time_ms\n"
                                                      "H100,cuBLAS,bf16,512,1024,1024,0.005\n"
                                                      "H100,\"XLA, CUPTI\",bf16,512,1024,1024,0.007\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  EXPECT_NEAR(result.rows[1].seconds.predicted - result.rows[0].seconds.predicted, 1.8e-6, 1e-9);
}

TEST(PriceTableTest, AttentionForwardAndBackward) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("gpu_type,pass,dtype,causal,head_dim,heads,seq_len,batch,impl,tflops\n"
                                "A100,fwd+bwd,fp16/bf16,no,128,16,4096,4,FlashAttention-2,196\n"
                                "A100,fwd+bwd,fp16/bf16,no,128,16,4096,4,a new one,150\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(table, {}));
  // 3.5 x 4 x 4 x 16 x 4096^2 x 128 operations.
  EXPECT_NEAR(result.rows[0].seconds.measured, 3.5 * 4 * 4 * 16 * 4096.0 * 4096 * 128 / 196e12, 1e-9);
  EXPECT_NEAR(result.rows[0].seconds.Error(), 0, 0.05);  // as costmodel/published_test.cc has it
  EXPECT_THAT(result.rows[1].skipped, HasSubstr("another implementation"));
}

// Other names and units of the same columns; what cannot be read is said, with what the device has.
TEST(PriceTableTest, ColumnsUnderOtherNames) {
  ASSERT_OK_AND_ASSIGN(const CsvTable plain, ParseCsv("gpu_type,dtype,head_dim,seq_len,batch,heads,causal,time_ms\n"
                                                      "A100,bf16,128,4096,4,16,yes,0.5\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const CsvTable other, ParseCsv("Device;Precision;headdim;seqlen;Batch Size;nheads;is_causal;"
                                                      "latency (us);backend\n"
                                                      "A100;bf16;128;4096;4;16;True;500,0;FlashAttention-2\n"
                                                      "A100;bf16;128;4096;4;16;True;500,0;SageAttention\n"
                                                      "A100;bf16;128;4096;4;16;True;;FlashAttention-2\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult wanted, PriceKernelTable(plain, {}));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceKernelTable(other, {}));
  EXPECT_DOUBLE_EQ(result.rows[0].seconds.measured, wanted.rows[0].seconds.measured);
  EXPECT_GT(result.rows[0].seconds.predicted, 0.5 * wanted.rows[0].seconds.predicted);
  EXPECT_THAT(ToText(result, false), HasSubstr("sageattention; a100-sxm-80gb has"));
  EXPECT_THAT(result.rows[2].skipped, HasSubstr("no time or rate"));
  ASSERT_OK_AND_ASSIGN(const CsvTable rate, ParseCsv("gpu,dtype,m,n,k,gflops\nA100,bf16,4096,4096,4096,200000\n", "t"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult product, PriceKernelTable(rate, {}));
  EXPECT_NEAR(product.rows[0].seconds.measured, 687.2e-6, 1e-7);
}

// Windows and unknown masks are other work; a time that does not make the printed rate has another unit than it seems.
TEST(PriceTableTest, WhatWouldChangeItsMeaningIsLeftOut) {
  ASSERT_OK_AND_ASSIGN(const CsvTable masks, ParseCsv("gpu,hdim,seqlen,batch,nheads,mask,window_left,ms\n"
                                                      "A100,128,4096,4,16,causal,-1,1\n"
                                                      "A100,128,4096,4,16,causal,128,1\n"
                                                      "A100,128,4096,4,16,document,-1,1\n",
                                                      "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult attention, PriceKernelTable(masks, {}));
  EXPECT_THAT(attention.rows[0].label, HasSubstr(", causal"));
  EXPECT_EQ(attention.rows[1].skipped, "another mask: window 128");
  EXPECT_EQ(attention.rows[2].skipped, "another mask: document");
  ASSERT_OK_AND_ASSIGN(const CsvTable product, ParseCsv("gpu,M,N,K,Time (s),TFLOPS,Status\n"
                                                        "A100,4096,4096,4096,0.0005,275,success\n"
                                                        "A100,4096,4096,4096,0.5,275,success\n",
                                                        "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult products, PriceKernelTable(product, {}));
  EXPECT_DOUBLE_EQ(products.rows[0].seconds.measured, 0.0005);
  EXPECT_THAT(products.rows[1].skipped, HasSubstr("time and rate disagree: 0.2749 TFLOP/s by its time, 275 printed"));
}

TEST(PriceTableTest, CollectivesOfPartOfAMachineAndOfSeveral) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       ParseCsv("collective,gpu_type,nodes,ranks,interconnect,size_bytes,time_us\n"
                                "all_reduce,A100,1,4,NVLink,1048576,50\n"
                                "alltoall,A100,2,16,4 x 100Gb EFA,1048576,100\n"
                                "all_reduce,A100,2,16,,,100\n",
                                "t.csv"));
  ASSERT_OK_AND_ASSIGN(const PriceTableResult result, PriceCollectiveTable(table, {}));
  const GroupShape four{4, 1, 4, 1};
  EXPECT_EQ(result.rows[0].seconds.predicted,
            ToSeconds(PriceCollective(CollectiveKind::kAllReduce, MiB(1), four, *MakeCluster("a100", 1)).time));
  EXPECT_GT(result.rows[1].seconds.predicted, 0);
  EXPECT_EQ(result.rows[2].skipped, "not given: size_bytes");
  EXPECT_THAT(ToText(result, true), HasSubstr("a100-sxm-80gb, all_reduce, 1 x 4: 1 rows"));
  EXPECT_THAT(ToJson({result}, true), HasSubstr("\"predicted\": 2"));
}

}  // namespace
}  // namespace meshwright
