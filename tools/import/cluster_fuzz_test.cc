// Descriptions that have been damaged: reading them ends well, and what is written is read by the reader of clusters.
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "costmodel/library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/damage.h"
#include "ir/document.h"
#include "ir/testing.h"
#include "tools/exit_code.h"
#include "tools/import/cluster.h"
#include "tools/import/testing.h"

namespace meshwright {
namespace {

constexpr absl::string_view kTokens[] = {"-1",
                                         "0",
                                         "9223372036854775808",
                                         "<",
                                         ">",
                                         "/>",
                                         "\"",
                                         "&lt;",
                                         "<gpu/>",
                                         "<!DOCTYPE a [",
                                         "]>",
                                         "X",
                                         "NV18",
                                         "NV0",
                                         "PIX",
                                         "\n",
                                         "\t",
                                         "\x1b[",
                                         ",",
                                         "[",
                                         "]",
                                         "[0-9]",
                                         "(",
                                         "Gres=gpu:2",
                                         "Nodes=",
                                         "MiB",
                                         "nan",
                                         "1e400",
                                         "CPU",
                                         "GPU9999",
                                         "sm=\"90\"",
                                         "a.yaml",
                                         "\xff\xfe"};

void ReadDamaged(const std::string& text, const ClusterHints& hints) {
  constexpr uint32_t kSeeds = 3000;
  EXPECT_OK(ImportCluster(text, "text.txt", hints));
  uint32_t read = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const std::string damaged = Damaged(text, kTokens, 4, random);
    const absl::StatusOr<Imported> imported = ImportCluster(damaged, "text.txt", hints);
    if (!imported.ok()) {
      EXPECT_NE(ExitCodeOf(imported.status()), ExitCode::kBug) << imported.status();
      EXPECT_THAT(std::string(imported.status().message()), testing::HasSubstr("text.txt:"));
      EXPECT_LT(imported.status().message().size(), 4096u);
      continue;
    }
    ++read;
    EXPECT_LT(imported->notes.size(), 32u);
    ASSERT_OK_AND_ASSIGN(const Document document, ParseDocument(imported->text, "cluster.yaml"));
    EXPECT_OK(ReadCluster(document.root()));
  }
  EXPECT_GT(read, 20u);
  EXPECT_LT(read, kSeeds);
}

TEST(ClusterFuzzTest, Topologies) {
  ReadDamaged(DgxH100Topology(), {"h100", std::nullopt});
  ReadDamaged(HgxA100Topology(), {"a100", 2});
  ReadDamaged(kGraceTopology, {});
}
TEST(ClusterFuzzTest, PcieTopology) { ReadDamaged(kPcieTopology, {"l40s", std::nullopt}); }
TEST(ClusterFuzzTest, Matrix) { ReadDamaged(DgxH100Matrix() + GpuList("NVIDIA H100 80GB HBM3", 8), {}); }
TEST(ClusterFuzzTest, Table) { ReadDamaged(kL40sTable, {}); }
TEST(ClusterFuzzTest, Slurm) { ReadDamaged(SlurmNodes(2) + kSwitches, {}); }

// What a stranger writes to make a reader run long or deep.
TEST(ClusterFuzzTest, TextsMadeToHurtEndSoon) {
  constexpr size_t kSize = size_t{16} << 20;
  const auto repeated = [](absl::string_view front, absl::string_view part) {
    std::string parts(part);
    while (front.size() + 2 * parts.size() < kSize) parts += parts;
    return absl::StrCat(front, parts);
  };
  std::string deep = "<system>";
  for (int i = 0; i < 90000; ++i) deep += "<pci>";
  for (int i = 0; i < 90000; ++i) deep += "</pci>";
  for (const std::string& text : {repeated("<system>", "<pci>"),
                                  repeated("<system>", "<pci/>"),
                                  repeated("<system", " a=\"\""),
                                  repeated("<system>", "&#65;"),
                                  repeated("<system><gpu sm=\"90\" a=\"", "&lt;"),
                                  repeated("<!DOCTYPE system ", "[<!"),
                                  repeated("<!DOCTYPE system [", "<!ENTITY a \"b\">"),
                                  repeated("<!--", "-"),
                                  repeated("", "<?a?>"),
                                  repeated("GPU0 GPU1", " GPU2"),
                                  repeated("GPU0 CPU Affinity\n", "GPU0 X\n"),
                                  repeated("GPU0 NIC0 CPU Affinity\nGPU0 X PIX\n", "NIC0: a\n"),
                                  repeated("", "GPU 0: a (UUID: b)\n"),
                                  repeated("name, uuid", ", a"),
                                  repeated("name, uuid\n", "a, b\n"),
                                  repeated("", "NodeName=a[0-9],b[0-9] Gres=gpu:8\n"),
                                  repeated("NodeName=a", "[0-9]"),
                                  repeated("NodeName=", "["),
                                  repeated("NodeName=a[0", ",0"),
                                  repeated("NodeName=a Gres=gpu", ":"),
                                  repeated("SwitchName=a Nodes=a", ",a"),
                                  repeated("", "SwitchName=a Nodes=a\n"),
                                  repeated("\x1b[", "0;")}) {
    SCOPED_TRACE(text.substr(0, 40));
    const absl::StatusOr<Imported> imported = ImportCluster(text, "text.txt", {"h100", std::nullopt});
    if (!imported.ok()) {
      EXPECT_LT(imported.status().message().size(), 4096u);
    }
  }
}

}  // namespace
}  // namespace meshwright
