// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "schedules/check/rules.h"
#include "schedules/check/together.h"
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
    return {true, options.counts_group, "counts"};
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

}  // namespace

absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  for (const Program* program : stage.All()) {
    if (program->streams.size() > size_t{kMostStreams}) {
      return Violation(kAgreed, *program,
                       absl::StrCat("has ", program->streams.size(), " streams; a device runs ", kMostStreams,
                                    " beside each other"));
    }
    if (program->communicators.size() > size_t{kMostCommunicators}) {
      return Violation(kAgreed, *program,
                       absl::StrCat("has ", program->communicators.size(), " communicators (",
                                    absl::StrJoin(program->communicators, ", ",
                                                  [](std::string* text, const CommunicatorUse& use) {
                                                    absl::StrAppend(text, use.group, " ", use.purpose);
                                                  }),
                                    "); a rank has ", kMostCommunicators, " at most"));
    }
    TANDEM_RETURN_IF_ERROR(CheckGroups(outline, options, *program));
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules
