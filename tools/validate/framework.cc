#include "tools/validate/framework.h"

#include <algorithm>

#include "tools/validate/releases.h"

namespace meshwright {
namespace {

// Integer instructions of a kernel with dropout for an element, at 64 a clock and multiprocessor (CUDA programming
// guide, throughput of native instructions, compute capability 7.0 to 9.0). Philox 4x32-10, which PyTorch draws from,
// has for four numbers ten rounds of two wide products (two instructions' time each), two three-way exclusive ors and
// two sums: 20 a number; conversions of integers and between types of 16 and 32 bits take four instructions' time each:
// 12, and some to compare, scale and address. To run a layer's attention again takes 1.3 ms (Korthikanti et al. 2022,
// table 4: 13.2 instead of 11.9 ms; 4 rows of 2048, 8 heads of 96, A100), of which its two products and softmax are
// 0.6: 134 million scores in 0.7 ms are 45 instructions each.
constexpr double kDropoutInstructions = 45, kIntegersPerClock = 64;

// FlashAttention draws 8 bits a score: of the seven rounds above one sixteenth, and as many again to unpack, compare
// and select (csrc/flash_attn/src/philox.cuh, dropout.h). That cuDNN draws no more is an assumption.
constexpr double kFusedDropoutInstructions = 2 * 7 * 8 / 16.0;

// What memory moves in the time of that many integer instructions of each element.
double BytesMovedIn(double instructions, const Device& device) {
  const double integers = kIntegersPerClock * device.sms * device.boost_mhz * 1e6 * device.kernels.sustained_clock;
  const double rate = device.memory_bandwidth.raw() * device.kernels.memory_share;
  return integers > 0 ? rate * instructions / integers : 0;
}

}  // namespace

Framework FrameworkOf(const CsvCells& cells, int64_t sequence) {
  const Signs signs = ReadSigns(cells, sequence);
  Framework framework;
  framework.signs = signs.set;
  ApplyReleases(signs, &framework);
  return framework;
}

double DropoutBytes(const Device& device, double moved) {
  return std::max(0.0, BytesMovedIn(kDropoutInstructions, device) - moved);
}

double FusedDropoutBytes(const Device& device) { return BytesMovedIn(kFusedDropoutInstructions, device); }

// Where queries and keys are turned, Megatron-Core cuts one matrix into queries, keys and values, copies values, 2 + 2,
// and queries where several share a key, and joins the gradients, 2 + 2 (attention.py; Transformer Engine's
// _SplitAlongDim, whose gradients lie in one buffer only where nothing stood between).
//
// nanotron copies what it cuts into queries, keys and values, 2 + 2, joins keys and values, 4 each, and copies these
// once more into FlashAttention's order, 4 each. Backward it joins their gradients, 4 each, and copies all into the one
// of the product; with as many keys as queries it stacks them before that (models/llama.py, CausalSelfAttention).
//
// NeMo's LoRA is one of queries, keys and values (`attention_qkv`; mcore_mixins.py, parallel_adapters.py). Forward the
// norm's result is written for it, 2, and read, 2; what it makes is written, 2, scaled, 2 + 2, and added, 2 + 2 + 2.
// Backward the gradient is scaled, 2 + 2, and read for two products, 2 + 2, of which one makes another, 2, that is
// added, 4 + 2, and the last reads the norm's result, 2.
void AddQueryCopies(const Framework& framework, bool frozen, double keys, EagerBytes* queries) {
  const double all = 1 + 2 * keys;
  if (framework.cuts_queries) {
    queries->forward += 4 * keys + (keys < 1 ? 4 : 0);
    queries->backward += 4 * all;
  }
  if (framework.Is(Sign::kNanotron)) {
    queries->forward += 4 * all + 16 * keys;
    queries->backward += 8 * keys + 4 * all * (keys < 1 ? 1 : 2);
  }
  if (framework.Is(Sign::kNemo) && frozen) {
    queries->forward += 4 + 12 * all;
    queries->backward += 10 + 8 * all;
  }
}

// torchtitan's layers: wq, wk and wv until 0.2.2 (models/llama3/model/model.py; one since June 2026, its pull 3714), w1
// and w3 (models/common/feed_forward.py). Their inputs are gathered once for all, and the gradients of all are added
// before they are scattered: two and one additions in 16 bits, 2 + 2 + 2.
void AddInputGradients(const Framework& framework, const DecoderConfig& model, int64_t tensor, HostPace* host) {
  if (!framework.Is(Sign::kTorchTitan)) return;
  constexpr double kAddition = 6;
  const double input = static_cast<double>(model.hidden) * static_cast<double>(tensor);
  if (framework.Is(Sign::kEarlyTitan) && model.kv_lora_rank == 0) {
    host->queries.backward += 2 * kAddition * input / static_cast<double>(model.heads * model.head_dim);
  }
  if (IsGated(model.activation) && model.experts <= 1) {
    host->gates.backward += kAddition * input / static_cast<double>(model.ffn);
  }
}

}  // namespace meshwright
