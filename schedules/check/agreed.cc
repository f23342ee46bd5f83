// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/agreed.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedules/check/operand_shapes.h"
#include "schedules/check/violation.h"

namespace tandem::schedules {
namespace {

constexpr char kAgreed[] = "agreed";

struct Meeting {
  bool meets = false;
  std::string group;    // empty: any
  std::string purpose;  // empty: any
};

Meeting MeetingOf(const Outline& outline, const BuildOptions& options, const Instruction& in) {
  if (IsNodePass(in.opcode)) {
    const Node& node = outline.nodes[in.target];
    return {!node.group.empty(), node.group, node.purpose};
  }
  if (in.opcode == Opcode::kSend || in.opcode == Opcode::kReceive) {
    return {true, "", ""};
  }
  if (in.opcode == Opcode::kGradientNorm) {
    return {true, "", "norm"};
  }
  if (in.opcode == Opcode::kUpdateStates) {
    return {true, options.norm_group, "counts"};
  }
  if (InfoOf(in.opcode).target != TargetKind::kUnit) {
    return {};
  }
  const MeshAxes& mesh = AxesOf(options, outline.units[in.target]);
  switch (in.opcode) {
    case Opcode::kUnshard:
      return {true, mesh.gather_group, "gather"};
    case Opcode::kReduceGradients:
      return {HasInnerPeers(options, outline.units[in.target]), mesh.inner_group, "reduce"};
    case Opcode::kUnshardOuter:
    case Opcode::kReduceOuter:
      return {true, mesh.outer_group, ""};
    default:
      return {};
  }
}

absl::Status CheckGroups(const Outline& outline, const BuildOptions& options, const Program& program) {
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& in = program.instructions[i];
    const Meeting meeting = MeetingOf(outline, options, in);
    if (in.communicator < 0) {
      if (meeting.meets) {
        return Violation(kAgreed, outline, program, i,
                         "has no communicator, and exchanges data with other ranks");
      }
      continue;
    }
    const CommunicatorUse& use = program.communicators[in.communicator];
    if (!meeting.meets) {
      return Violation(kAgreed, outline, program, i,
                       absl::StrCat("uses communicator ", use.group, " ", use.purpose,
                                    ", and exchanges nothing with other ranks"));
    }
    if ((!meeting.group.empty() && meeting.group != use.group) ||
        (!meeting.purpose.empty() && meeting.purpose != use.purpose)) {
      return Violation(kAgreed, outline, program, i,
                       absl::StrCat("uses communicator ", use.group, " ", use.purpose, " instead of ",
                                    meeting.group.empty() ? "one" : meeting.group, " for ",
                                    meeting.purpose.empty() ? "it" : meeting.purpose));
    }
  }
  return absl::OkStatus();
}

// A rank of a stage, for all of them.
struct StageRank {
  const Outline* outline = nullptr;
  const Program* program = nullptr;
  size_t next = 0;

  bool IsDone() const { return next == program->instructions.size(); }
  const Instruction& Head() const { return program->instructions[next]; }
  std::string Text() const {
    return absl::StrCat("stage ", outline->stage, ": ",
                        IsDone() ? "the end" : Describe(*outline, *program, static_cast<int>(next)));
  }
};

// What a send or receive carries: the index-th value between two stages, or its gradient.
struct Carried {
  int from = -1;  // stages
  int to = -1;
  int index = -1;
  bool gradient = false;
  int microbatch = -1;
  int64_t bytes = 0;
  std::string group;
  std::string purpose;
  bool operator==(const Carried&) const = default;
};

// The stages of a send or receive; -1 where the value crosses no boundary.
Carried CarriedBy(const StageRank& rank) {
  const Instruction& in = rank.Head();
  const Program& program = *rank.program;
  const Buffer& buffer = program.buffers[in.operands.front().buffer];
  const CommunicatorUse& use = program.communicators[in.communicator];
  Carried carried{.gradient = buffer.kind == BufferKind::kActivationGradient,
                  .microbatch = in.microbatch,
                  .bytes = buffer.bytes.bound,
                  .group = use.group,
                  .purpose = use.purpose};
  const bool sends = in.opcode == Opcode::kSend;
  const std::vector<Boundary>& boundaries =
      sends != carried.gradient ? rank.outline->sent : rank.outline->received;
  const auto boundary = std::find_if(boundaries.begin(), boundaries.end(),
                                     [&](const Boundary& b) { return b.value == in.target; });
  if (boundary == boundaries.end()) {
    return carried;
  }
  carried.index = static_cast<int>(std::count_if(
      boundaries.begin(), boundary, [&](const Boundary& b) { return b.stage == boundary->stage; }));
  carried.from = sends ? rank.outline->stage : boundary->stage;
  carried.to = sends ? boundary->stage : rank.outline->stage;
  return carried;
}

class Together {
 public:
  explicit Together(std::vector<StageRank> ranks) : ranks_(std::move(ranks)) {}

  absl::Status Run() {
    bool any = true;
    while (any) {
      any = false;
      for (StageRank& rank : ranks_) {
        while (!rank.IsDone() && !Crosses(rank)) {
          ++rank.next;
        }
      }
      for (StageRank& rank : ranks_) {
        if (rank.IsDone() || rank.Head().opcode != Opcode::kSend) {
          continue;
        }
        StageRank* peer = PeerOf(rank);
        if (peer == nullptr) {
          return Violation(kAgreed, *rank.program,
                           absl::StrCat(rank.Text(), " meets no stage that is there"));
        }
        if (peer->IsDone() || peer->Head().opcode != Opcode::kReceive || PeerOf(*peer) != &rank) {
          continue;
        }
        if (!(CarriedBy(rank) == CarriedBy(*peer))) {
          return Violation(
              kAgreed, *rank.program,
              absl::StrCat(rank.Text(), " meets ", peer->Text(), ", which does not carry the same"));
        }
        ++rank.next;
        ++peer->next;
        any = true;
      }
      const auto at_norm = [](const StageRank& rank) {
        return !rank.IsDone() && rank.Head().opcode == Opcode::kGradientNorm;
      };
      if (std::all_of(ranks_.begin(), ranks_.end(), at_norm)) {
        for (StageRank& rank : ranks_) {
          ++rank.next;
        }
        any = true;
      }
    }
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const StageRank& rank) { return rank.IsDone(); })) {
      return absl::OkStatus();
    }
    return Violation(kAgreed, *ranks_.front().program,
                     absl::StrCat("the stages wait for each other forever at ",
                                  absl::StrJoin(ranks_, "; ", [](std::string* out, const StageRank& rank) {
                                    absl::StrAppend(out, rank.Text());
                                  })));
  }

 private:
  static bool Crosses(const StageRank& rank) {
    const Opcode opcode = rank.Head().opcode;
    return opcode == Opcode::kSend || opcode == Opcode::kReceive || opcode == Opcode::kGradientNorm;
  }

  // The stage that a send or receive is to meet.
  StageRank* PeerOf(const StageRank& rank) {
    const Carried carried = CarriedBy(rank);
    const int peer = rank.Head().opcode == Opcode::kSend ? carried.to : carried.from;
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const StageRank& other) { return other.outline->stage == peer; });
    return found == ranks_.end() || &*found == &rank ? nullptr : &*found;
  }

  std::vector<StageRank> ranks_;
};

}  // namespace

absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  for (const Program* program : stage.All()) {
    if (absl::Status status = CheckGroups(outline, options, *program); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStagesAgree(absl::Span<const Outline> outlines, absl::Span<const StagePrograms> stages) {
  for (const auto program :
       {&StagePrograms::train, &StagePrograms::begin, &StagePrograms::update, &StagePrograms::validate}) {
    std::vector<StageRank> ranks;
    for (size_t s = 0; s < stages.size(); ++s) {
      ranks.push_back({&outlines[s], &(stages[s].*program)});
    }
    if (absl::Status status = Together(std::move(ranks)).Run(); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules
