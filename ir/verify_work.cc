// Rules 3 to 7: what one instruction says, against its operands' buffers.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/status.h"
#include "ir/verify_internal.h"

namespace meshwright::verify_internal {
namespace {

using Operands = absl::InlinedVector<Operand, 4>;

// Without axes of size 1, which split nothing.
AxisList Real(const AxisList& axes, const Mesh& mesh) {
  AxisList real;
  for (AxisId id : axes) {
    if (mesh.axis(id).size > 1) real.push_back(id);
  }
  return real;
}

std::string AxesText(const AxisList& axes, const Mesh& mesh) {
  if (axes.empty()) return "-";
  return absl::StrJoin(axes, ".", [&](std::string* out, AxisId id) { absl::StrAppend(out, mesh.axis(id).name); });
}

// Whether `fine` cuts every piece of `coarse` into `factor` pieces. With factor 1: whether both are the same split.
bool Refines(const AxisList& fine, const AxisList& coarse, int64_t factor, const Mesh& mesh) {
  if (mesh.SizeOf(fine) != mesh.SizeOf(coarse) * factor) return false;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    if (mesh.PositionOf(rank, fine) / factor != mesh.PositionOf(rank, coarse)) return false;
  }
  return true;
}

bool SameSplit(const AxisList& a, const AxisList& b, const Mesh& mesh) {
  if (a == b) return true;
  const AxisList real_a = Real(a, mesh), real_b = Real(b, mesh);
  return real_a == real_b || Refines(real_a, real_b, 1, mesh);
}

// `axes` without `removed`; false if `axes` lacks one of them.
bool Remove(const AxisList& removed, AxisList& axes) {
  for (AxisId id : removed) {
    const auto found = std::find(axes.begin(), axes.end(), id);
    if (found == axes.end()) return false;
    axes.erase(found);
  }
  return true;
}

bool IsExtremum(OpKind op) {
  return InfoOf(op).reduction == Reduction::kMax || InfoOf(op).reduction == Reduction::kMin;
}

bool InOneOperand(const IndexRule& rule, size_t a, size_t b) {
  const auto has_both = [&](const OperandRule& operand) {
    const auto has = [&](size_t label) {
      return absl::c_any_of(operand, [&](const DimRule& dim) { return dim.label == static_cast<int>(label); });
    };
    return has(a) && has(b);
  };
  return absl::c_any_of(rule.inputs, has_both) || absl::c_any_of(rule.outputs, has_both);
}

AxisList Joined(AxisList a, const AxisList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Checks one instruction of one class.
class WorkChecker {
 public:
  WorkChecker(const Program& program, const RankClass& rank_class, const Block& block, size_t index,
              int64_t class_index)
      : WorkChecker(program, rank_class, block, index, class_index, block.instructions[index]) {}

  absl::Status Check() const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckOwner());
    return std::visit([&](const auto& work) { return Check(work); }, instruction_.work);
  }

 private:
  template <class... Parts>
  absl::Status Wrong(int rule, const Parts&... parts) const {
    return Broken(rule, program_, class_, block_, index_, absl::StrCat(parts...));
  }
  const Buffer& BufferOf(const Operand& operand) const { return class_.buffers[operand.buffer.index()]; }

  // `instruction` is a part of that at `index`.
  WorkChecker(const Program& program, const RankClass& rank_class, const Block& block, size_t index,
              int64_t class_index, const Instruction& instruction)
      : program_(program),
        mesh_(program.mesh),
        class_(rank_class),
        block_(block),
        index_(index),
        class_index_(class_index),
        instruction_(instruction) {}

  absl::Status CheckOwner() const {
    const int64_t owner = OwnerOf(instruction_, class_);
    if (owner < 0) return absl::OkStatus();
    if (!std::holds_alternative<Compute>(instruction_.work)) return Wrong(1, "uses a buffer that one rank owns");
    for (const auto* operands : {&instruction_.reads, &instruction_.writes}) {
      for (const Operand& operand : *operands) {
        const int64_t other = BufferOf(operand).owner;
        if (other >= 0 && other != owner) return Wrong(1, "uses buffers of the ranks ", owner, " and ", other);
      }
    }
    return absl::OkStatus();
  }

  // What one rank makes alone nobody else may take for its own.
  absl::Status CheckTurn(const Turn& turn) const {
    if (turn == Turn()) return absl::OkStatus();
    if (turn.first < 0 || turn.first >= program_.ranks_per_class() || turn.step < 0) {
      return Wrong(1, "has the turn ", turn.first, " step ", turn.step, ", wanted places of the class's ",
                   program_.ranks_per_class(), " ranks");
    }
    if (program_.ranks_per_class() == 1) return absl::OkStatus();
    for (const Operand& write : instruction_.writes) {
      if (BufferOf(write).role != BufferRole::kTemporary) {
        return Wrong(1, "writes ", BufferOf(write).name, " on one rank alone, which is no temporary");
      }
      for (const Instruction& other : block_.instructions) {
        const auto reads = [&](const Operand& read) { return read.buffer == write.buffer; };
        if (std::none_of(other.reads.begin(), other.reads.end(), reads)) continue;
        const auto* const kernel = std::get_if<Compute>(&other.work);
        const auto* const cast = std::get_if<Collective>(&other.work);
        const bool from_it = cast != nullptr && cast->kind == CollectiveKind::kBroadcast && TurnOf(*cast) == turn &&
                             mesh_.SizeOf(cast->axes) == program_.ranks_per_class();
        if (!from_it && (kernel == nullptr || kernel->turn != turn)) {
          return Wrong(1, "writes ", BufferOf(write).name, " on one rank alone, and others read it");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Check(const Compute& compute) const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckTurn(compute.turn));
    if (compute.on_host && compute.op == OpKind::kFeed) return Wrong(3, "is fed by the host as it is, found on_host");
    if (compute.attrs->tensors != 1) return CheckUpdates(compute);
    const bool made_here = compute.op == OpKind::kFill || compute.op == OpKind::kFeed;
    if (made_here && *compute.rule == IndexRule{} && instruction_.reads.empty()) return absl::OkStatus();
    std::vector<Shape> inputs, outputs;
    for (const Operand& read : instruction_.reads) inputs.push_back(BufferOf(read).shape);
    for (const Operand& write : instruction_.writes) outputs.push_back(BufferOf(write).shape);
    if (outputs.size() != compute.rule->outputs.size()) {
      return Wrong(3, "takes ", compute.rule->outputs.size(), " outputs (", ToText(compute.rule), "), found ",
                   outputs.size());
    }
    const absl::StatusOr<Shape> extents = LabelExtents(compute.rule, inputs, outputs);
    if (!extents.ok()) return Wrong(3, extents.status().message());
    MESHWRIGHT_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentFound(compute));
    MESHWRIGHT_RETURN_IF_ERROR(CheckInPlace(compute));
    if (InfoOf(compute.op).kernel == KernelClass::kContraction && inputs.size() > 1) {
      const DType left = BufferOf(instruction_.reads[0]).dtype, right = BufferOf(instruction_.reads[1]).dtype;
      // Values in 16 bits are quantised where the kernel multiplies in float8, a weight may lie so.
      const bool quantises = right == DType::kFloat8 && SizeOf(left) == Bytes(2);
      if (left != right && !quantises) return Wrong(3, "multiplies ", NameOf(left), " by ", NameOf(right));
    }
    return CheckPartial(compute, assignment);
  }

  // Several updates in one: each as if it were alone.
  absl::Status CheckUpdates(const Compute& compute) const {
    const Operands &reads = instruction_.reads, &writes = instruction_.writes;
    const std::optional<UpdateOperands> operands =
        UpdateOperandsOf(compute.op, compute.attrs, reads.size(), writes.size());
    if (!operands.has_value()) {
      return Wrong(3, "is no ", NameOf(compute.op), " of ", compute.attrs->tensors, " tensors, found ", reads.size(),
                   " inputs and ", writes.size(), " outputs");
    }
    if (*compute.rule != IndexRule{}) return Wrong(3, "has a rule, and is of ", compute.attrs->tensors, " tensors");
    for (int64_t t = 0; t < compute.attrs->tensors; ++t) {
      const auto take = [t](const Operands& all, size_t each) {
        const auto first = all.begin() + t * static_cast<int64_t>(each);
        return Operands(first, first + static_cast<int64_t>(each));
      };
      Instruction update;
      update.reads = take(reads, operands->inputs);
      update.writes = take(writes, operands->outputs);
      Compute alone;
      alone.op = compute.op;
      const size_t dims = BufferOf(update.reads[0]).shape.size();
      if (dims > IndexRule::kMostLabels) return Wrong(3, "updates a parameter of ", dims, " dims");
      IndexRule rule = ElementwiseRule(dims, operands->inputs - operands->input_scalars,
                                       operands->outputs - operands->output_scalars);
      if (operands->scaled) update.reads.insert(update.reads.end(), reads.end() - 2, reads.end());
      rule.inputs.resize(update.reads.size());
      rule.outputs.resize(update.writes.size());
      alone.rule = std::move(rule);
      update.work = std::move(alone);
      MESHWRIGHT_RETURN_IF_ERROR(
          WorkChecker(program_, class_, block_, index_, class_index_, update).Check(std::get<Compute>(update.work)));
    }
    return absl::OkStatus();
  }

  // The axes of each label, from the operands' layouts.
  absl::StatusOr<Assignment> AssignmentFound(const Compute& compute) const {
    const IndexRule& rule = compute.rule;
    Assignment assignment(rule.labels.size());
    std::vector<std::string> seen(rule.labels.size());
    for (const bool output : {false, true}) {
      const std::vector<OperandRule>& rules = output ? rule.outputs : rule.inputs;
      const Operands& operands = output ? instruction_.writes : instruction_.reads;
      for (size_t i = 0; i < rules.size(); ++i) {
        const std::string where = absl::StrCat(output ? "output " : "input ", i, " (", BufferOf(operands[i]).name, ")");
        for (size_t d = 0; d < rules[i].size(); ++d) {
          MESHWRIGHT_RETURN_IF_ERROR(AddDim(rule, rules[i][d], BufferOf(operands[i]), d, where, assignment, seen));
        }
      }
    }
    for (size_t a = 0; a < assignment.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        // Labels of outputs alone have nothing to do with each other (Fill of several buffers).
        const bool meet = rule.InInputs(static_cast<int>(a)) || rule.InInputs(static_cast<int>(b));
        // Nor have those of two operands that an extremum is taken of: the ranks' own are joined, whatever they are of.
        if (IsExtremum(compute.op) && !InOneOperand(rule, a, b)) continue;
        if (meet) MESHWRIGHT_RETURN_IF_ERROR(CheckOrthogonal(rule, assignment, a, b));
      }
    }
    return assignment;
  }

  absl::Status AddDim(const IndexRule& rule, const DimRule& dim, const Buffer& buffer, size_t d,
                      const std::string& where, Assignment& assignment, std::vector<std::string>& seen) const {
    const AxisList axes = Real(buffer.layout.dims[d], mesh_);
    if (dim.label == DimRule::kUnsplit) return absl::OkStatus();  // of size 1, so no axis splits it
    const Label& label = rule.labels[dim.label];
    if (label.whole && !axes.empty()) {
      return Wrong(3, label.name, " must stay whole, but ", where, " splits it over ", AxesText(axes, mesh_));
    }
    std::string& first = seen[dim.label];
    if (first.empty()) {
      first = where;
      assignment[dim.label] = axes;
      return absl::OkStatus();
    }
    if (SameSplit(axes, assignment[dim.label], mesh_)) return absl::OkStatus();
    return Wrong(3, label.name, " is split over ", AxesText(assignment[dim.label], mesh_), " in ", first, " and over ",
                 AxesText(axes, mesh_), " in ", where);
  }

  absl::Status CheckOrthogonal(const IndexRule& rule, const Assignment& assignment, size_t a, size_t b) const {
    for (AxisId x : assignment[a]) {
      for (AxisId y : assignment[b]) {
        if (mesh_.Orthogonal(x, y)) continue;
        return Wrong(3, rule.labels[b].name, " and ", rule.labels[a].name, " are both split over ", mesh_.axis(x).name);
      }
    }
    return absl::OkStatus();
  }

  // An output that lies where an input lies must be elementwise in it; where the op has a place for both, in its rows.
  absl::Status CheckInPlace(const Compute& compute) const {
    for (size_t i = 0; i < instruction_.reads.size(); ++i) {
      for (size_t o = 0; o < instruction_.writes.size(); ++o) {
        const Operand &read = instruction_.reads[i], &write = instruction_.writes[o];
        if (read.layer_shift != write.layer_shift) continue;
        if (RootOf(class_, read.buffer) != RootOf(class_, write.buffer)) continue;
        if (!WorksInPlace(compute.op) || compute.rule->inputs[i] != compute.rule->outputs[o]) {
          return Wrong(3, "writes its own input ", BufferOf(read).name, " and is not elementwise in it");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckPartial(const Compute& compute, const Assignment& assignment) const {
    if (compute.op == OpKind::kFill) return absl::OkStatus();
    AxisList passed;  // partial axes that go through
    for (size_t i = 0; i < instruction_.reads.size(); ++i) {
      const Layout& layout = BufferOf(instruction_.reads[i]).layout;
      const AxisList partial = Real(layout.partial, mesh_);
      if (!partial.empty() && (!IsLinear(compute.op) || layout.reduction != Reduction::kSum)) {
        return Wrong(4, "input ", i, " (", BufferOf(instruction_.reads[i]).name, ") is partial over ",
                     AxesText(partial, mesh_), "; reduce it first");
      }
      if (i > 0 && !mesh_.SameGroups(partial, passed)) {
        return Wrong(4, "input 0 is partial over ", AxesText(passed, mesh_), ", input ", i, " over ",
                     AxesText(partial, mesh_));
      }
      passed = partial;
    }
    const Reduction own = InfoOf(compute.op).reduction;
    for (size_t o = 0; o < instruction_.writes.size(); ++o) {
      const Buffer& buffer = BufferOf(instruction_.writes[o]);
      const Layout wanted = OutputLayout(compute.rule, assignment, o, InfoOf(compute.op).reduction);
      AxisList axes = Joined(passed, wanted.partial);
      if (IsExtremum(compute.op)) {  // an axis may split several operands
        absl::c_sort(axes);
        axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
      }
      const bool over_all = mesh_.SizeOf(buffer.layout.partial) == program_.ranks_per_class();
      if (IsExtremum(compute.op) && over_all && buffer.layout.reduction == own) continue;
      if (!mesh_.SameGroups(axes, buffer.layout.partial)) {
        return Wrong(4, "output ", o, " (", buffer.name, ") is partial over ", AxesText(buffer.layout.partial, mesh_),
                     ", wanted ", AxesText(axes, mesh_));
      }
      const Reduction reduction = wanted.partial.empty() ? Reduction::kSum : wanted.reduction;
      if (!axes.empty() && buffer.layout.reduction != reduction) {
        return Wrong(4, "output ", o, " (", buffer.name, ") holds a partial ", NameOf(buffer.layout.reduction),
                     ", wanted ", NameOf(reduction));
      }
    }
    return absl::OkStatus();
  }

  // That reads[i] and writes[i] hold the same tensor.
  absl::Status CheckPairs(int rule) const {
    const Operands &reads = instruction_.reads, &writes = instruction_.writes;
    if (reads.empty() || reads.size() != writes.size()) {
      return Wrong(rule, "reads ", reads.size(), " and writes ", writes.size(), " buffers, wanted pairs");
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      const Buffer &from = BufferOf(reads[i]), &to = BufferOf(writes[i]);
      if (from.shape != to.shape || from.dtype != to.dtype) {
        return Wrong(rule, "makes ", to.name, " ", NameOf(to.dtype), " ", ToText(to.shape), " of ", from.name, " ",
                     NameOf(from.dtype), " ", ToText(from.shape));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Check(const Collective& collective) const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckPairs(5));
    for (size_t i = 0; i < instruction_.reads.size(); ++i) {
      const Buffer &from = BufferOf(instruction_.reads[i]), &to = BufferOf(instruction_.writes[i]);
      if (from.dtype != BufferOf(instruction_.reads[0]).dtype) {
        return Wrong(5, "carries ", NameOf(BufferOf(instruction_.reads[0]).dtype), " and ", NameOf(from.dtype));
      }
      if (collective.root < 0 || collective.root >= mesh_.SizeOf(collective.axes)) {
        return Wrong(5, "has the root ", collective.root, " of ", mesh_.SizeOf(collective.axes), " ranks");
      }
      if (collective.root_step < 0) return Wrong(5, "has a root that goes ", collective.root_step, " places further");
      Layout after = from.layout;
      const std::string problem = Apply(collective, after);
      if (!problem.empty()) return Wrong(5, problem, " of ", from.name, " ", ToText(from.layout, mesh_));
      bool same = mesh_.SameGroups(after.partial, to.layout.partial);
      if (!after.partial.empty()) same &= after.reduction == to.layout.reduction;
      for (size_t d = 0; d < after.dims.size(); ++d) same &= SameSplit(after.dims[d], to.layout.dims[d], mesh_);
      if (!same) {
        return Wrong(5, "makes ", ToText(after, mesh_), " of ", from.name, ", but ", to.name, " is ",
                     ToText(to.layout, mesh_));
      }
    }
    return absl::OkStatus();
  }

  // What the collective makes of a layout, or what prevents it.
  std::string Apply(const Collective& c, Layout& layout) const {
    const auto rank = static_cast<int32_t>(layout.dims.size());
    const bool has_dim = c.kind != CollectiveKind::kAllReduce && c.kind != CollectiveKind::kBroadcast;
    const bool has_to = c.kind == CollectiveKind::kAllToAll;
    if (has_dim && (c.dim < 0 || c.dim >= rank)) return absl::StrCat("there is no dim ", c.dim);
    if (has_to && (c.to_dim < 0 || c.to_dim >= rank || c.to_dim == c.dim)) {
      return absl::StrCat("cannot move to dim ", c.to_dim);
    }
    if (InfoOf(c.kind).reduces) {
      if (!Remove(c.axes, layout.partial))
        return absl::StrCat("not partial over ", AxesText(c.axes, mesh_), ", layout");
      if (layout.reduction != c.reduction) {
        return absl::StrCat("found a partial ", NameOf(layout.reduction), " in the layout");
      }
      if (layout.partial.empty()) layout.reduction = Reduction::kSum;
    } else if (has_dim) {
      AxisList& axes = layout.dims[c.dim];
      const bool ends =
          axes.size() >= c.axes.size() && std::equal(c.axes.begin(), c.axes.end(), axes.end() - c.axes.size());
      if (!ends) return absl::StrCat("no ", AxesText(c.axes, mesh_), " at the end of dim ", c.dim);
      axes.resize(axes.size() - c.axes.size());
    }
    if (c.kind == CollectiveKind::kReduceScatter) layout.dims[c.dim] = Joined(layout.dims[c.dim], c.axes);
    if (has_to) layout.dims[c.to_dim] = Joined(layout.dims[c.to_dim], c.axes);
    return "";
  }

  absl::Status CheckOnePair() const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckPairs(6));
    if (instruction_.reads.size() != 1) return Wrong(6, "takes one buffer, found ", instruction_.reads.size());
    const Layout &from = BufferOf(instruction_.reads[0]).layout, &to = BufferOf(instruction_.writes[0]).layout;
    const bool other_reduction = !from.partial.empty() && from.reduction != to.reduction;
    if (!mesh_.SameGroups(from.partial, to.partial) || other_reduction) {
      return Wrong(6, "cannot make ", ToText(to, mesh_), " of ", ToText(from, mesh_), ": it does not reduce");
    }
    return absl::OkStatus();
  }

  absl::Status Check(const Slice&) const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckOnePair());
    const Layout &from = BufferOf(instruction_.reads[0]).layout, &to = BufferOf(instruction_.writes[0]).layout;
    for (size_t d = 0; d < from.dims.size(); ++d) {
      const AxisList coarse = Real(from.dims[d], mesh_), fine = Real(to.dims[d], mesh_);
      const bool prefix = fine.size() >= coarse.size() && std::equal(coarse.begin(), coarse.end(), fine.begin());
      if (prefix) continue;
      const int64_t factor = mesh_.SizeOf(fine) / mesh_.SizeOf(coarse);
      if (factor == 0 || !Refines(fine, coarse, factor, mesh_)) {
        return Wrong(6, "cannot make ", ToText(to, mesh_), " of ", ToText(from, mesh_), ": dim ", d,
                     " of a rank's new piece lies outside its old one");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Check(const Permute& permute) const {
    MESHWRIGHT_RETURN_IF_ERROR(CheckOnePair());
    const Buffer &from = BufferOf(instruction_.reads[0]), &to = BufferOf(instruction_.writes[0]);
    if (!permute.sources.empty()) {
      const auto ranks = static_cast<int32_t>(mesh_.SizeOf(permute.axes));
      const auto wrong = [&](int32_t source) { return source < -1 || source >= ranks; };
      if (static_cast<int32_t>(permute.sources.size()) != ranks || absl::c_any_of(permute.sources, wrong)) {
        return Wrong(6, "wants ", ranks, " sources from -1 to ", ranks - 1);
      }
      if (!(from.layout == to.layout)) {
        return Wrong(6, "cannot make ", ToText(to.layout, mesh_), " of ", ToText(from.layout, mesh_));
      }
    }
    const Shape before = LocalShape(from.shape, from.layout, mesh_), after = LocalShape(to.shape, to.layout, mesh_);
    if (before != after) return Wrong(6, "cannot make pieces of ", ToText(after), " of ", ToText(before));
    return absl::OkStatus();
  }

  absl::Status Check(const Sync&) const {
    if (instruction_.reads.empty() && instruction_.writes.empty()) return absl::OkStatus();
    return Wrong(6, "has operands");
  }

  absl::Status Check(const Transfer& transfer) const {
    const int64_t peer = class_index_ + transfer.stage_offset;
    if (transfer.stage_offset == 0 || peer < 0 || peer >= static_cast<int64_t>(program_.classes.size())) {
      return Wrong(7, "there is no stage ", peer, " to exchange with");
    }
    const Operands& used = transfer.send ? instruction_.reads : instruction_.writes;
    const Operands& unused = transfer.send ? instruction_.writes : instruction_.reads;
    if (!unused.empty()) return Wrong(7, transfer.send ? "a send writes nothing" : "a receive reads nothing");
    if (used.empty()) return Wrong(7, "moves nothing");
    return absl::OkStatus();
  }

  const Program& program_;
  const Mesh& mesh_;
  const RankClass& class_;
  const Block& block_;
  const size_t index_;
  const int64_t class_index_;
  const Instruction& instruction_;
};

}  // namespace

absl::Status VerifyWork(const Program& program) {
  for (size_t c = 0; c < program.classes.size(); ++c) {
    const RankClass& rank_class = program.classes[c];
    for (const Block& block : rank_class.blocks) {
      for (size_t i = 0; i < block.instructions.size(); ++i) {
        MESHWRIGHT_RETURN_IF_ERROR(WorkChecker(program, rank_class, block, i, static_cast<int64_t>(c)).Check());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace meshwright::verify_internal
