// Rules 12 and 13: transfers between classes.
//
// A transfer starts when both its halves have been reached, and a half is reached when everything before it on its
// class's streams is done. Of that only other transfers can wait for another class, so the classes get stuck just if
// the graph of transfers has a cycle, in which a transfer depends on the last transfer of each stream that either half
// needs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ir/program_text.h"
#include "ir/verify_internal.h"

namespace meshwright::verify_internal {
namespace {

// One half: an entry of a class's transfers.
struct Half {
  size_t c = 0;
  size_t index = 0;
};
struct Pair {
  Half send, receive;
};

class TransferChecker {
 public:
  TransferChecker(const Program& program, const std::vector<ClassTransfers>& transfers)
      : program_(program), transfers_(transfers) {}

  absl::Status Check() {
    absl::Status matched = Match();
    return matched.ok() ? Play() : matched;
  }

 private:
  const IssuedTransfer& At(const Half& half) const { return transfers_[half.c].transfers[half.index]; }
  const RankClass& ClassOf(const Half& half) const { return program_.classes[half.c]; }
  const Block& BlockOf(const Half& half) const {
    return ClassOf(half).blocks[ClassOf(half).slots[At(half).issue.slot].block.index()];
  }
  const Instruction& InstructionOf(const Half& half) const {
    return BlockOf(half).instructions[At(half).issue.instruction];
  }

  // Rule 12. Pairs the halves.
  absl::Status Match() {
    std::map<std::pair<size_t, size_t>, std::pair<std::vector<Half>, std::vector<Half>>> by_classes;  // from, to
    for (size_t c = 0; c < transfers_.size(); ++c) {
      for (size_t i = 0; i < transfers_[c].transfers.size(); ++i) {
        const Transfer& transfer = *transfers_[c].transfers[i].transfer;
        const size_t peer = c + static_cast<size_t>(static_cast<int64_t>(transfer.stage_offset));
        if (transfer.send) {
          by_classes[{c, peer}].first.push_back({c, i});
        } else {
          by_classes[{peer, c}].second.push_back({c, i});
        }
      }
    }
    for (const auto& [classes, halves] : by_classes) {
      const auto& [sends, receives] = halves;
      const size_t both = std::min(sends.size(), receives.size());
      for (size_t n = 0; n < both; ++n) {
        absl::Status same = CheckSame(sends[n], receives[n], n);
        if (!same.ok()) return same;
        pairs_.push_back({sends[n], receives[n]});
      }
      const bool cut = !transfers_[classes.first].complete || !transfers_[classes.second].complete;
      if (sends.size() != receives.size() && !cut) {
        return absl::InvalidArgumentError(absl::StrCat(
            "rule 12: class ", program_.classes[classes.first].name, " sends ", sends.size(), " times to class ",
            program_.classes[classes.second].name, ", which receives ", receives.size(), " times"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckSame(const Half& send, const Half& receive, size_t n) const {
    const auto& reads = InstructionOf(send).reads;
    const auto& writes = InstructionOf(receive).writes;
    const auto broken = [&](const auto&... what) {
      return Broken(12, program_, ClassOf(send), BlockOf(send), At(send).issue.instruction,
                    absl::StrCat("meets, as number ", n, " to class ", ClassOf(receive).name, ", block ",
                                 BlockOf(receive).name, ", instruction ", At(receive).issue.instruction, " (",
                                 ToText(InstructionOf(receive), ClassOf(receive), program_.mesh), "), but ", what...));
    };
    if (reads.size() != writes.size()) return broken(reads.size(), " buffers meet ", writes.size());
    for (size_t i = 0; i < reads.size(); ++i) {
      const Buffer& from = ClassOf(send).buffers[reads[i].buffer.index()];
      const Buffer& to = ClassOf(receive).buffers[writes[i].buffer.index()];
      const bool same = from.dtype == to.dtype && from.shape == to.shape &&
                        SamePlacement(from.shape, from.layout, to.layout, program_.mesh);
      if (!same) return broken(Describe(from), " meets ", Describe(to));
    }
    return absl::OkStatus();
  }

  std::string Describe(const Buffer& buffer) const {
    return absl::StrCat(buffer.name, " ", NameOf(buffer.dtype), " ", ToText(buffer.shape), " ",
                        ToText(buffer.layout, program_.mesh));
  }

  // Rule 13.
  absl::Status Play() {
    pair_of_.resize(transfers_.size());
    by_stream_.resize(transfers_.size());
    for (size_t c = 0; c < transfers_.size(); ++c) {
      pair_of_[c].assign(transfers_[c].transfers.size(), kNoPair);
      for (size_t i = 0; i < transfers_[c].transfers.size(); ++i) {
        by_stream_[c][static_cast<size_t>(transfers_[c].transfers[i].stream)].push_back(i);
      }
    }
    for (size_t p = 0; p < pairs_.size(); ++p) {
      pair_of_[pairs_[p].send.c][pairs_[p].send.index] = p;
      pair_of_[pairs_[p].receive.c][pairs_[p].receive.index] = p;
    }
    std::vector<std::vector<size_t>> needed_by(pairs_.size());
    std::vector<size_t> missing(pairs_.size(), 0);
    for (size_t p = 0; p < pairs_.size(); ++p) {
      for (const Half& half : {pairs_[p].send, pairs_[p].receive}) {
        for (size_t needed : Needs(half)) {
          if (pair_of_[half.c][needed] == kNoPair) continue;  // beyond what was played of the other class
          needed_by[pair_of_[half.c][needed]].push_back(p);
          ++missing[p];
        }
      }
    }
    std::vector<size_t> ready;
    for (size_t p = 0; p < pairs_.size(); ++p) {
      if (missing[p] == 0) ready.push_back(p);
    }
    done_.assign(pairs_.size(), false);
    size_t count = 0;
    for (; !ready.empty(); ++count) {
      const size_t p = ready.back();
      ready.pop_back();
      done_[p] = true;
      for (size_t later : needed_by[p]) {
        if (--missing[later] == 0) ready.push_back(later);
      }
    }
    return count == pairs_.size() ? absl::OkStatus() : Stuck();
  }

  // The transfers of the same class that must be done before this one: the last on each stream.
  std::vector<size_t> Needs(const Half& half) const {
    std::vector<size_t> needs;
    const std::vector<IssuedTransfer>& transfers = transfers_[half.c].transfers;
    for (size_t s = 0; s < kStreams; ++s) {
      const std::vector<size_t>& on_stream = by_stream_[half.c][s];
      const auto behind = std::upper_bound(on_stream.begin(), on_stream.end(), At(half).after[s],
                                           [&](int32_t place, size_t index) { return place < transfers[index].place; });
      if (behind != on_stream.begin()) needs.push_back(*(behind - 1));
    }
    return needs;
  }

  bool IsDone(const Half& half) const {
    const size_t pair = pair_of_[half.c][half.index];
    return pair == kNoPair || done_[pair];
  }

  // A line per class: the transfer before, and each that it has reached and whose partner it waits for.
  absl::Status Stuck() const {
    std::vector<std::string> names, lines;
    for (size_t c = 0; c < transfers_.size(); ++c) {
      std::string line, last;
      for (size_t i = 0; i < transfers_[c].transfers.size(); ++i) {
        const Half half{c, i};
        if (IsDone(half)) {
          if (line.empty()) last = absl::StrCat(Short(half), " | ");
          continue;
        }
        const std::vector<size_t> needs = Needs(half);
        const bool reached = std::all_of(needs.begin(), needs.end(), [&](size_t n) { return IsDone({c, n}); });
        if (reached) absl::StrAppend(&line, line.empty() ? "" : " | ", Short(half), " <-- stuck");
      }
      if (line.empty()) continue;
      names.push_back(program_.classes[c].name);
      lines.push_back(absl::StrCat("\n  ", program_.classes[c].name, ": ", last, line));
    }
    return absl::InvalidArgumentError(absl::StrCat("rule 13: classes ", absl::StrJoin(names, ", "),
                                                   " wait for each other:", absl::StrJoin(lines, "")));
  }

  // "send to s1 (forward, instruction 2, layer 0, micro-batch 1)"
  std::string Short(const Half& half) const {
    const IssuedTransfer& issued = At(half);
    const Slot& slot = ClassOf(half).slots[issued.issue.slot];
    const int64_t peer = static_cast<int64_t>(half.c) + issued.transfer->stage_offset;
    return absl::StrCat(issued.transfer->send ? "send to " : "receive from ",
                        program_.classes[static_cast<size_t>(peer)].name, " (", BlockOf(half).name, ", instruction ",
                        issued.issue.instruction, ", layer ", slot.layer + slot.step * issued.issue.layer,
                        ", micro-batch ", slot.microbatch, ")");
  }

  static constexpr size_t kNoPair = static_cast<size_t>(-1);

  const Program& program_;
  const std::vector<ClassTransfers>& transfers_;
  std::vector<Pair> pairs_;
  std::vector<std::vector<size_t>> pair_of_;                          // by class and transfer
  std::vector<std::array<std::vector<size_t>, kStreams>> by_stream_;  // by class and stream: transfers
  std::vector<bool> done_;                                            // by pair
};

}  // namespace

absl::Status VerifyTransfers(const Program& program, const std::vector<ClassTransfers>& transfers) {
  return TransferChecker(program, transfers).Check();
}

}  // namespace meshwright::verify_internal
