#include "tools/validate/price_columns.h"

#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Of { kKernels, kCollectives };

absl::StatusOr<CsvTable> Read(Of kind, const std::string& text) {
  MESHWRIGHT_ASSIGN_OR_RETURN(CsvTable table, ParseCsv(text, "t.csv"));
  return kind == Of::kKernels ? WithKernelColumns(std::move(table)) : WithCollectiveColumns(std::move(table));
}

// "m=64 n=2112": of the columns named in `like`, what `row` has.
std::string CellsLike(const CsvTable& table, const std::string& like, size_t row = 0) {
  std::string found;
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(like, ' '))) {
    const std::string column = pair.substr(0, pair.find('='));
    absl::StrAppend(&found, found.empty() ? "" : " ", column, "=", CsvCells(table, table.rows[row]).Text(column));
  }
  return found;
}

struct Case {
  const char* source;
  const char* text;
  const char* cells;  // of the first row
};

// Headers as their sources print them, with a row as they would.
constexpr Case kKernels[] = {
    {"TileOPs pull 2148", "\"Shape (B,M,N,K)\",dtype,torch-cublas (ms)\n\"(8, 128, 256, 64)\",float16,0.0032\n",
     "batch=8 m=128 n=256 k=64 time_ms=0.0032"},
    {"The same with the batch behind",
     "\"Shape (M,N,K,Batch)\",dtype,torch-cublas (ms)\n\"(128, 256, 64, 8)\",float16,0.0032\n",
     "batch=8 m=128 n=256 k=64 time_ms=0.0032"},
    {"CUTLASS profiler (media/docs/profiler.md)",
     "Problem,Provider,Operation,Status,gemm_kind,m,n,k,A,B,C,D,batch_count,cta_m,cta_n,cta_k,inst_m,Bytes,Flops,"
     "Flops/Byte,Runtime,GB/s,GFLOPs\n1,CUTLASS,x,success,universal,4352,4096,4096,f16:column,f16:row,f32:column,"
     "f32:column,1,256,128,64,16,209715200,146064539648,696,0.5,391,292129\n",
     "m=4352 n=4096 k=4096 dtype=f16:column tflops=292.129 time_ms= status=success"},
    {"NVIDIA/cudnn-frontend sdpa_benchmark_training, both passes of a row",
     "config_name,backend,data_type,attn_mask,batch_size,q_seqlen,kv_seqlen,num_q_heads,num_kv_heads,head_dim_qk,"
     "head_dim_vo,profile_pass,deterministic_bwd,fwd_time_ms,bwd_time_ms,fwd_tflops,bwd_tflops,gpu_name\n"
     "dsv3,cudnn,bfloat16,top_left,1,32768,32768,128,128,192,128,both,False,25.566,75.688,688,581,NVIDIA H200\n",
     "pass=forward time_ms=25.566 tflops=688 head_dim=192 head_dim_v=128 heads=128 kv_len=32768 causal=top_left "
     "deterministic=False"},
    {"CUTLASS profiler of 2019",
     "Problem,problem-size::m,problem-size::n,problem-size::k,A,cta-tile::m,warp-tile::k,Runtime,GFLOPs\n"
     "1,4096,2048,1024,bf16:row,128,32,1.0,137438\n",
     "m=4096 n=2048 k=1024 dtype=bf16:row tflops=137.438"},
    {"DeepBench, with the lines before its header",
     "      Running training benchmark\n             Times\n-------------------\n"
     "    m       n      k      a_t     b_t      precision  time (usec)\n"
     "   1760     16   1764      0      0        float          180\n",
     "m=1760 n=16 k=1764 dtype=float time_ms=0.18"},
    {"rocblas-bench, which checks on the host",
     "transA,M,N,K,lda,rocblas-Gflops,us,CPU-Gflops,us\nN,1,2,3,4,5000,6,7,8\n", "m=1 n=2 k=3 tflops=5 time_ms=0.006"},
    {"DeepGEMM's README",
     "|  M   |   N   |   K   | Computation | Memory bandwidth | Speedup |\n|:--:|:--:|:--:|:--:|:--:|:--:|\n"
     "|  64  | 2112  | 7168  | 206 TFLOPS  |    1688 GB/s     |  2.7x   |\n",
     "m=64 n=2112 k=7168 tflops=206"},
    {"Triton's tutorial: cuBLAS is what is priced",
     "         M       N       K  cuBLAS (TFLOPS)  Triton (TFLOPS)\n0    4096.0   4096.0   4096.0   238.4     228.3\n",
     "m=4096.0 tflops=238.4"},
    {"a CUDA course",
     "Shape,cuBLAS ms,v2 ms,v2 % cuBLAS,v2 GFLOP/s,cuBLAS GFLOP/s,v2 OK\n512x512x512,0.03,0.06,50,4592,9175,PASS\n",
     "m=512 n=512 k=512 time_ms=0.03 tflops=9.175"},
    {"a comparison with a CPU",
     "| Matrix Size | CPU Avg (ms) | GPU Avg (ms) | CPU GFLOPS | GPU GFLOPS |\n|--|--|--|--|--|\n"
     "| 1024² | 39.62 | 0.575 | 54.2 | **3734.10** |\n",
     "m=1024 k=1024 time_ms=0.575 tflops=3.7341"},
    {"a README: the library's rate before another's time",
     "| M=N=K | custom ms | custom TFLOPS | cuBLAS TFLOPS |\n|--|--|--|--|\n| 512 | 0.06 | 4.3 | 18.31 |\n",
     "m=512 n=512 k=512 time_ms= tflops=18.31"},
    {"cubes",
     "| Shape (M \xC3\x97 N \xC3\x97 K) | cuBLAS TFLOPS | 1SM TFLOPS |\n|--|--|--|\n| 4096\xC2\xB3 | 1532 | 1194 |\n",
     "m=4096 n=4096 k=4096 tflops=1532"},
    {"orders spelled out", "GEMM (MxKxN),Time (s)\n64x32x16,2e-6\n", "m=64 n=16 k=32 time_ms=0.002"},
    {"a Triton benchmark",
     "gpu,driver,M,N,K,dtype,median_us,p20_us,p80_us,tflops,compile_ms\nH100,550,1,2,3,fp16,220.5,1,9,623,5\n",
     "gpu_type=H100 m=1 dtype=fp16 time_ms=0.2205 tflops=623"},
    {"cuDNN frontend: two rows",
     "batch_size,q_seqlen,kv_seqlen,num_q_heads,num_kv_heads,head_dim,is_causal,backend,forward_time,backward_time,"
     "fwd_tflops_per_sec,bwd_tflops_per_sec\n1,8192,4096,128,8,64,True,pyt_cudnn,5.1,14.2,430,386\n",
     "batch=1 seq_len=8192 kv_len=4096 heads=128 kv_heads=8 head_dim=64 causal=True impl=pyt_cudnn pass=forward "
     "tflops=430"},
    {"nvbench",
     "| num_seqs | seq_len | num_heads | num_kv_heads | head_size | window_left | causal | CPU Time | Noise | "
     "GPU Time | Batch GPU |\n|--|--|--|--|--|--|--|--|--|--|--|\n| 8 | 4K | 32 | 8 | 128 | 128 | 0 | 3.07 ms | 5 % | "
     "3059 us | "
     "3 ms |\n",
     "batch=8 seq_len=4096 heads=32 kv_heads=8 head_dim=128 window=128 causal=0 time_ms=3.059"},
    {"a README",
     "| Batch | Heads | Sequence | Head dim | Latency (\xC2\xB5s) |\n|--|--|--|--|--|\n| 1 | 32 | 4,096 | `128` | 410 "
     "|\n",
     "batch=1 heads=32 seq_len=4,096 head_dim=128 time_ms=0.41"},
};

constexpr Case kCollectives[] = {
    {"nccl-tests by a script: out of place",
     "operation,gpus,size,count,type,redop,oop_time,oop_algbw,oop_busbw,ip_time,ip_algbw,ip_busbw\n"
     "all_reduce,4,1048576,262144,float,sum,31.50,33.29,49.9,31.20,33.61,50.4\n",
     "collective=all_reduce ranks=4 size_bytes=1048576 dtype=float time_us=31.50 algbw_gbps=33.29 busbw_gbps=49.9"},
    {"OSU",
     "# OSU MPI-CUDA Allreduce Latency Test v7.5\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)   Min "
     "Latency(us)\n"
     "1048576                 58.48    50.1\n",
     "size_bytes=1048576 time_us=58.48"},
    {"PARAM",
     "\tCOMMS-RES\tsize (B)\t num-elements\t Latency(us):p50\tp75\t algBW(GB/s)\t "
     "busBW(GB/s)\n\tx\t1048576\t2\t58.1\t59\t18\t31.6\n",
     "size_bytes=1048576 count=2 time_us=58.1 algbw_gbps=18 busbw_gbps=31.6"},
    {"MSCCL++: NCCL is what is priced",
     "+---+---+\n| Size (fp16) | Time (us) | AlgBW (GB/s) | NCCL Time (us) | NCCL AlgBW (GB/s) | Speed Up "
     "|\n+---+---+\n"
     "| 1.0 MiB | 20.1 | 52.2 | 31.5 | 33.29 | 1.57 |\n",
     "size_bytes=1048576 time_us=31.5 algbw_gbps=33.29"},
    {"IBM's benchmarks: 0.1 MB are no power of two",
     " size(MB)   tavg(usec)    tmin(usec)  avgbw(GB/sec)\n0.10      227.7     196.8    0.77\n",
     "size_bytes=100000 time_us=227.7"},
    {"a README", "| Message size | busbw (GB/s) |\n|--|--|\n| 16 GiB | **377** |\n",
     "size_bytes=17179869184 busbw_gbps=377"},
    {"a README",
     "| GPUs | Size (MB) | Time (ms) | Peak Bus Bandwidth (GB/s) |\n|--|--|--|--|\n| 8 | 64 | 42.9 | 99 |\n",
     "ranks=8 size_bytes=67108864 time_us=42900 busbw_gbps="},
    {"bits",
     "Size (Bytes)  Description  Duration  Throughput (Gbps)  BusBW (Gbps)\n1048576  4x262144  31.5 us  266.3  400\n",
     "size_bytes=1048576 time_us=31.5 busbw_gbps=50"},
    {"a script", "op,msg_bytes,world_size,lat_ms,wire_bytes_per_rank\nall_gather,1024,8,0.02,9\n",
     "collective=all_gather size_bytes=1024 ranks=8 time_us=20"},
    {"seconds", "kind,size_bytes,world,sec_per_iter\nall_reduce,1024,8,0.00002\n",
     "collective=all_reduce ranks=8 time_us=20"},
    {"DeepEP: no bus, no size",
     "| Type | Dispatch #EP | Bottleneck bandwidth |\n|--|--|--|\n| Intranode | 8 | 153 GB/s (NVLink) |\n",
     "size_bytes= algbw_gbps= busbw_gbps= ranks="},
    {"one rank's bytes are not the call's", "collective,bytes_per_rank,median_us,p95_us\nall_gather,1024,31.5,33\n",
     "size_bytes= time_us=31.5"},
    {"devices", "GPU,#Nodes,GPUs per node,size,time\nH100,2,8,1024,20\n", "gpu_type=H100 ranks=16 time_us=20"},
    {"devices", "System,size,time [ms]\n8xH100,1 KiB,0.02\n", "gpu_type=8xH100 ranks=8 size_bytes=1024 time_us=20"},
};

TEST(PriceColumnsTest, HeadersOfOthers) {
  for (const Case& c : kKernels) {
    ASSERT_OK_AND_ASSIGN(const CsvTable table, Read(Of::kKernels, c.text));
    EXPECT_EQ(CellsLike(table, c.cells), c.cells) << c.source;
  }
  for (const Case& c : kCollectives) {
    ASSERT_OK_AND_ASSIGN(const CsvTable table, Read(Of::kCollectives, c.text));
    EXPECT_EQ(CellsLike(table, c.cells), c.cells) << c.source;
  }
}

TEST(PriceColumnsTest, PassesSideBySideAreRows) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       Read(Of::kKernels, "hdim,fwd_ms,bwd_ms,fwd_tflops\n128,1,2.5,400\n64,,3,\n64,,,\n"));
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(CellsLike(table, "pass= time_ms= tflops="), "pass=forward time_ms=1 tflops=400");
  EXPECT_EQ(CellsLike(table, "pass= time_ms= tflops=", 1), "pass=backward time_ms=2.5 tflops=");
  EXPECT_EQ(CellsLike(table, "pass= time_ms= head_dim=", 2), "pass=backward time_ms=3 head_dim=64");
  EXPECT_EQ(CellsLike(table, "pass= time_ms= head_dim=", 3), "pass= time_ms= head_dim=64");
  // A layer has both in one row.
  ASSERT_OK_AND_ASSIGN(const CsvTable layer, Read(Of::kKernels, "model,fwd_ms,bwd_ms\nGPT,1,2.5\n"));
  EXPECT_EQ(CellsLike(layer, "fwd_ms=1 bwd_ms=2.5"), "fwd_ms=1 bwd_ms=2.5");
}

TEST(PriceColumnsTest, SaysWhatWasRead) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       Read(Of::kCollectives, "collective,Message Size (KiB),Price\nall_reduce,1,2\n"));
  EXPECT_THAT(table.remarks, ElementsAre("columns: \"message size (kib)\" as size_bytes", "not read: \"price\""));
  ASSERT_OK_AND_ASSIGN(const CsvTable known, Read(Of::kKernels, "m,n,k,time_ms,latency (us)\n1,1,1,1,9\n"));
  EXPECT_EQ(CellsLike(known, "time_ms=1"), "time_ms=1");
  EXPECT_THAT(known.remarks, ElementsAre("not read: \"latency (us)\""));
  // Where a row was published is no figure that went unread.
  ASSERT_OK_AND_ASSIGN(const CsvTable kernels, Read(Of::kKernels, "source,m,n,k,time_ms\na page,1,1,1,1\n"));
  EXPECT_THAT(kernels.remarks, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const CsvTable calls,
                       Read(Of::kCollectives, "source,collective,size_bytes,time_us\na page,all_reduce,1024,9\n"));
  EXPECT_THAT(calls.remarks, IsEmpty());
}

// Where nothing tells which column counts, or its unit, none is guessed.
TEST(PriceColumnsTest, WhatCannotBeToldIsAnError) {
  const auto message = [](Of kind, const std::string& text) {
    const auto read = Read(kind, text);
    return read.ok() ? "" : std::string(read.status().message());
  };
  EXPECT_EQ(
      message(Of::kKernels, "M,N,K,v1 ms,v2 ms\n1,2,3,4,5\n"),
      "t.csv:1:13: found \"v2 ms\" beside \"v1 ms\", wanted one column of time_ms; name the one that counts so, or "
      "leave the others out");
  EXPECT_THAT(message(Of::kKernels, "# on H100\nM,N,K,runtime\n1,2,3,4\n"),
              HasSubstr("t.csv:2:7: found \"runtime\" without a unit, wanted one in the name or in the cells"));
  EXPECT_EQ(message(Of::kKernels, "M,N,K,runtime\n1,2,3,4 ms\n"), "");
  EXPECT_EQ(message(Of::kKernels, "M,N,K,v1 ms,v2 ms,median ms\n1,2,3,4,5,6\n"), "");
  ASSERT_OK_AND_ASSIGN(const CsvTable mixed, Read(Of::kKernels, "M,N,K,runtime\n1,2,3,4 ms\n1,2,3,4\n"));
  EXPECT_FALSE(CsvCells(mixed, mixed.rows[1]).Number("time_ms").ok());
  ASSERT_OK_AND_ASSIGN(const CsvTable shape, Read(Of::kKernels, "Shape,ms\n64x32x16,1\n64x64,1\n"));
  for (const CsvRow& row : shape.rows) {
    EXPECT_THAT(std::string(CsvCells(shape, row).Int("m", 1).status().message()),
                HasSubstr("does not say the order of m"));
  }
}

// Columns of several implementations of attention are a row each, with their passes; others choose by library.
TEST(PriceColumnsTest, ColumnsOfImplementations) {
  ASSERT_OK_AND_ASSIGN(const CsvTable table,
                       Read(Of::kKernels,
                            "Seq,Heads,Head Dim,fwd_cudnn (us),bwd_cudnn (us),Flash2 fwd (us),Math (us)\n"
                            "4096,32,64,836,1900,799,5000\n"));
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(CellsLike(table, "impl= pass= time_ms=", 0), "impl=cudnn pass=forward time_ms=0.836");
  EXPECT_EQ(CellsLike(table, "impl= pass= time_ms=", 1), "impl=cudnn pass=backward time_ms=1.9");
  EXPECT_EQ(CellsLike(table, "impl= pass= time_ms=", 2), "impl=flash2 pass=forward time_ms=0.799");
  EXPECT_EQ(CellsLike(table, "impl= pass= time_ms=", 3), "impl=pytorch pass= time_ms=5");
}

// Names and cells made of any words: something comes out, a cell for each column in every row.
TEST(PriceColumnsTest, AnyWords) {
  constexpr absl::string_view kWords[] = {"m",      "n",    "k",    "shape", "time", "(us)",    "fwd", "bwd",
                                          "tflops", "4096", "size", "GB/s",  "nccl", "gpu",     "8x",  "MiB",
                                          "head",   "dim",  "mask", "1,024", "-",    "busbw",   "0.1", "\xff",
                                          "\"",     "  ",   "#",    "Gbps",  "bf16", "64x64x64"};
  std::minstd_rand random(1);
  const auto words = [&random, &kWords] {
    std::string text;
    for (size_t n = random() % 4; n > 0; --n) absl::StrAppend(&text, kWords[random() % std::size(kWords)], " ");
    return text;
  };
  constexpr char kSeparators[] = {',', ';', '|', ' '};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    const std::string separator(1 + (i % 4 == 3), kSeparators[i % 4]);
    for (int cell = 0; cell < 20; ++cell) absl::StrAppend(&text, words(), cell % 5 == 4 ? "\n" : separator);
    for (const Of kind : {Of::kKernels, Of::kCollectives}) {
      const auto table = Read(kind, text);
      if (!table.ok()) continue;
      for (const CsvRow& row : table->rows) ASSERT_EQ(row.cells.size(), table->columns.size()) << text;
    }
  }
}

}  // namespace
}  // namespace meshwright
