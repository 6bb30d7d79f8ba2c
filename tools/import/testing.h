// Descriptions of machines, for tests only: as their programs print them, with names and addresses made up.
#ifndef MESHWRIGHT_TOOLS_IMPORT_TESTING_H_
#define MESHWRIGHT_TOOLS_IMPORT_TESTING_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace meshwright {

// A DGX H100: two Intel CPUs, on each four PCIe switches with a GPU and a 400 Gb/s card, four NVSwitches that have 5,
// 4, 4 and 5 links of each GPU, and two cards for storage that hang off the CPUs.
inline std::string DgxH100Topology() {
  std::string text = "<system version=\"1\">\n";
  for (int cpu = 0; cpu < 2; ++cpu) {
    absl::StrAppendFormat(&text,
                          "  <cpu numaid=\"%d\" affinity=\"ffffffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
                          "familyid=\"6\" modelid=\"143\">\n",
                          cpu);
    for (int i = 4 * cpu; i < 4 * cpu + 4; ++i) {
      absl::StrAppendFormat(
          &text,
          R"(    <pci busid="0000:%d0:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:%d1:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="%d" sm="90" rank="%d" gdr="1">
          <nvlink target="0000:f0:00.0" count="5" tclass="0x068000"/>
          <nvlink target="0000:f1:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:f2:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:f3:00.0" count="5" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:%d2:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_%d" dev="%d" latency="0.000000" speed="400000" port="1" guid="0x%d0" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
)",
          i + 1, i + 1, i, i, i + 1, i, i, i + 1);
    }
    absl::StrAppendFormat(
        &text,
        R"(    <pci busid="0000:a%d:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_%d" dev="%d" latency="0.000000" speed="400000" port="1" guid="0xa%d" maxconn="131072" gdr="0"/>
      </nic>
    </pci>
  </cpu>
)",
        cpu, 8 + cpu, 8 + cpu, cpu);
  }
  return text + "</system>\n";
}

// A board of four A100, four links between each two, with two 200 Gb/s cards on a switch each; AMD.
inline std::string HgxA100Topology() {
  std::string text = "<system version=\"1\">\n  <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">\n";
  for (int pair = 0; pair < 2; ++pair) {
    absl::StrAppendFormat(
        &text, "    <pci busid=\"0000:%d0:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n",
        pair + 1);
    for (int gpu = 2 * pair; gpu < 2 * pair + 2; ++gpu) {
      absl::StrAppendFormat(&text,
                            "      <pci busid=\"0000:0%d:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
                            "link_width=\"16\">\n        <gpu dev=\"%d\" sm=\"80\" rank=\"%d\" gdr=\"1\">\n",
                            gpu, gpu, gpu);
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == gpu) continue;
        absl::StrAppendFormat(&text, "          <nvlink target=\"0000:0%d:00.0\" count=\"4\" tclass=\"0x030200\"/>\n",
                              peer);
      }
      absl::StrAppend(&text, "        </gpu>\n      </pci>\n");
    }
    absl::StrAppendFormat(
        &text,
        "      <pci busid=\"0000:%d5:00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" "
        "link_width=\"16\">\n        <nic><net name=\"mlx5_%d\" dev=\"%d\" speed=\"200000\" port=\"1\" "
        "guid=\"0x%d\"/></nic>\n      </pci>\n    </pci>\n",
        pair + 1, pair, pair, pair + 7);
  }
  return text + "  </cpu>\n</system>\n";
}

// Two L40S in slots of a server, a card of two 100 Gb/s ports beside them.
inline constexpr char kPcieTopology[] = R"(<?xml version="1.0"?>
<!-- written by a run of two ranks -->
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="89" rank="0" gdr="0"/>
    </pci>
    <pci busid="0000:41:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="89" rank="1" gdr="0"/>
    </pci>
    <pci busid="0000:81:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x51" gdr="0"/>
        <net name="mlx5_1" dev="1" speed="100000" port="1" guid="0x51" gdr="0"/>
      </nic>
    </pci>
  </cpu>
</system>
)";

// A GH200, ten links of 44,712 MB/s to its CPU.
inline constexpr char kGraceTopology[] = R"(<system version="1">
  <cpu numaid="0" affinity="ffffffff" arch="arm64">
    <pci busid="0009:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1">
        <c2c bw="44712" count="10"/>
      </gpu>
    </pci>
    <pci busid="0000:01:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x9" gdr="1"/></nic>
    </pci>
  </cpu>
</system>
)";

// nvidia-smi topo -m of a DGX H100, as a terminal shows it: the header underlined, columns of tabs.
inline std::string DgxH100Matrix() {
  std::string text = "\t\x1b[4mGPU0";
  for (int i = 1; i < 8; ++i) absl::StrAppend(&text, "\tGPU", i);
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, "\tNIC", i);
  absl::StrAppend(&text, "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n");
  const auto near = [](int gpu, int nic) {
    return gpu == nic ? "PXB" : gpu / 4 == nic / 4 && nic < 8 ? "NODE" : "SYS";
  };
  for (int i = 0; i < 8; ++i) {
    absl::StrAppend(&text, "GPU", i);
    for (int j = 0; j < 8; ++j) absl::StrAppend(&text, i == j ? "\t X " : "\tNV18");
    for (int j = 0; j < 10; ++j) absl::StrAppend(&text, "\t", near(i, j));
    absl::StrAppend(&text, i < 4 ? "\t0-55,112-167\t0\t\tN/A\n" : "\t56-111,168-223\t1\t\tN/A\n");
  }
  for (int i = 0; i < 10; ++i) {
    absl::StrAppend(&text, "NIC", i);
    for (int j = 0; j < 8; ++j) absl::StrAppend(&text, "\t", near(j, i));
    for (int j = 0; j < 10; ++j) absl::StrAppend(&text, i == j ? "\t X " : "\tSYS");
    absl::StrAppend(&text, "\t\t\t\n");
  }
  absl::StrAppend(&text, "\nLegend:\n\n  X    = Self\n  SYS  = over the sockets' link\n  NV#  = that many NVLinks\n\n");
  absl::StrAppend(&text, "NIC Legend:\n\n");
  for (int i = 0; i < 10; ++i) absl::StrAppend(&text, "  NIC", i, ": mlx5_", i, "\n");
  return text;
}

// A list of `count` GPUs of one name, as nvidia-smi -L prints it.
inline std::string GpuList(absl::string_view name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppendFormat(&text, "GPU %d: %s (UUID: GPU-0000000%d-1111-2222-3333-444444444444)\n", i, name, i);
  }
  return text;
}

// Two L40S whose power limit has been lowered.
inline constexpr char kL40sTable[] =
    "name, memory.total [MiB], pcie.link.gen.max, pcie.link.width.max, clocks.max.sm [MHz], power.limit [W], "
    "power.default_limit [W], ecc.mode.current\n"
    "NVIDIA L40S, 46068 MiB, 4, 16, 2520 MHz, 280.00 W, 350.00 W, Enabled\n"
    "NVIDIA L40S, 46068 MiB, 4, 16, 2520 MHz, 280.00 W, 350.00 W, Enabled\n";

// scontrol show node, of `count` nodes with eight H100 and one of the login kind.
inline std::string SlurmNodes(int count) {
  std::string text = R"(NodeName=login1 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=0.10
   Gres=(null)
   OS=Linux 5.15.0-1040 #45-Ubuntu SMP
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1

)";
  for (int i = 1; i <= count; ++i) {
    absl::StrAppendFormat(&text, R"(NodeName=gpu%03d Arch=x86_64 CoresPerSocket=56
   CPUAlloc=224 CPUEfctv=224 CPUTot=224 CPULoad=11.07
   AvailableFeatures=ib,h100
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=gpu%03d NodeHostName=gpu%03d Version=23.11.6
   OS=Linux 5.15.0-1040 #45-Ubuntu SMP
   RealMemory=2063000 AllocMem=0 FreeMem=1990000 Sockets=2 Boards=1
   State=%s ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A
   CfgTRES=cpu=224,mem=2063000M,billing=224,gres/gpu=8

)",
                          i, i, i, i == 2 ? "IDLE+DRAIN" : "ALLOCATED");
  }
  return text;
}

// 64 nodes on two leaves.
inline constexpr char kSwitches[] =
    "# two leaves below a spine\n"
    "SwitchName=leaf1 Nodes=gpu[001-032]\n"
    "SwitchName=leaf2 Nodes=gpu[033-064]\n"
    "SwitchName=spine Switches=leaf[1-2]\n";

}  // namespace meshwright

#endif  // MESHWRIGHT_TOOLS_IMPORT_TESTING_H_
