#include "tests/semantics/networks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "executor/host/host_backend.h"
#include "executor/host/thread_fabric.h"
#include "executor/runner.h"
#include "ir/status.h"
#include "tests/semantics/pipelines.h"

namespace meshwright {
namespace {

// Keeps what one collective leaves on this rank.
class Recorder : public HostBackend {
 public:
  Recorder(Endpoint& endpoint, const Collective* watched, std::vector<double>& kept)
      : HostBackend(endpoint), watched_(watched), kept_(kept) {}
  absl::Status RunCollective(Stream stream, const CollectiveCall& call) override {
    MESHWRIGHT_RETURN_IF_ERROR(HostBackend::RunCollective(stream, call));
    if (call.collective != watched_) return absl::OkStatus();
    const TensorView& view = call.writes[0];
    kept_.assign(view.as<double>(), view.as<double>() + view.size());
    return absl::OkStatus();
  }

 private:
  const Collective* const watched_;
  std::vector<double>& kept_;
};

}  // namespace

std::string NetworkFile(absl::string_view inputs, absl::string_view parameters,
                        const std::vector<absl::string_view>& operators, absl::string_view parallel, int64_t devices,
                        absl::string_view layouts) {
  std::string text = absl::StrCat("name: network\ninputs: {", inputs, "}\nparameters: {", parameters, "}\n");
  if (!layouts.empty()) absl::StrAppend(&text, "layouts: {", layouts, "}\n");
  text += "operators:\n";
  for (const absl::string_view op : operators) absl::StrAppend(&text, "  - {", op, "}\n");
  absl::StrAppend(&text, "training: {dtype: float64, optimizer: {sgd: {learning_rate: 0.1}}}\nparallel: {");
  if (!absl::StrContains(parallel, "parallel_mode")) text += "parallel_mode: semi_auto_parallel, ";
  if (!absl::StrContains(parallel, "dataset_strategy") && !absl::StrContains(parallel, "full_batch")) {
    text += "dataset_strategy: full_batch, ";
  }
  return absl::StrCat(text, parallel, "}\ncluster: {device: host, nodes: 1, devices_per_node: ", devices, "}\n");
}

std::string Product(const ProductFile& file) {
  const std::string inputs = absl::StrCat(
      "x: {shape: ", file.x, ", init: {formula: {a: 7, b: 3, mod: 11, sub: 0, div: 11}}}, y: {shape: ", file.y, "}");
  const std::string parameters =
      absl::StrCat("w: {shape: ", file.w, ", init: {formula: {a: 3, b: 5, mod: 7, sub: 3, div: 20}}}");
  const std::string product =
      absl::StrCat("name: matmul, op: MatMul, inputs: [x, w]", file.keys.empty() ? "" : ", ", file.keys);
  return NetworkFile(inputs, parameters, {product, "name: loss, op: MSELoss, inputs: [matmul, y]"}, file.parallel,
                     file.devices, file.layouts);
}

absl::StatusOr<Network> Network::Make(const std::string& yaml) {
  MESHWRIGHT_ASSIGN_OR_RETURN(PlannedRun planned, PlanModel(yaml));
  Network network;
  network.program_ = std::move(planned.program);
  return network;
}

const Instruction& Network::Kernel(absl::string_view op) const {
  for (const Block& block : program_.classes[0].blocks) {
    if (block.phase != Phase::kForward) continue;
    for (const Instruction& instruction : block.instructions) {
      const bool kernel = std::holds_alternative<Compute>(instruction.work);
      if (kernel && absl::EndsWith(instruction.origin, absl::StrCat("/", op))) return instruction;
    }
  }
  std::fprintf(stderr, "no kernel of an operator \"%s\"\n", std::string(op).c_str());
  std::abort();
}

std::string Network::SliceOf(const Buffer& b, int64_t rank) const {
  const Shape begin = SliceBegin(b.shape, b.layout, program_.mesh, rank);
  const Shape local = LocalShape(b.shape, b.layout, program_.mesh);
  std::vector<std::string> dims;
  for (size_t d = 0; d < begin.size(); ++d) dims.push_back(absl::StrCat(begin[d], ":", begin[d] + local[d]));
  return absl::StrJoin(dims, ", ");
}

std::string Network::ReplicasOf(const Buffer& b, int64_t rank) const {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < program_.mesh.num_ranks(); ++r) {
    if (SliceOf(b, r) == SliceOf(b, rank)) ranks.push_back(r);
  }
  return absl::StrJoin(ranks, ",");
}

const Instruction* Network::Reduction(absl::string_view op) const {
  const Operand made = Kernel(op).writes[0];
  if (buffer(made).layout.partial.empty()) return nullptr;
  for (const Block& block : program_.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const bool collective = std::holds_alternative<Collective>(instruction.work);
      if (collective && instruction.reads[0] == made) return &instruction;
    }
  }
  return nullptr;
}

const Buffer& Network::Output(absl::string_view op) const {
  const Instruction* const reduction = Reduction(op);
  return buffer(reduction == nullptr ? Kernel(op).writes[0] : reduction->writes[0]);
}

std::string Network::Reads(absl::string_view op, size_t i, int64_t rank) const {
  return SliceOf(buffer(Kernel(op).reads[i]), rank);
}
std::string Network::Holds(absl::string_view op, int64_t rank) const { return SliceOf(Output(op), rank); }
std::string Network::Replicas(absl::string_view op, size_t i, int64_t rank) const {
  return ReplicasOf(buffer(Kernel(op).reads[i]), rank);
}
std::string Network::OutputReplicas(absl::string_view op, int64_t rank) const { return ReplicasOf(Output(op), rank); }

std::string Network::Feeds(absl::string_view input, int64_t rank) const {
  for (const Buffer& b : program_.classes[0].buffers) {
    if (b.role == BufferRole::kInput && b.name == input) return SliceOf(b, rank);
  }
  return "not fed";
}

std::string Network::Local(absl::string_view op) const {
  std::string text;
  const auto local = [&](const Operand& operand) {
    const Buffer& b = buffer(operand);
    return ToText(LocalShape(b.shape, b.layout, program_.mesh));
  };
  for (const Operand& read : Kernel(op).reads) text += local(read);
  return absl::StrCat(text, "->", local(Kernel(op).writes[0]));
}

std::string Network::Reduces(absl::string_view op, int64_t rank) const {
  const Instruction* const reduction = Reduction(op);
  if (reduction == nullptr) return "";
  const auto& collective = std::get<Collective>(reduction->work);
  return absl::StrCat(NameOf(collective.kind), " ", absl::StrJoin(program_.mesh.Group(rank, collective.axes), "-"));
}

std::string Network::Mirror(absl::string_view parameter, int64_t rank) const {
  for (const Block& block : program_.classes[0].blocks) {
    for (const Instruction& instruction : block.instructions) {
      const auto* const collective = std::get_if<Collective>(&instruction.work);
      if (collective == nullptr || collective->purpose != Purpose::kGradient) continue;
      for (const Operand& read : instruction.reads) {
        if (buffer(read).name != absl::StrCat("d", parameter)) continue;
        std::vector<int64_t> group = program_.mesh.Group(rank, collective->axes);
        std::sort(group.begin(), group.end());
        return absl::StrJoin(group, "-");
      }
    }
  }
  return "";
}

absl::StatusOr<std::vector<std::vector<double>>> Network::RunAndKeepReduced(absl::string_view op) const {
  const Instruction* const reduction = Reduction(op);
  if (reduction == nullptr) return absl::NotFoundError("no collective");
  const int64_t n = program_.mesh.num_ranks();
  ThreadFabric fabric(n, {});
  std::vector<std::vector<double>> kept(n);
  std::vector<absl::Status> statuses(n);
  std::vector<std::thread> threads;
  const SyntheticData data(1);
  for (int64_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      Recorder backend(fabric.endpoint(rank), &std::get<Collective>(reduction->work), kept[rank]);
      statuses[rank] = RunRank(program_, RunOptions{}, data, rank, backend).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  MESHWRIGHT_RETURN_IF_ERROR(FirstError(statuses));
  return kept;
}

}  // namespace meshwright
