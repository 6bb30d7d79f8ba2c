#include "simulator/price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "costmodel/host_op.h"
#include "costmodel/library.h"
#include "ir/status.h"
#include "simulator/alike_blocks.h"
#include "simulator/framework_kernels.h"
#include "simulator/keep_pace.h"
#include "simulator/network_links.h"
#include "simulator/single_ranks.h"
#include "simulator/time_use.h"

namespace meshwright {
namespace {

// Share of a link's data sheet bandwidth that transfers can fill: RDMA writes reach 0.92 to 0.97 of the line rate, one
// NVLink pair 376 of 450 GB/s on H100 and 274 of 300 on A100 (NVIDIA/nccl-tests figures); the middle of these.
constexpr double kFillableShare = 0.92;

int32_t ToShare(double share) { return static_cast<int32_t>(std::lround(std::clamp(share, 0.0, 1.0) * kWhole)); }
int32_t ShareOfSlowdown(double slowdown) { return ToShare(1 - 1 / std::max(1.0, slowdown)); }

BytesPerSecond RateOf(Bytes bytes, Nanos time) {
  return BytesPerSecond(time.raw() > 0 ? static_cast<double>(bytes.raw()) / ToSeconds(time) : 0);
}

Bytes SumOf(const absl::InlinedVector<Operand, 4>& operands, const RankClass& rank_class, const Mesh& mesh) {
  Bytes sum;
  for (const Operand& operand : operands) sum += LocalBytes(rank_class.buffers[operand.buffer.index()], mesh);
  return sum;
}

// Whether pieces along `dim` of the buffer's local tensor are strided: some dim outside of it has more than one index.
bool IsStrided(const Buffer& buffer, int32_t dim, const Mesh& mesh) {
  const Shape local = LocalShape(buffer.shape, buffer.layout, mesh);
  return std::any_of(local.begin(), local.begin() + std::min<size_t>(dim, local.size()),
                     [](int64_t size) { return size > 1; });
}

// Whether all groups over `axes` lie on the nodes in the same way: no axis straddles the border of a node unevenly.
bool LieAlike(const Mesh& mesh, const AxisList& axes, int64_t devices_per_node) {
  return std::all_of(axes.begin(), axes.end(), [&](AxisId id) {
    const MeshAxis& axis = mesh.axis(id);
    const int64_t span = axis.stride * axis.size;
    return axis.stride % devices_per_node == 0 || devices_per_node % span == 0 ||
           (devices_per_node % axis.stride == 0 && span % devices_per_node == 0);
  });
}

int64_t RanksPerCard(const Cluster& cluster) {
  const int64_t cards = std::max<int64_t>(1, cluster.nics_per_node);
  return (cluster.devices_per_node + cards - 1) / cards;
}

// How many ranks of [first, first + count) at most use one network card to reach the rank `distance` further on another
// node; 0 where none leaves its node.
int64_t CrossingPerCard(int64_t first, int64_t count, int64_t distance, const Cluster& cluster) {
  // Whole nodes away: everybody crosses.
  if (distance % cluster.devices_per_node == 0 && distance != 0) {
    return std::min(count, RanksPerCard(cluster));
  }
  const int64_t cards = std::max<int64_t>(1, cluster.nics_per_node);
  int64_t most = 0, here = 0, last_card = -1;
  for (int64_t rank = first; rank < first + count; ++rank) {
    const int64_t card = rank * cards / cluster.devices_per_node;
    if (card != last_card) here = 0;
    last_card = card;
    if (cluster.NodeOf(rank) != cluster.NodeOf(rank + distance)) most = std::max(most, ++here);
  }
  return most;
}

class Pricer {
 public:
  Pricer(const Program& program, const CostModel& costs, const HostPace& host, const ClassCopies& copies)
      : program_(program),
        copies_(copies),
        costs_(costs),
        host_(host),
        framework_(program, costs, host_),
        network_(program, costs.cluster()) {}

  absl::StatusOr<Prices> Run() {
    const Cluster& cluster = costs_.cluster();
    if (program_.mesh.num_ranks() > cluster.num_devices()) {
      return absl::InvalidArgumentError(absl::StrCat("program \"", program_.name, "\" needs ",
                                                     program_.mesh.num_ranks(), " ranks, the cluster has ",
                                                     cluster.num_devices(), " devices (", ToText(cluster), ")"));
    }
    stage_axis_ = program_.classes.size() > 1 ? program_.mesh.Find("pp") : AxisId();
    Prices prices;
    AlikeBlocks alike(program_, copies_, cluster.devices_per_node);
    // Else prices also depend on which operands are the same, or on which links the class shares with others.
    const bool same_operands = host_.overlaps_products || host_.gathers_each;
    const bool may_be_alike =
        !same_operands && !network_.any() && !program_.classes.empty() && !program_.classes[0].slots.empty();
    for (size_t c = 0; c < program_.classes.size(); ++c) {
      class_index_ = c;
      const size_t written = copies_.Of(c);
      rank_class_ = &program_.classes[written];
      const bool copied = may_be_alike && written < c && PlaceInNode(written) == PlaceInNode(c);
      auto& blocks = prices.classes.emplace_back();
      prices.of.push_back(copied ? written : c);
      if (copied) continue;
      for (const Block& block : rank_class_->blocks) {
        auto& instructions = blocks.emplace_back();
        if (may_be_alike) {
          if (const auto like = alike.FindOrNote({c, blocks.size() - 1}); like.has_value()) {
            instructions = prices.classes[like->class_index][like->block];
            continue;
          }
        }
        phase_ = block.phase;
        instructions.reserve(block.instructions.size());
        for (const Instruction& instruction : block.instructions) {
          instruction_ = &instruction;
          if (const auto* collective = std::get_if<Collective>(&instruction.work)) {
            MESHWRIGHT_RETURN_IF_ERROR(CheckAxes(*collective));
          }
          nic_share_ = 0;
          const auto* compute = std::get_if<Compute>(&instruction.work);
          if (compute != nullptr && compute->on_host && !host_device_.has_value()) {
            MESHWRIGHT_ASSIGN_OR_RETURN(host_device_, FindDevice("host"));
          }
          instructions.push_back(std::visit(*this, instruction.work));
          // What is never played, as the single steps that redistributions are compared by, shares nothing.
          if (network_.any() && nic_share_ > 0 && !rank_class_->slots.empty()) {
            instructions.back().shared = network_.UsesOf(c, instruction.work, nic_share_);
          }
        }
        if (host_ == HostPace()) continue;
        const std::vector<GroupShape> groups = GroupsOf(block);
        if (host_.gathers_each) GatherEach(block, *rank_class_, program_.mesh, &instructions);
        if (host_.overlaps_products) OverlapProducts(block, groups, &instructions);
        if (host_.experts.sent_share < 1) SendShare(block, groups, host_.experts.sent_share, &instructions);
        if (host_.experts.joins) JoinDispatches(block, groups, &instructions);
        if (host_.experts.overlaps) {
          const int blocks = host_.experts.dispatch_blocks;
          OverlapExperts(block, blocks > 0 ? ShareOfSlowdown(costs_.ComputeSlowdown(blocks)) : 0, &instructions);
        }
        KeepPace(block, *rank_class_, program_.mesh, host_, costs_.HostLaunch(), &instructions);
      }
      KeepBusiestOwner(*rank_class_, blocks);
    }
    // Not before: other blocks may cost the same as a block, whoever's turn it is there.
    for (size_t c = 0; c < program_.classes.size(); ++c) {
      const RankClass& written = program_.classes[copies_.Of(c)];
      if (prices.of[c] == c) ShareTurns(written, program_.ranks_per_class(), prices.classes[c]);
    }
    if (network_.any()) NetworkLinks::KeepWhatCanBeShort(program_, copies_, prices);
    return prices;
  }

  // Of the only instruction of a program that is not played.
  Nanos PriceOfStep() {
    if (program_.mesh.num_ranks() > costs_.cluster().num_devices()) return kForever;
    rank_class_ = &program_.classes[0];
    instruction_ = &rank_class_->blocks[0].instructions[0];
    return std::visit(*this, instruction_->work).time;
  }

  // S13.5. Of a result that is added to what is there, that is copied down first.
  InstructionPrice PriceOfHostKernel(const Compute& compute) const {
    std::vector<Bytes> copies;
    const auto add = [&](const Operand& operand) {
      copies.push_back(LocalBytes(rank_class_->buffers[operand.buffer.index()], program_.mesh));
    };
    for (const Operand& read : instruction_->reads) add(read);
    for (const Operand& write : instruction_->writes) {
      const BufferRole role = rank_class_->buffers[write.buffer.index()].role;
      if (compute.accumulate && (role == BufferRole::kGradient || role == BufferRole::kLoss)) add(write);
      add(write);
    }
    InstructionPrice price;
    const KernelWork work = WorkOf(*instruction_, compute, *rank_class_, program_.mesh);
    price.time = PriceOnHost(work, copies, costs_.cluster(), *host_device_);
    price.estimated = true;
    return price;
  }

  InstructionPrice operator()(const Compute& compute) const {
    if (compute.on_host) return PriceOfHostKernel(compute);
    const KernelWork work = WorkOf(*instruction_, compute, *rank_class_, program_.mesh);
    const KernelEstimate estimate = costs_.Estimate(work);
    InstructionPrice price;
    price.time = estimate.time + framework_.AroundKernel(*instruction_, work, *rank_class_, phase_);
    // Muon's are one for each matrix, where others' are one for all parameters.
    const bool of_muon = compute.op == OpKind::kMuonStep || compute.op == OpKind::kMuon;
    if (IsOptimizer(compute.op) && !of_muon) price.time = std::max(price.time, host_.update);
    price.estimated = estimate.estimated;
    switch (estimate.bound) {
      case Bound::kCompute:
        price.slowed_by = SlowedBy::kMultiprocessors;
        break;
      case Bound::kMemory:
        price.slowed_by = SlowedBy::kMemory;
        break;
      case Bound::kNothing:
      case Bound::kLaunch:
        break;
    }
    return price;
  }

  InstructionPrice operator()(const Slice&) const {
    InstructionPrice price;
    price.slowed_by = SlowedBy::kMemory;
    price.time = CopyTime(SumOf(instruction_->writes, *rank_class_, program_.mesh), costs_);
    return price;
  }

  InstructionPrice operator()(const Collective& collective) {
    const CollectiveInfo& info = InfoOf(collective.kind);
    const bool gradient = collective.purpose == Purpose::kGradient;
    // S of ir/collective.h: whichever side holds all of it.
    const auto& operands = info.before == Holding::kWhole ? instruction_->reads : instruction_->writes;
    Bytes size = SumOf(operands, *rank_class_, program_.mesh);
    if (collective.purpose == Purpose::kParameter) {
      size = Bytes(std::llround(static_cast<double>(size.raw()) * host_.gathered_share));
    }
    const bool whole = host_.reduces_whole && gradient && collective.kind == CollectiveKind::kReduceScatter;
    InstructionPrice price = Communication(
        costs_.Collective(whole ? CollectiveKind::kAllReduce : collective.kind, size, Shape(collective.axes)));
    for (size_t i = 0; i < instruction_->writes.size() && program_.mesh.SizeOf(collective.axes) > 1; ++i) {
      price.time += ReorderTime(collective, rank_class_->buffers[instruction_->reads[i].buffer.index()],
                                rank_class_->buffers[instruction_->writes[i].buffer.index()]);
    }
    if (!whole) price.time += framework_.AroundCollective(*instruction_, size);
    if (host_.reduces_each && gradient) price.time = Nanos(price.time.raw() * program_.num_microbatches);
    if (host_.scatters_once && gradient && collective.kind == CollectiveKind::kReduceScatter) {
      price.time = Nanos(price.time.raw() / program_.num_microbatches);
    }
    if (collective.purpose == Purpose::kParameter) {
      price.time += Nanos(std::llround(static_cast<double>(price.time.raw()) * host_.gathers_again / 2));
    }
    return price;
  }

  // Each rank sends its piece to one other and gets one: a transfer over whatever its axes span.
  InstructionPrice operator()(const Permute& permute) {
    if (!permute.sources.empty()) return PriceOfExchange(permute);
    const Layout& from = rank_class_->buffers[instruction_->reads[0].buffer.index()].layout;
    const Layout& to = rank_class_->buffers[instruction_->writes[0].buffer.index()].layout;
    std::set<AxisId> moved;
    for (size_t dim = 0; dim < std::max(from.dims.size(), to.dims.size()); ++dim) {
      const AxisList before = dim < from.dims.size() ? from.dims[dim] : AxisList();
      const AxisList after = dim < to.dims.size() ? to.dims[dim] : AxisList();
      for (size_t i = 0; i < std::max(before.size(), after.size()); ++i) {
        if (i < before.size() && i < after.size() && before[i] == after[i]) continue;
        if (i < before.size()) moved.insert(before[i]);
        if (i < after.size()) moved.insert(after[i]);
      }
    }
    const GroupShape shape = Shape(AxisList(moved.begin(), moved.end()));
    const Bytes bytes = SumOf(instruction_->writes, *rank_class_, program_.mesh);
    return Communication(costs_.SendRecv(bytes, shape.nodes > 1, RanksPerCard(costs_.cluster())));
  }

  InstructionPrice operator()(const Sync&) const { return InstructionPrice(); }

  InstructionPrice operator()(const Transfer& transfer) {
    if (host_.updates_shared && transfer.purpose == Purpose::kParameter) return InstructionPrice();
    const Mesh& mesh = program_.mesh;
    const Cluster& cluster = costs_.cluster();
    const int64_t ranks = program_.ranks_per_class();
    const int64_t first = program_.RankOf(class_index_, 0);
    const int64_t sharing = CrossingPerCard(first, ranks, transfer.stage_offset * ranks, cluster);
    const auto& operands = transfer.send ? instruction_->reads : instruction_->writes;
    const bool crosses = sharing > 0;
    const Bytes bytes = SumOf(operands, *rank_class_, mesh);
    const int64_t copies = host_.scatters_transfers ? CopiesOf(operands) : 1;
    InstructionPrice price =
        Communication(costs_.SendRecv(Bytes(bytes.raw() / copies), crosses, std::max<int64_t>(1, sharing)));
    if (copies > 1 && !transfer.send) {
      price.time += costs_.Collective(CollectiveKind::kAllGather, bytes, Shape({mesh.Find("tp")})).time;
    }
    const Link idle[] = {transfer.send ? Link::kIntraIn : Link::kIntraOut,
                         transfer.send ? Link::kNicIn : Link::kNicOut};
    for (const Link link : idle) price.links[static_cast<size_t>(link)] = 0;
    return price;
  }

 private:
  // Of the first rank of a class. Groups and transfers of classes that begin at the same place lie alike.
  int64_t PlaceInNode(size_t c) const { return program_.RankOf(c, 0) % costs_.cluster().devices_per_node; }

  // Ranks of the axis "tp" that hold the same values of all operands; 1 where some are split.
  int64_t CopiesOf(const absl::InlinedVector<Operand, 4>& operands) const {
    const AxisId tensor = program_.mesh.Find("tp");
    if (!tensor.valid()) return 1;
    const bool split = std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
      const auto& dims = rank_class_->buffers[operand.buffer.index()].layout.dims;
      return std::any_of(dims.begin(), dims.end(), [&](const AxisList& axes) {
        return std::find(axes.begin(), axes.end(), tensor) != axes.end();
      });
    });
    return split ? 1 : program_.mesh.axis(tensor).size;
  }

  // The slowest message: over the network where one leaves its node, shared by those that leave by the same card. Ranks
  // that keep their own value, or get none, only write it.
  InstructionPrice PriceOfExchange(const Permute& permute) {
    const Bytes bytes = SumOf(instruction_->writes, *rank_class_, program_.mesh);
    auto known = exchanges_.find({class_index_, permute.sources});
    if (known == exchanges_.end() || known->second.axes != permute.axes) {
      known = exchanges_.insert_or_assign({class_index_, permute.sources}, Exchanged(permute)).first;
    }
    const auto& [axes, most, moves] = known->second;
    if (moves) return Communication(costs_.SendRecv(bytes, most > 0, std::max<int64_t>(1, most)));
    InstructionPrice price;
    price.slowed_by = SlowedBy::kMemory;
    price.time = CopyTime(bytes, costs_);
    return price;
  }

  struct Crossing {
    AxisList axes;
    int64_t most = 0;    // messages that leave a node by one card
    bool moves = false;  // whether anybody gets another rank's value
  };
  Crossing Exchanged(const Permute& permute) const {
    const Mesh& mesh = program_.mesh;
    const Cluster& cluster = costs_.cluster();
    const int64_t cards = std::max<int64_t>(1, cluster.nics_per_node);
    std::map<int64_t, int64_t> leaving;  // by card of the cluster
    int64_t most = 0;
    bool moves = false;
    for (int64_t r = 0; r < program_.ranks_per_class(); ++r) {
      const int64_t rank = program_.RankOf(class_index_, r);
      const int32_t place = permute.sources[static_cast<size_t>(mesh.PositionOf(rank, permute.axes))];
      if (place < 0) continue;
      const int64_t source = mesh.Group(rank, permute.axes)[static_cast<size_t>(place)];
      moves = moves || source != rank;
      if (cluster.NodeOf(source) == cluster.NodeOf(rank)) continue;
      most = std::max(most, ++leaving[source * cards / cluster.devices_per_node]);
    }
    return {permute.axes, most, moves};
  }

  // Of collectives, by instruction.
  std::vector<GroupShape> GroupsOf(const Block& block) {
    std::vector<GroupShape> groups(block.instructions.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto* collective = std::get_if<Collective>(&block.instructions[i].work);
      if (collective != nullptr) groups[i] = Shape(collective->axes);
    }
    return groups;
  }

  absl::Status CheckAxes(const Collective& collective) const {
    if (!stage_axis_.valid()) return absl::OkStatus();
    if (std::find(collective.axes.begin(), collective.axes.end(), stage_axis_) == collective.axes.end()) {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(rank_class_->name, ": ", NameOf(collective.kind), " (",
                                                 instruction_->origin,
                                                 ") is over the stages: its ranks are of different classes"));
  }

  GroupShape Shape(const AxisList& axes) {
    const int64_t first = program_.RankOf(class_index_, 0);
    const auto key = std::make_pair(PlaceInNode(class_index_), std::vector<AxisId>(axes.begin(), axes.end()));
    const auto found = shapes_.find(key);
    if (found != shapes_.end()) return found->second;
    GroupShape shape = ShapeOf(program_.mesh, axes, first, program_.ranks_per_class(), costs_.cluster());
    const AxisId data = program_.mesh.Find("dp");
    if (host_.replicas > 0 && data.valid() && std::find(axes.begin(), axes.end(), data) != axes.end()) {
      const int64_t before = program_.mesh.axis(data).size;
      shape.ranks = shape.ranks / before * host_.replicas;
      if (shape.nodes > 1) shape.nodes = (shape.ranks + shape.ranks_per_node - 1) / shape.ranks_per_node;
    }
    return shapes_[key] = shape;
  }

  Nanos ReorderTime(const Collective& collective, const Buffer& read, const Buffer& write) const {
    const Mesh& mesh = program_.mesh;
    const auto copy_if = [&](bool strided, const Buffer& buffer) {
      return strided ? CopyTime(LocalBytes(buffer, mesh), costs_) : Nanos();
    };
    switch (collective.kind) {
      case CollectiveKind::kAllGather:
        return copy_if(IsStrided(write, collective.dim, mesh), write);
      case CollectiveKind::kReduceScatter:
        return copy_if(IsStrided(read, collective.dim, mesh), read);
      case CollectiveKind::kAllToAll:
        return copy_if(IsStrided(read, collective.to_dim, mesh), read) +
               copy_if(IsStrided(write, collective.dim, mesh), write);
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kBroadcast:
        return Nanos();
    }
    return Nanos();
  }

  InstructionPrice Communication(const CollectiveCost& cost) {
    const Cluster& cluster = costs_.cluster();
    InstructionPrice price;
    price.time = cost.time;
    price.estimated = cost.estimated;
    if (cost.time.raw() == 0 || cost.time >= kForever) return price;
    const BytesPerSecond intra = RateOf(cost.intra_bytes, cost.time);
    const BytesPerSecond nic = RateOf(cost.nic_bytes, cost.time);
    price.multiprocessors = ShareOfSlowdown(costs_.ComputeSlowdown(cost.channels));
    price.memory = ShareOfSlowdown(costs_.MemorySlowdown(intra + nic));
    const auto set = [&](Link out, Link in, BytesPerSecond rate, double bandwidth) {
      const int32_t share = bandwidth > 0 ? ToShare(rate.raw() / (bandwidth * kFillableShare)) : 0;
      price.links[static_cast<size_t>(out)] = price.links[static_cast<size_t>(in)] = share;
    };
    set(Link::kIntraOut, Link::kIntraIn, intra, cluster.intra_bandwidth.raw());
    const double part_of_cards = cluster.nic_bandwidth.raw() * static_cast<double>(cluster.nics_per_node) /
                                 static_cast<double>(cluster.devices_per_node);
    set(Link::kNicOut, Link::kNicIn, nic, part_of_cards);
    nic_share_ = part_of_cards > 0 ? nic.raw() / (part_of_cards * kFillableShare) : 0;
    return price;
  }

  const Program& program_;
  const ClassCopies& copies_;
  const CostModel& costs_;
  const HostPace host_;
  const FrameworkKernels framework_;
  NetworkLinks network_;
  double nic_share_ = 0;  // of the communication that was priced last: of its part of the node's cards, each rank's
  std::optional<Device> host_device_;  // where some kernel runs on it
  AxisId stage_axis_;
  size_t class_index_ = 0;
  const RankClass* rank_class_ = nullptr;
  const Instruction* instruction_ = nullptr;
  Phase phase_ = Phase::kForward;  // of the block of `instruction_`
  std::map<std::pair<int64_t, std::vector<AxisId>>, GroupShape> shapes_;
  std::map<std::pair<size_t, std::vector<int32_t>>, Crossing> exchanges_;  // by class and sources
};

Program WithCollectivesOnComputeStream(Program program) {
  for (RankClass& rank_class : program.classes) {
    for (Block& block : rank_class.blocks) {
      for (Instruction& instruction : block.instructions) {
        const bool between =
            instruction.stream == Stream::kContext && std::holds_alternative<Collective>(instruction.work);
        if (instruction.stream == Stream::kComm || between) instruction.stream = Stream::kCompute;
      }
    }
  }
  return program;
}

}  // namespace

GroupShape ShapeOf(const Mesh& mesh, const AxisList& axes, int64_t first_rank, int64_t num_ranks,
                   const Cluster& cluster) {
  GroupShape worst;
  if (mesh.SizeOf(axes) <= 1) return worst;
  if (LieAlike(mesh, axes, cluster.devices_per_node)) return ShapeOfGroup(mesh.Group(first_rank, axes), cluster);
  const auto badness = [](const GroupShape& shape) {
    return std::make_tuple(shape.nodes, -shape.Fewest(), shape.ranks_per_node);
  };
  for (int64_t rank = first_rank; rank < first_rank + num_ranks; ++rank) {
    if (mesh.PositionOf(rank, axes) != 0) continue;
    const GroupShape shape = ShapeOfGroup(mesh.Group(rank, axes), cluster);
    if (worst.ranks == 1 || badness(shape) > badness(worst)) worst = shape;
  }
  return worst;
}

absl::StatusOr<Prices> PriceProgram(const Program& program, const CostModel& costs, const HostPace& host,
                                    const ClassCopies& copies) {
  return Pricer(program, costs, host, copies).Run();
}

struct StepPrices::State {
  State(const Mesh& mesh, const CostModel& costs) : pricer(program, costs, HostPace(), copies) {
    program.mesh = mesh;
    RankClass& c = program.classes.emplace_back();
    c.buffers.resize(2);
    Instruction& instruction = c.blocks.emplace_back().instructions.emplace_back();
    instruction.reads.push_back({BufferId(0), 0});
    instruction.writes.push_back({BufferId(1), 0});
  }

  Program program;
  ClassCopies copies;
  Pricer pricer;
};

StepPrices::StepPrices(const Mesh& mesh, const CostModel& costs) : state_(std::make_unique<State>(mesh, costs)) {}
StepPrices::~StepPrices() = default;

Nanos StepPrices::Of(const Shape& global, DType dtype, const Work& work, const Layout& before, const Layout& after) {
  RankClass& c = state_->program.classes[0];
  for (Buffer& buffer : c.buffers) {
    buffer.dtype = dtype;
    buffer.shape = global;
  }
  c.buffers[0].layout = before;
  c.buffers[1].layout = after;
  c.blocks[0].instructions[0].work = work;
  return state_->pricer.PriceOfStep();
}

Program AsPlayed(Program program, const Cluster& cluster) {
  return cluster.device.generation == Generation::kHost ? WithCollectivesOnComputeStream(std::move(program))
                                                        : std::move(program);
}

Program Serial(Program program) {
  return program.classes.size() > 1 ? std::move(program) : WithCollectivesOnComputeStream(std::move(program));
}

Program SerialRegathers(Program program) {
  if (program.classes.size() > 1) return program;
  RankClass& c = program.classes[0];
  const auto moves = [](const Instruction& instruction) {
    const auto* collective = std::get_if<Collective>(&instruction.work);
    return collective != nullptr && collective->purpose == Purpose::kParameter && instruction.stream == Stream::kComm;
  };
  const auto computes = [](const Instruction& instruction) {
    return std::holds_alternative<Compute>(instruction.work);
  };
  const auto has = [&](BlockId block, const auto& which) {
    const std::vector<Instruction>& instructions = c.blocks[block.index()].instructions;
    return std::any_of(instructions.begin(), instructions.end(), which);
  };
  std::map<BlockId, BlockId> copies;
  bool backward = false;  // the pass behind a slot
  for (auto slot = c.slots.rbegin(); slot != c.slots.rend(); ++slot) {
    if (has(slot->block, computes)) {
      backward = c.blocks[slot->block.index()].phase == Phase::kBackward;
      continue;
    }
    if (!backward || !has(slot->block, moves)) continue;
    const auto [copy, inserted] = copies.try_emplace(slot->block, BlockId(c.blocks.size()));
    if (inserted) {
      c.blocks.push_back(Block(c.blocks[slot->block.index()]));
      for (Instruction& instruction : c.blocks.back().instructions) {
        if (moves(instruction)) instruction.stream = Stream::kCompute;
      }
    }
    slot->block = copy->second;
  }
  return program;
}

Program SerialGathers(Program program) {
  for (RankClass& rank_class : program.classes) {
    for (Block& block : rank_class.blocks) {
      for (Instruction& instruction : block.instructions) {
        const auto* collective = std::get_if<Collective>(&instruction.work);
        const bool gathers = collective != nullptr && collective->purpose == Purpose::kParameter;
        if (gathers && instruction.stream == Stream::kComm) instruction.stream = Stream::kCompute;
      }
    }
  }
  return program;
}

}  // namespace meshwright
