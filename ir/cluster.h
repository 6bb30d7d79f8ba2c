// What a model is trained on: one kind of device, how many, and the links between them.
//
// Plain values: no prices and no decisions. costmodel/library.h makes them (by name, or from a file); the cost model,
// the simulator and the planner read them.
//
// A Cluster is homogeneous: `nodes` equal nodes with `devices_per_node` devices each. Global rank r sits on node
// r / devices_per_node, at place r % devices_per_node. "Node" means the domain in which devices reach each other
// without a network card: a server, or a whole NVLink rack.
//
// Units: bandwidths count one direction of one device (or one network card), powers of ten. Memory sizes are bytes.
//
// Thread safety: plain values.
#ifndef MESHWRIGHT_IR_CLUSTER_H_
#define MESHWRIGHT_IR_CLUSTER_H_

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/dtype.h"
#include "ir/quantities.h"

namespace meshwright {

// In order of age: costs that depend on the generation compare with <.
enum class Generation : uint8_t { kHost, kVolta, kAmpere, kAda, kHopper, kBlackwell };
inline constexpr absl::string_view kGenerationNames[] = {"host", "volta", "ampere", "ada", "hopper", "blackwell"};

// How the devices of one node reach each other.
enum class LinkKind : uint8_t {
  kNvSwitch,    // NVLink through a switch: every pair at full rate
  kNvLinkMesh,  // NVLink wired from device to device
  kPcie,        // the PCIe tree
  kC2c,         // one device per node, tied to its CPU
  kHostMemory,  // ranks are threads or processes that share memory: the host back end
  kPcieHost,    // PCIe between devices without peer access: through the host's memory
};
inline constexpr absl::string_view kLinkKindNames[] = {"nvswitch", "nvlink_mesh", "pcie",
                                                       "c2c",      "host_memory", "pcie_host"};
constexpr bool IsPcie(LinkKind kind) { return kind == LinkKind::kPcie || kind == LinkKind::kPcieHost; }

// The maker of the nodes' CPUs. NCCL's choices depend on it.
enum class CpuVendor : uint8_t { kIntel, kAmd, kArm };
inline constexpr absl::string_view kCpuVendorNames[] = {"intel", "amd", "arm"};

constexpr absl::string_view NameOf(Generation generation) { return kGenerationNames[static_cast<size_t>(generation)]; }
constexpr absl::string_view NameOf(LinkKind kind) { return kLinkKindNames[static_cast<size_t>(kind)]; }
constexpr absl::string_view NameOf(CpuVendor vendor) { return kCpuVendorNames[static_cast<size_t>(vendor)]; }

// Constants of the kernel formulas (costmodel/kernel_cost.h says what each one does there). They travel with the device
// because they are facts about it, as its peak is: fitted on published measurements, or measured on the machine.
struct KernelConstants {
  Nanos startup;      // shortest kernel, issued ahead of time
  Nanos host_launch;  // time the CPU needs to issue one kernel
  // Matrix products.
  double matmul_share = 0;      // of peak, inside a full tile, at the clock the peak is quoted for
  double matmul_share_fp8 = 0;  // the same for float8
  Nanos matmul_per_wave;        // prologue and epilogue of one wave of tiles
  Nanos split_k;                // the second pass that adds up a split inner dimension
  // From L2 cache to all multiprocessors together. Host: the pace at which a product's operands come from memory and
  // are brought into the order in which the library computes.
  BytesPerSecond l2_bandwidth;
  // Moved for each element of a product's left operand that is quantised before it; 0: operands are used as they are.
  Bytes quantize_bytes;
  int product_bits = 0;  // of these operands, 8 or 4 (NVFP4); 0: none is
  // Where products of 16 bits run at the rate of float8 or NVFP4, the peak and the share of it that those have which do
  // not.
  FlopsPerSecond wide_peak;
  double wide_share = 0;
  // Kernels that stream memory.
  double memory_share = 0;              // of memory bandwidth, when very much is streamed
  Bytes memory_ramp;                    // bytes after which half of that share is reached
  double normalize_backward_share = 0;  // of memory bandwidth, norm kernels running backward
  // Kernels beside communication: multiprocessors that one of its thread blocks takes from them. More than the one it
  // runs on, since it wants the cache and leaves products a last round of few blocks: of 24 blocks' calls, products
  // take 1.76 times and attention 1.83 times as long on A100 (NCCL issue 1428), products 1.70 times on H100 (NVIDIA's
  // developer forum, thread 337991) and 1.3 to 1.4 times (PyTorch pull request 179937): 2.0, 2.27 and 1.43, the mean.
  double overlap_blocks = 1.9;
  // Bytes of memory that communication reads and writes for each byte on a link: of a ring, the user's buffer read, the
  // channel's written, and once more on the way through (arithmetic from NCCL's ring; not measured unless a cluster
  // file says otherwise).
  double overlap_touches = 3;
  // What attention's products reach, as a share of aligned ones, where rows of 16-bit elements do not begin at
  // multiples of 16 bytes; 0: what all such products do (costmodel/kernel_cost.cc).
  double misaligned_attention = 0;
  // Clock under the power of a training step / the clock that the constants above hold for. Slows what computes.
  double sustained_clock = 1;
  // Host: times as long its kernels take where all ranks compute at once, as these share the cores; what `measure`
  // finds in a job. The constants above are of a rank that has a core to itself.
  double core_sharing = 1;
  // Clock of products alone, in loops of some tenths of a second, over the same. Above 1 where a card boosts beyond its
  // data sheet, below 1 where its power limit binds (costmodel/power_clock_test.cc has the rule). What tables of
  // kernels are priced at; a program's kernels are not.
  double loop_clock = 1;

  friend bool operator==(const KernelConstants&, const KernelConstants&) = default;
};

// The same for one implementation of fused attention.
struct AttentionConstants {
  std::string kernel;        // "flash2"
  double forward_share = 0;  // of peak, long sequences, very wide heads
  double backward_share = 0;
  double softmax_width = 0;  // a score costs as much as this many multiply-adds of the head's width
  double setup_keys = 0;     // a row of queries costs as much as this many keys, besides its keys
  bool estimated = false;

  friend bool operator==(const AttentionConstants&, const AttentionConstants&) = default;
};

// Where numbers come from. Reports print it.
struct Provenance {
  std::string what;    // the section of the data file: "chip", "peak", "kernels"
  std::string source;  // "NVIDIA A100 data sheet"
  bool estimated = false;

  friend bool operator==(const Provenance&, const Provenance&) = default;
};

inline constexpr size_t kNumDTypes = std::size(kDTypes);

struct Device {
  std::string name;                  // "h100-sxm"
  std::vector<std::string> aliases;  // other spellings that FindDevice takes
  Generation generation = Generation::kHost;
  std::array<FlopsPerSecond, kNumDTypes> peak;  // dense matrix products, by DType; 0: not supported
  Bytes memory;                                 // as the driver reports it, before the context and libraries
  BytesPerSecond memory_bandwidth;
  Bytes l2;
  int sms = 0;  // multiprocessors (host: cores)
  double boost_mhz = 0;
  int exponentials = 16;  // and other special functions, that a multiprocessor does in a clock
  KernelConstants kernels;
  bool kernels_estimated = false;             // the constants were scaled from another device, not measured on this one
  std::vector<AttentionConstants> attention;  // the first one is what runs; not empty
  std::vector<Provenance> provenance;

  FlopsPerSecond Peak(DType dtype) const { return peak[static_cast<size_t>(dtype)]; }
  friend bool operator==(const Device&, const Device&) = default;
};

struct DevicePrice {
  double dollars_per_hour = 0;  // of one device, with its share of the node
  std::string source;           // who asked that, when

  friend bool operator==(const DevicePrice&, const DevicePrice&) = default;
};

struct Cluster {
  Device device;
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  LinkKind intra_kind = LinkKind::kHostMemory;
  BytesPerSecond intra_bandwidth;  // of one device to the others of its node, as the data sheet counts
  int64_t nics_per_node = 0;       // 0: nothing leaves the node
  BytesPerSecond nic_bandwidth;    // of one network card
  Nanos nic_latency;               // that the card and the fabric add to one message
  bool nic_in_order = true;     // bytes of a message arrive in order: NCCL's protocols with flags in the data need it
  bool nic_ll128 = true;        // NCCL's LL128 goes through the card: not where it hangs off the CPU
  double oversubscription = 1;  // k: what leaves a leaf switch has 1/k of the bandwidth of what enters it
  int64_t nodes_per_leaf = 0;   // on one leaf switch, in the order of their numbers; 0: nobody knows
  CpuVendor cpu = CpuVendor::kIntel;
  // Times as long as usual that the nodes' CPUs take for what a framework does before a kernel runs, where it issues
  // kernels one by one (kEagerFramework and others); nothing: nobody knows. Our own programs do not ask.
  std::optional<double> cpu_slowdown;
  std::optional<DevicePrice> price;
  bool links_estimated = false;  // some link number above is a guess

  int64_t num_devices() const { return nodes * devices_per_node; }
  int64_t NodeOf(int64_t rank) const { return rank / devices_per_node; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// "16 nodes x 8 h100-sxm, nvswitch 450 GB/s, 8 NICs x 50 GB/s". For messages and tables; nothing reads it back.
std::string ToText(const Cluster& cluster);

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_CLUSTER_H_
