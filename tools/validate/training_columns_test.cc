#include "tools/validate/training_columns.h"

#include <iterator>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"
#include "tools/validate/csv.h"

namespace meshwright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CsvTable Read(const std::string& text) {
  const auto table = ParseCsv(text, "t.csv");
  EXPECT_OK(table);
  return WithTrainingColumns(*table);
}
std::string Cell(const CsvTable& table, const std::string& column, size_t row = 0) {
  return CsvCells(table, table.rows[row]).Text(column);
}
// The cell of `known` where a table has one column, of one cell.
std::string CellOf(const std::string& column, const std::string& cell, const std::string& known) {
  return Cell(Read(absl::StrCat("\"", column, "\"\n\"", cell, "\"\n")), known);
}

TEST(TrainingColumnsTest, KnownNamesStay) {
  const CsvTable table = Read("model,gpus,seq_len,tokens_per_s_total,notes,source_ref\nLlama 2 7B,8,2048,100,x,y\n");
  EXPECT_THAT(table.remarks, IsEmpty());
  EXPECT_THAT(table.columns, ElementsAre("model", "gpus", "seq_len", "tokens_per_s_total", "notes", "source_ref"));
  EXPECT_EQ(Cell(table, "gpus"), "8");
}

TEST(TrainingColumnsTest, WhereARowIsFrom) {
  EXPECT_EQ(CellOf("source", "nanotron/old_bench", "source_ref"), "nanotron/old_bench");
  EXPECT_EQ(CellOf("data source", "C4", "source_ref"), "");
}

TEST(TrainingColumnsTest, Rates) {
  EXPECT_EQ(CellOf("Tokens/sec/GPU", "12,040", "tokens_per_s_per_gpu"), "12,040");
  EXPECT_EQ(CellOf("TGS", "3323", "tokens_per_s_per_gpu"), "3323");
  EXPECT_EQ(CellOf("Model TFLOP/s/device", "508.3", "tflops_per_gpu"), "508.3");
  EXPECT_EQ(CellOf("MFU (%)", "57.0 %", "mfu_pct"), "57");
  EXPECT_EQ(CellOf("mfu", "0.57", "mfu_pct"), "57");
  EXPECT_EQ(CellOf("sequences/s", "146.0", "samples_per_s"), "146.0");
  EXPECT_EQ(CellOf("samples per second per gpu", "2.5e3", "samples_per_s_per_gpu"), "2.5e3");
  EXPECT_EQ(CellOf("Time per Global Step (s)", "15.6", "step_time_s"), "15.6");
  EXPECT_EQ(CellOf("iteration time (ms)", "250", "step_time_s"), "0.25");
  EXPECT_EQ(CellOf("train_step_timing in s", "45.8", "step_time_s"), "45.8");
  EXPECT_EQ(CellOf("s/it", "4", "step_time_s"), "4");
  EXPECT_EQ(CellOf("it/s", "4", "step_time_s"), "0.25");
  EXPECT_EQ(CellOf("steps per second", "4", "step_time_s"), "0.25");
}

// Units and other devices' words in a name are no batch, no number of devices and no time of a step.
TEST(TrainingColumnsTest, NamesThatAreOfSomethingElse) {
  const CsvTable table = Read("HBM (GB),NICs per node,Global Batch Size\n80,8,1024\n");
  EXPECT_EQ(Cell(table, "global_batch_seqs"), "1024");
  EXPECT_EQ(Cell(table, "nodes"), "");
  for (const char* name : {"NVLink (GB/s)", "Network BW (GB/s)", "Max allocated (GB)"}) {
    EXPECT_EQ(CellOf(name, "80", "global_batch_seqs"), "") << name;
  }
  for (const char* name : {"GPU Util (%)", "GPU clock (MHz)", "GPU temp (C)", "GPU days"}) {
    EXPECT_EQ(CellOf(name, "98", "gpus"), "") << name;
  }
  for (const char* name : {"Memory usage (%)", "Activation memory (GB)", "System memory (GB)"}) {
    EXPECT_EQ(CellOf(name, "60", "peak_mem_gb"), "") << name;
  }
  EXPECT_EQ(CellOf("Optimizer step (ms)", "60", "step_time_s"), "");
  EXPECT_EQ(CellOf("tokens/day/GPU", "1e9", "tokens_per_s_per_gpu"), "");
  EXPECT_EQ(CellOf("TFLOPS/node", "3200", "tflops_per_gpu"), "");
  EXPECT_EQ(CellOf("MLP hidden size", "11008", "ffn"), "11008");
  EXPECT_EQ(CellOf("WPS/GPU", "4000", "tokens_per_s_per_gpu"), "4000");
  EXPECT_EQ(CellOf("Iterations/s", "4", "step_time_s"), "0.25");
}

TEST(TrainingColumnsTest, MultiplesInTheName) {
  EXPECT_EQ(CellOf("Throughput (K tok/s/GPU)", "8.1", "tokens_per_s_per_gpu"), "8100");
  EXPECT_EQ(CellOf("Tokens/s/GPU (thousands)", "8.1", "tokens_per_s_per_gpu"), "8100");
  EXPECT_EQ(CellOf("Params (M)", "6700", "params_b"), "6.7");
  EXPECT_EQ(CellOf("Params (B)", "7", "params_b"), "7");
  EXPECT_EQ(CellOf("Seq len (K)", "4", "seq_len"), "4096");
  EXPECT_EQ(CellOf("Seq len (K)", "4k", "seq_len"), "4096");
  // Bytes, as torch.cuda.max_memory_allocated has them.
  EXPECT_EQ(CellOf("max memory allocated", "53687091200", "peak_mem_gb"), "50");
}

TEST(TrainingColumnsTest, SeveralCountsInOneCell) {
  const CsvTable table = Read("TP/PP/DP,GBS/MBS\n4/2/8,512/2\n");
  EXPECT_EQ(Cell(table, "tp"), "4");
  EXPECT_EQ(Cell(table, "pp"), "2");
  EXPECT_EQ(Cell(table, "dp"), "8");
  EXPECT_EQ(Cell(table, "global_batch_seqs"), "512");
  EXPECT_EQ(Cell(table, "micro_batch_seqs"), "2");
  EXPECT_EQ(CellOf("MBS x GA", "2x4", "grad_accum"), "4");
  EXPECT_EQ(CellOf("GPUs / node", "8", "gpus_per_node"), "8");
  EXPECT_EQ(CellOf("Heads (Q/KV)", "32/8", "heads"), "32");
  EXPECT_EQ(CellOf("Heads (Q/KV)", "32/8", "kv_heads"), "8");
  EXPECT_EQ(CellOf("Parallelism (TP x PP)", "4 x 2", "pp"), "2");
  // What is counted otherwise stays as it is, and is refused where the row is read.
  EXPECT_EQ(CellOf("Global batch", "4M tokens", "global_batch_seqs"), "4M tokens");
  EXPECT_EQ(CellOf("Batch size", "2 per GPU", "global_batch_seqs"), "2 per GPU");
  EXPECT_EQ(CellOf("Micro batch", "512/2", "micro_batch_seqs"), "512/2");
}

TEST(TrainingColumnsTest, DevicesOfSeveralNodes) {
  EXPECT_EQ(CellOf("Hardware", "4 nodes of 8x H100", "gpus"), "32");
  EXPECT_EQ(CellOf("Hardware", "1 node, 8xH100", "gpus"), "8");
  EXPECT_EQ(CellOf("GPUs", "8x H100", "gpus"), "8");
  EXPECT_EQ(CellOf("GPUs", "8x H100", "gpu_type"), "8x H100");
}

// torchtitan's is cut up by pipelines, MaxText's is of each device, whatever devices share.
TEST(TrainingColumnsTest, LocalBatches) {
  EXPECT_EQ(CellOf("Local batch size", "32", "micro_batch_seqs"), "32");
  const CsvTable pipeline = Read("Local batch size,pp,dp,seq\n32,8,4,8192\n");
  EXPECT_EQ(Cell(pipeline, "micro_batch_seqs"), "");
  EXPECT_EQ(Cell(pipeline, "global_batch_seqs"), "128");
  const CsvTable maxtext = Read("per_device_batch_size,ici_tensor_parallelism,gpus\n2,8,64\n");
  EXPECT_EQ(Cell(maxtext, "global_batch_seqs"), "128");
  EXPECT_EQ(Cell(maxtext, "micro_batch_seqs"), "");
}

TEST(TrainingColumnsTest, NamesInCapitalsAndMoreNames) {
  EXPECT_EQ(CellOf("ActCkpt", "True", "recompute"), "True");
  EXPECT_EQ(CellOf("Act. Ckpt", "full", "recompute"), "full");
  EXPECT_EQ(CellOf("ShardStrategy", "FULL_SHARD", "zero_fsdp"), "FULL_SHARD");
  EXPECT_EQ(CellOf("Techniques", "compile + Float8", "other_opts"), "compile + Float8");
  EXPECT_EQ(CellOf("Float8", "yes", "dtype"), "float8");
  EXPECT_EQ(CellOf("FP8", "hybrid", "dtype"), "fp8");
  EXPECT_EQ(CellOf("Flash Attention", "False", "attention"), "unfused");
  EXPECT_EQ(CellOf("use_flash_attn", "yes", "attention"), "flash attention");
  EXPECT_EQ(CellOf("Kernel", "flash2", "attention"), "flash2");
  EXPECT_EQ(CellOf("zero_fsdp", "3", "zero_fsdp"), "ZeRO-3");
  EXPECT_EQ(CellOf("zero_fsdp", "False", "zero_fsdp"), "none");
  // Ulysses' ranks.
  EXPECT_EQ(CellOf("SP", "8", "cp"), "8");
  EXPECT_EQ(CellOf("SP", "yes", "seq_parallel"), "yes");
  EXPECT_EQ(CellOf("step time (s)", "CUDA out of memory", "status"), "oom");
  EXPECT_EQ(CellOf("step time (s)", "OOM (80GB)", "status"), "oom");
}

// What known names say by other means is read where no column is another's, too.
TEST(TrainingColumnsTest, KnownNamesThatSayOthers) {
  const CsvTable table = Read("batch_tokens,seq_len,steps_per_s,pp\n8192,2048,4,0\n");
  EXPECT_EQ(Cell(table, "global_batch_seqs"), "4");
  EXPECT_EQ(Cell(table, "step_time_s"), "0.25");
  EXPECT_EQ(Cell(table, "pp"), "1");
}

// A config.json as wandb spreads it over columns, in its order; Megatron-LM's arguments.
TEST(TrainingColumnsTest, ConfigurationsOfOtherTools) {
  const CsvTable table = Read(
      "model_config.hidden_act,model_config.hidden_dropout,model_config.hidden_size,model_config.num_hidden_layers,"
      "model_config.num_key_value_heads,model_config.num_attention_heads\nsilu,0.1,4096,32,8,24\n");
  EXPECT_EQ(Cell(table, "hidden"), "4096");
  EXPECT_EQ(Cell(table, "layers"), "32");
  EXPECT_EQ(Cell(table, "kv_heads"), "8");
  EXPECT_EQ(Cell(table, "heads"), "24");
  EXPECT_EQ(CellOf("num-layers-per-virtual-pipeline-stage", "2", "layers_per_chunk"), "2");
  EXPECT_EQ(CellOf("pipeline-model-parallel-size", "4", "pp"), "4");
  // The shared one's width, or how many experts it is wide, is not a routed one's.
  EXPECT_EQ(CellOf("moe_shared_expert_intermediate_size", "512", "shared_expert_ffn"), "512");
  EXPECT_EQ(CellOf("moe_shared_expert_intermediate_size", "512", "expert_ffn"), "");
  EXPECT_EQ(CellOf("n_shared_experts", "2", "shared_experts"), "2");
  EXPECT_EQ(CellOf("n_shared_experts", "2", "experts"), "");
  EXPECT_EQ(CellOf("first_k_dense_replace", "3", "dense_layers"), "3");
  EXPECT_EQ(CellOf("moe-layer-freq", "([0]*3+[1]*58)", "expert_every"), "([0]*3+[1]*58)");
  EXPECT_EQ(CellOf("interleave_moe_layer_step", "2", "expert_every"), "2");
  EXPECT_EQ(CellOf("decoder_sparse_step", "2", "expert_every"), "2");
  EXPECT_EQ(CellOf("dense intermediate size", "512", "dense_ffn"), "512");
  EXPECT_EQ(CellOf("num dense layers", "3", "layers"), "");
  EXPECT_EQ(CellOf("quantization", "fp8", "other_opts"), "fp8");  // MaxText's
}

// The unit in the cells tells; without a number of devices a rate can only be that of one.
TEST(TrainingColumnsTest, ThroughputOfWhat) {
  EXPECT_EQ(CellOf("Throughput", "17.13 samp/s", "samples_per_s"), "17.13");
  EXPECT_EQ(CellOf("Throughput", "44,000 TPS", "tokens_per_s_per_gpu"), "44000");
  EXPECT_EQ(Cell(Read("gpus,Throughput\n8,25.6k tokens/s\n"), "tokens_per_s_total"), "25600");
  EXPECT_EQ(CellOf("Speed", "1.0s/it", "step_time_s"), "1");
  EXPECT_THAT(Read("Speed\nfast\n").remarks, ElementsAre("not read: \"speed\""));
  // A rate of what nobody counts here is no time; an iteration's may be behind its time.
  for (const char* name : {"Throughput (img/s)", "Throughput (PFLOP/s)", "Performance (words / sec)",
                           "Speed in batches per second", "Speed (x)/s"}) {
    EXPECT_EQ(CellOf(name, "12", "step_time_s"), "") << name;
  }
  EXPECT_EQ(CellOf("Speed", "12 docs/s", "step_time_s"), "");
  EXPECT_EQ(CellOf("Speed (s)", "3.2", "step_time_s"), "3.2");
  EXPECT_EQ(CellOf("Speed (s/step)", "3.2", "step_time_s"), "3.2");
  // A rate of something else in between is not read as the first: its reader says that it is no number.
  const CsvTable mixed = Read("gpus,Throughput\n8,420 tokens/s/GPU\n8,25.1k tokens/s\n8,25.1k\n");
  EXPECT_EQ(Cell(mixed, "tokens_per_s_per_gpu"), "420");
  EXPECT_EQ(Cell(mixed, "tokens_per_s_per_gpu", 1), "25.1k tokens/s");
  EXPECT_EQ(Cell(mixed, "tokens_per_s_per_gpu", 2), "25100");
}

// Headers of sweeps of layouts: Lucie's summary, BigScience's notes, PaddleNLP's table, Megatron-MoE-ModelZoo's.
TEST(TrainingColumnsTest, Sweeps) {
  const CsvTable lucie =
      Read("nGPUs,tp,pp,dp,z,gbz,mbz,num_microbatch,samples_per_seconds\n32,2,0,16,0,512,2,16,22.7\n");
  EXPECT_EQ(Cell(lucie, "global_batch_seqs") + " " + Cell(lucie, "micro_batch_seqs"), "512 2");
  EXPECT_EQ(Cell(lucie, "grad_accum") + " " + Cell(lucie, "samples_per_s"), "16 22.7");
  EXPECT_EQ(Cell(lucie, "pp") + " " + Cell(lucie, "zero_fsdp"), "1 none");  // no stages are one
  const CsvTable notes = Read("GPUs,Size,Mic-BS,Glob-BS,Speed\n64,52B,4,1024,90.5s\n");
  EXPECT_EQ(Cell(notes, "micro_batch_seqs") + " " + Cell(notes, "global_batch_seqs"), "4 1024");
  EXPECT_EQ(Cell(notes, "model") + " " + Cell(notes, "step_time_s"), "52B 90.5");
  const CsvTable paddle = Read("Distributed Strategy\ntp2sd4_stage2\n");
  EXPECT_EQ(Cell(paddle, "tp") + Cell(paddle, "dp") + " " + Cell(paddle, "zero_fsdp"), "24 tp2 sd4_stage2");
  EXPECT_EQ(CellOf("Per GPU TF", "245", "tflops_per_gpu"), "245");
  EXPECT_EQ(CellOf("Dispatcher", "DeepEP", "other_opts"), "DeepEP");
  EXPECT_EQ(CellOf("iter_dt", "255ms", "step_time_s"), "0.255");
}

// torchtitan's two degrees are no number of replicas, and one node's rate is not that of all.
TEST(TrainingColumnsTest, GroupsAndNodes) {
  const CsvTable groups = Read("gpus,dp_replicate,dp_shard\n64,8,8\n64,1,-1\n64,64,1\n");
  EXPECT_EQ(Cell(groups, "dp"), "");
  EXPECT_EQ(Cell(groups, "zero_fsdp"), "dp_replicate=8; FSDP dp_shard=8");
  EXPECT_EQ(Cell(groups, "zero_fsdp", 1), "FSDP dp_shard=-1");
  EXPECT_EQ(Cell(groups, "zero_fsdp", 2), "dp_replicate=64");
  // MaxText's and Pax's degrees make up the devices, with FSDP's: 4 copies of 8 devices, none shared over one device.
  const CsvTable mesh = Read("#GPUs,DP,FSDP,TP\n64,4,8,2\n8,1,8,1\n64,64,1,1\n64,32,8,2\n");
  EXPECT_EQ(Cell(mesh, "dp") + " " + Cell(mesh, "zero_fsdp"), "32 dp_replicate=4; FSDP dp_shard=8");
  EXPECT_EQ(Cell(mesh, "dp", 1) + " " + Cell(mesh, "zero_fsdp", 1), "8 FSDP dp_shard=8");
  EXPECT_EQ(Cell(mesh, "dp", 2) + " " + Cell(mesh, "zero_fsdp", 2), "64 none");
  EXPECT_EQ(Cell(mesh, "dp", 3) + " " + Cell(mesh, "zero_fsdp", 3), "32 FSDP dp_shard=8");  // 32 with those that share
  EXPECT_EQ(Cell(Read("fsdp,dp\n1,8\n"), "zero_fsdp"), "FSDP");                             // yes
  const CsvTable node = Read("nodes,tokens per second per node\n8,24000\n");
  EXPECT_EQ(Cell(node, "tokens_per_s_total"), "");
  EXPECT_THAT(node.remarks, ElementsAre("not read: \"tokens per second per node\""));
}

// Of a column that says the size alone, with its B, the name is made.
TEST(TrainingColumnsTest, ASizeIsAName) {
  EXPECT_EQ(CellOf("Model Size", "7B", "model"), "7B");
  EXPECT_EQ(Cell(Read("model,Model Size\nLlama,7B\n"), "params_b"), "7");
}

TEST(TrainingColumnsTest, Memory) {
  const CsvTable mib = Read("Peak Mem(MiB)\n2048\n"), named = Read("GPU memory reserved (GB)\n20.5\n");
  EXPECT_EQ(Cell(mib, "peak_mem_gb"), "2");
  EXPECT_EQ(Cell(mib, "mem_def"), "GiB peak mem(mib)");
  EXPECT_EQ(Cell(named, "peak_mem_gb"), "20.5");
  EXPECT_EQ(Cell(named, "mem_def"), "GB gpu memory reserved (gb)");
  EXPECT_EQ(CellOf("Memory", "20.1G", "peak_mem_gb"), "20.1");
  // nvidia-smi's MiB; the most that tensors took before what is reserved.
  EXPECT_EQ(CellOf("mem_nvidia_mem_reserved", "77256", "peak_mem_gb"), "75.4453125");
  EXPECT_EQ(Cell(Read("peak_mem_gb\n38000\n"), "peak_mem_gb"), "37.109375");
  EXPECT_EQ(Cell(Read("peak_mem_gb\n38000\n"), "mem_def"), "GiB peak_mem_gb");
  EXPECT_EQ(Cell(Read("peak_mem_gb\n38\n"), "mem_def"), "");
  EXPECT_EQ(Cell(Read("mem_reserved,mem_peak_in_bytes\n77256,2147483648\n"), "peak_mem_gb"), "2");
  // A share of the card.
  EXPECT_EQ(CellOf("gpu_memory_utilization_peak", "78.475647", "peak_mem_pct"), "78.475647");
  EXPECT_EQ(CellOf("gpu_memory_utilization_peak", "78.475647", "peak_mem_gb"), "");
  EXPECT_EQ(CellOf("gpu_memory_utilization_avg", "76", "peak_mem_pct"), "");
  EXPECT_EQ(CellOf("cpu_memory_utilization", "3", "peak_mem_pct"), "");
}

TEST(TrainingColumnsTest, ShapesAndDegrees) {
  EXPECT_EQ(CellOf("Sequence Length", "4K", "seq_len"), "4096");
  EXPECT_EQ(CellOf("max_target_length", "8,192", "seq_len"), "8,192");
  EXPECT_EQ(CellOf("tokens_per_sample", "4096", "seq_len"), "4096");
  EXPECT_EQ(CellOf("tokens per sample per second", "4096", "seq_len"), "");
  EXPECT_EQ(CellOf("vocabulary", "32k", "vocab"), "32000");
  EXPECT_EQ(CellOf("#params", "125M", "params_b"), "0.125");
  EXPECT_EQ(CellOf("num_attention_heads", "16", "heads"), "16");
  EXPECT_EQ(CellOf("num_query_groups", "8", "kv_heads"), "8");
  EXPECT_EQ(CellOf("tensor-model-parallel-size", "4", "tp"), "4");
  EXPECT_EQ(CellOf("virtual_pipeline_model_parallel_size", "5", "vpp"), "5");
  EXPECT_EQ(CellOf("zero_stage", "3", "zero_fsdp"), "ZeRO-3");
  EXPECT_EQ(CellOf("FSDP", "64", "zero_fsdp"), "FSDP dp_shard=64");
  EXPECT_EQ(CellOf("num-ckpt-layers", "40", "recompute"), "40");
  EXPECT_EQ(CellOf("num-layers", "40", "layers"), "40");
  EXPECT_EQ(CellOf("use_activation_checkpointing", "True", "recompute"), "True");
  EXPECT_EQ(CellOf("fp16", "True", "dtype"), "fp16");
  EXPECT_EQ(CellOf("speedup (TF32 - mixed precision)", "1.83", "dtype"), "");
  const CsvTable text = Read("Parallelism\nzero1(dp2)+tp2+pp4\n");
  EXPECT_EQ(Cell(text, "tp") + Cell(text, "pp") + Cell(text, "dp"), "242");
  EXPECT_EQ(Cell(text, "zero_fsdp"), "zero1(dp2)+tp2+pp4");
}

TEST(TrainingColumnsTest, Devices) {
  EXPECT_EQ(CellOf("Hardware", "NVIDIA A100-SXM4-80GB x4", "gpus"), "4");
  EXPECT_EQ(CellOf("Hardware", "8x RTX 4090", "gpus"), "8");
  EXPECT_EQ(CellOf("Hardware", "H100 80GB", "gpus"), "");
  EXPECT_EQ(CellOf("GPU", "16", "gpus"), "16");
  EXPECT_EQ(CellOf("num_gpu", "1.0", "gpus"), "1.0");
  EXPECT_EQ(CellOf("GPUs", "A100", "gpu_type"), "A100");
  EXPECT_EQ(Cell(Read("#Nodes,#GPUs per node\n2,8\n"), "gpus"), "16");
}

TEST(TrainingColumnsTest, Batches) {
  EXPECT_EQ(CellOf("Batch size", "64", "global_batch_seqs"), "64");
  EXPECT_EQ(Cell(Read("Batch size,micro_batch_size\n64,2\n"), "global_batch_seqs"), "64");
  EXPECT_EQ(Cell(Read("Batch size,Gradient accumulation\n1,8\n"), "micro_batch_seqs"), "1");
  EXPECT_EQ(CellOf("per_device_batch_size", "2", "micro_batch_seqs"), "2");
  // 36 rows on each of 32 / (2 x 2) replicas; 4 x 2^20 tokens in rows of 4096.
  EXPECT_EQ(Cell(Read("Batch Size per DP,TP,PP,gpus\n36,2,2,32\n"), "global_batch_seqs"), "288");
  EXPECT_EQ(Cell(Read("Batch (tokens),Seqlen\n4M,4096\n"), "global_batch_seqs"), "1024");
}

// Hugging Face's trainers: 4.687 rows a second and 0.018 steps are 260 rows a step, 4 times 64 as far as two digits go.
TEST(TrainingColumnsTest, StepsThatAddUpBatches) {
  const std::string names = "batch_size,train_samples_per_second,train_steps_per_second\n";
  const CsvTable adds = Read(names + "64,4.687,0.018\n");
  EXPECT_EQ(Cell(adds, "global_batch_seqs"), "256");
  EXPECT_EQ(Cell(adds, "grad_accum"), "4");
  EXPECT_EQ(Cell(adds, "step_time_s"), "");
  const CsvTable whole = Read(names + "64,4.687,0.073\n");
  EXPECT_EQ(Cell(whole, "global_batch_seqs"), "64");
  EXPECT_EQ(Cell(whole, "grad_accum"), "");
  EXPECT_NE(Cell(whole, "step_time_s"), "");
  // 2.6 times: another number of rows.
  EXPECT_EQ(Cell(Read(names + "100,4.687,0.018\n"), "grad_accum"), "");
}

TEST(TrainingColumnsTest, OutOfMemoryAndNothing) {
  const CsvTable table = Read("gpus,Tokens/s,PP\n8,OOM,-\n8,100,/\n");
  EXPECT_EQ(Cell(table, "status"), "oom");
  EXPECT_EQ(Cell(table, "tokens_per_s_total"), "");
  EXPECT_EQ(Cell(table, "pp"), "");
  EXPECT_EQ(Cell(table, "status", 1), "");
}

// What is no number stays, so that a reader says so; a unit of something else, a range.
TEST(TrainingColumnsTest, DamagedCellsStay) {
  EXPECT_EQ(Cell(Read("Tokens/s/GPU\n46K\n45-47K\n"), "tokens_per_s_per_gpu", 1), "45-47K");
  EXPECT_EQ(CellOf("step time (s)", "5 apples", "step_time_s"), "5 apples");
  EXPECT_EQ(CellOf("TP", "two", "tp"), "two");
}

// llm-foundry's header; a column of words is no number of ranks.
TEST(TrainingColumnsTest, NamesWrittenTogether) {
  const CsvTable table = Read(
      "Model,SeqLen (T),# GPUs,GPU,MFU,MicroBatchSize,GradAccum,GlobalBatchSize (T),GlobalBatchSize,"
      "Throughput (T/s/GPU),Precision,MP Mode,Sharding Strategy,Activation Checkpointing,NumParams\n"
      "7b,2048,8,h100_80gb,46.44,6,32,3145728,1536,11013,amp_bf16,PURE,FULL_SHARD,True,6658859008\n");
  EXPECT_EQ(Cell(table, "seq_len") + " " + Cell(table, "gpus") + " " + Cell(table, "gpu_type"), "2048 8 h100_80gb");
  EXPECT_EQ(Cell(table, "micro_batch_seqs") + " " + Cell(table, "global_batch_seqs"), "6 1536");
  EXPECT_EQ(Cell(table, "tokens_per_s_per_gpu") + " " + Cell(table, "tp"), "11013 ");
  EXPECT_EQ(Cell(table, "params_b"), "6.658859008");
  EXPECT_THAT(table.remarks.back(), "not read: \"mp mode\"");
}

TEST(TrainingColumnsTest, SaysWhatWasRead) {
  const CsvTable table = Read("Model,Seqlen,Price,Use LoRA\nLlama 2 7B,2048,3,Yes\n");
  EXPECT_THAT(table.remarks,
              ElementsAre("columns: \"seqlen\" as seq_len, \"use lora\" in other_opts", "not read: \"price\""));
  EXPECT_EQ(Cell(table, "other_opts"), "use lora");
}

// Names and cells made of any words: something comes out, with as many rows and a cell for each column.
TEST(TrainingColumnsTest, AnyWords) {
  constexpr absl::string_view kWords[] = {"tokens", "/",    "s",    "gpu",  "gpus", "batch", "size",      "per", "dp",
                                          "model",  "(MB)", "time", "zero", "fp16", "it",    "memory",    "",    "tp",
                                          "seq",    "8",    "x",    "4K",   "OOM",  "-",     "True",      "%",   "\xff",
                                          "1.5",    "A100", "ms",   "~3",   "1,5",  "\"",    "throughput"};
  std::minstd_rand random(1);
  const auto words = [&random, &kWords] {
    std::string text;
    for (size_t n = random() % 4; n > 0; --n) absl::StrAppend(&text, kWords[random() % std::size(kWords)], " ");
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (const int columns : {5, 5, 5}) {
      for (int c = 0; c < columns; ++c) absl::StrAppend(&text, c == 0 ? "" : ";", words());
      text += "\n";
    }
    const auto table = ParseCsv(absl::StrCat("a;", text), "t.csv");
    if (!table.ok()) continue;
    const CsvTable read = WithTrainingColumns(*table);
    ASSERT_EQ(read.rows.size(), table->rows.size());
    for (const CsvRow& row : read.rows) ASSERT_EQ(row.cells.size(), read.columns.size()) << text;
  }
}

}  // namespace
}  // namespace meshwright
