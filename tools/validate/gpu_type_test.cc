#include "tools/validate/gpu_type.h"

#include <vector>

#include "absl/strings/string_view.h"
#include "costmodel/library.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

TEST(GpuTypeTest, FreeTextLeadsToADevice) {
  struct Case {
    absl::string_view text;
    double memory_gb;
    absl::string_view device;
  };
  for (const Case& c : std::vector<Case>{{"H100", 0, "h100-sxm"},
                                         {"H100", 80, "h100-sxm"},
                                         {"H100", 96, "h100-sxm-96gb"},
                                         {"NVIDIA H100 64GB", 0, "h100-sxm-64gb"},
                                         {"A100", 64, "a100-sxm-64gb"},
                                         {"NVIDIA A100-PCIE-40GB", 40, "a100-pcie-40gb"},
                                         {"A100", 40, "a100-sxm-40gb"},
                                         {"H100 SXM (80GB HBM3)", 0, "h100-sxm"},
                                         {"8x NVIDIA A100-SXM4-40GB", 0, "a100-sxm-40gb"},
                                         {"H100 (96GB HBM2e, 2.4 TB/s, 500W)", 0, "h100-sxm-96gb"},
                                         {"A100 80GB PCIe, dual socket", 0, "a100-pcie-80gb"},
                                         {"NVIDIA GB200 NVL72 (186 GB)", 0, "gb200"},
                                         {"DGX-H200", 141, "h200"},
                                         {"GH200 480GB, air cooled", 0, "gh200"},
                                         {"H800 SXM5", 80, "h800-sxm"},
                                         {"B300 SXM", 0, "b300"},
                                         {"DGX-GB300", 0, "gb300"},
                                         {"VR200", 288, "vr200"},
                                         {"Vera Rubin NVL72", 0, "vr200"},
                                         {"NVIDIA GeForce RTX 5090", 0, "rtx-5090"},
                                         {"RTX PRO 6000 Blackwell", 96, "rtx-pro-6000"},
                                         {"NVIDIA H100 NVL", 94, "h100-nvl"},
                                         {"NVIDIA H200 NVL", 141, "h200"},
                                         {"NVIDIA A30", 24, "a30"},
                                         {"NVIDIA GeForce RTX 4090", 24, "rtx-4090"},
                                         {"4x RTX 3090 (24GB)", 0, "rtx-3090"},
                                         {"NVIDIA GeForce RTX 3090 Ti", 24, "rtx-3090-ti"},
                                         {"Tesla V100-SXM3-32GB", 0, "v100-sxm3-32gb"},
                                         {"NVIDIA RTX A6000", 48, "rtx-a6000"},
                                         {"NVIDIA RTX A5000", 0, "rtx-a5000"},
                                         {"RTX 6000 Ada", 0, "rtx-6000-ada"},
                                         {"A10G", 24, "a10g"},
                                         {"NVIDIA A10", 0, "a10"},
                                         {"NVIDIA L4", 0, "l4"},
                                         {"Tesla T4", 16, "t4"},
                                         {"NVIDIA L40 48GB", 0, "l40"},
                                         {"NVIDIA L40S", 48, "l40s"},
                                         {"NVIDIA L20", 48, "l20"},
                                         {"NVIDIA GeForce RTX 2080 Ti 11GB", 0, "rtx-2080-ti"},
                                         {"a4-highgpu-8g", 0, "b200"},
                                         {"a4x-highgpu-4g", 0, "gb200"},
                                         {"p6-b200.48xlarge", 0, "b200"},
                                         {"H20 SXM 96GB", 0, "h20"},
                                         {"p4d.24xlarge", 0, "a100-sxm-40gb"},
                                         {"p4de.24xlarge", 0, "a100-sxm-80gb"},
                                         {"p5.48xlarge", 0, "h100-sxm"},
                                         {"p5en.48xlarge", 0, "h200"},
                                         {"g6e.12xlarge", 0, "l40s"},
                                         {"a3-ultragpu-8g", 0, "h200"},
                                         {"a2-highgpu-8g", 0, "a100-sxm-40gb"}}) {
    ASSERT_OK_AND_ASSIGN(const std::string name, DeviceNamed(c.text, c.memory_gb));
    ASSERT_OK_AND_ASSIGN(const Device device, FindDevice(name));
    EXPECT_EQ(device.name, c.device) << c.text;
  }
}

TEST(GpuTypeTest, DevicesThatTheLibraryLacksAreRefused) {
  for (const absl::string_view text : {"MI300X", "TPU v5p", "p6.48xlarge", "RTX A4000", "", "not stated"}) {
    EXPECT_EQ(DeviceNamed(text).status().code(), absl::StatusCode::kUnimplemented) << text;
  }
}

}  // namespace
}  // namespace meshwright
