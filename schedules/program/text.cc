// SPDX-License-Identifier: Apache-2.0
#include "schedules/program/text.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tandem::schedules {
namespace {

template <typename Named>
std::string NameOf(const std::vector<Named>& all, int index, absl::string_view what) {
  if (index < 0 || index >= static_cast<int>(all.size())) {
    return absl::StrCat(what, " ", index, "?");
  }
  return all[index].name;
}

bool IsGradient(const Program& program, const Instruction& instruction) {
  return std::any_of(instruction.operands.begin(), instruction.operands.end(), [&](const Operand& operand) {
    return operand.buffer >= 0 && operand.buffer < static_cast<int>(program.buffers.size()) &&
           program.buffers[operand.buffer].kind == BufferKind::kActivationGradient;
  });
}

// All that a line says of its buffers but their names and addresses.
bool AreAlike(const Buffer& a, const Buffer& b) {
  return a.subject == b.subject && a.life == b.life && a.bytes == b.bytes && a.alignment == b.alignment &&
         a.parts == b.parts && (a.microbatch < 0) == (b.microbatch < 0);
}

// What distinguishes `name` from `first`: "mb 1", "gather 2".
absl::string_view Difference(absl::string_view first, absl::string_view name) {
  size_t same = 0;
  while (same < std::min(first.size(), name.size()) && first[same] == name[same]) {
    ++same;
  }
  for (const absl::string_view word : {" mb ", ", gather "}) {
    const size_t begin = name.rfind(word);
    if (begin != absl::string_view::npos && begin + word.size() <= same) {
      return absl::StripPrefix(absl::StripPrefix(name.substr(begin), ","), " ");
    }
  }
  return name;
}

// Buffers that differ in microbatch or gather alone share a line.
void AppendLines(std::string& text, const std::vector<const Buffer*>& buffers) {
  std::vector<bool> done(buffers.size(), false);
  std::multimap<int, size_t> by_subject;
  for (size_t i = 0; i < buffers.size(); ++i) {
    by_subject.emplace(buffers[i]->subject, i);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (done[i]) {
      continue;
    }
    const Buffer& first = *buffers[i];
    absl::StrAppend(&text, "  ", first.name, ": ", first.bytes.bound, " B");
    if (first.bytes.expected != first.bytes.bound) {
      absl::StrAppend(&text, " (expected ", first.bytes.expected, ")");
    }
    if (first.alignment != 256) {
      absl::StrAppend(&text, " aligned to ", first.alignment);
    }
    absl::StrAppend(&text, " @ ", first.address);
    const auto [begin, end] = by_subject.equal_range(first.subject);
    for (auto other = begin; other != end; ++other) {
      const Buffer& buffer = *buffers[other->second];
      const absl::string_view difference = Difference(first.name, buffer.name);
      if (other->second > i && !done[other->second] && AreAlike(first, buffer) && difference != buffer.name) {
        done[other->second] = true;
        absl::StrAppend(&text, ", ", difference, " @ ", buffer.address);
      }
    }
    for (const BufferPart& part : first.parts) {
      absl::StrAppend(&text, "; ", part.name, " [", part.begin, ", ", part.end, ")");
    }
    absl::StrAppend(&text, "\n");
  }
}

void AppendBuffers(std::string& text, const Program& program) {
  std::map<std::pair<BufferKind, Life>, std::vector<const Buffer*>> kinds;
  for (const Buffer& buffer : program.buffers) {
    kinds[{buffer.kind, buffer.life}].push_back(&buffer);
  }
  for (const auto& [kind, buffers] : kinds) {
    const char* lives[] = {"", " (persistent)", " (two, by the run's parity)"};
    absl::StrAppend(&text, "\n", ToText(kind.first), lives[static_cast<int>(kind.second)], "\n");
    AppendLines(text, buffers);
  }
}

// Per stream the communicator that its first instruction with one uses: only others are printed with the
// instruction.
std::vector<CommunicatorId> UsualCommunicators(const Program& program) {
  std::vector<CommunicatorId> usual(program.streams.size(), -1);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.stream >= 0 && instruction.stream < static_cast<int>(usual.size()) &&
        usual[instruction.stream] < 0) {
      usual[instruction.stream] = instruction.communicator;
    }
  }
  return usual;
}

std::string CommunicatorName(const Program& program, CommunicatorId id) {
  if (id < 0) {
    return "no communicator";
  }
  if (id >= static_cast<int>(program.communicators.size())) {
    return absl::StrCat("communicator ", id, "?");
  }
  const CommunicatorUse& use = program.communicators[id];
  return absl::StrCat(use.group, " ", use.purpose);
}

// Where the buffer is of the instruction's microbatch, that is left out, and scratch is named by its
// instruction.
void AppendOperands(std::string& line, const Program& program, const Instruction& instruction,
                    const std::string& instruction_name) {
  const std::string suffix = absl::StrCat(" mb ", instruction.microbatch);
  const std::string scratch = absl::StrCat("scratch of ", instruction_name);
  std::vector<std::string> names[3];  // by mode
  for (const Operand& operand : instruction.operands) {
    const std::string name = OperandName(program, operand);
    names[static_cast<int>(operand.mode)].push_back(
        name == scratch ? "scratch" : std::string(absl::StripSuffix(name, suffix)));
  }
  const char* modes[] = {"reads", "writes", "adds"};
  for (int mode = 0; mode < 3; ++mode) {
    if (!names[mode].empty()) {
      absl::StrAppend(&line, "  ", modes[mode], " ", absl::StrJoin(names[mode], "; "));
    }
  }
}

void AppendWaits(std::string& line, const Instruction& instruction) {
  if (instruction.waits.empty()) {
    return;
  }
  absl::StrAppend(&line, "  waits ",
                  absl::StrJoin(instruction.waits, ", ", [](std::string* out, const Wait& wait) {
                    absl::StrAppend(out, wait.instruction);
                    if (wait.frees != 0) {
                      absl::StrAppend(out, " (for memory, ", wait.frees, " B)");
                    }
                  }));
}

}  // namespace

const char* ToText(Opcode opcode) { return InfoOf(opcode).name; }

std::string OperandName(const Program& program, const Operand& operand) {
  if (operand.buffer < 0 || operand.buffer >= static_cast<int>(program.buffers.size())) {
    return absl::StrCat("buffer ", operand.buffer, "?");
  }
  const Buffer& buffer = program.buffers[operand.buffer];
  std::string name = buffer.name;
  if (operand.part >= 0) {
    const std::string part = operand.part < static_cast<int>(buffer.parts.size())
                                 ? buffer.parts[operand.part].name
                                 : absl::StrCat("part ", operand.part, "?");
    absl::StrAppend(&name, "/", part);
  }
  if (operand.former) {
    absl::StrAppend(&name, " (former)");
  }
  return name;
}

std::string TargetName(const Instruction& instruction, const Outline& outline) {
  switch (InfoOf(instruction.opcode).target) {
    case TargetKind::kNone:
      break;
    case TargetKind::kNode:
      return NameOf(outline.nodes, instruction.target, "node");
    case TargetKind::kUnit:
      return NameOf(outline.units, instruction.target, "unit");
    case TargetKind::kValue:
      return NameOf(outline.values, instruction.target, "value");
  }
  return "";
}

std::string ToText(const Instruction& instruction, const Outline& outline) {
  std::string text(ToText(instruction.opcode));
  if (const std::string target = TargetName(instruction, outline); !target.empty()) {
    absl::StrAppend(&text, " ", target);
  }
  if (instruction.microbatch >= 0) {
    absl::StrAppend(&text, " mb ", instruction.microbatch);
  }
  return text;
}

std::string ToText(const Program& program, const Outline& outline) {
  std::string text = absl::StrCat(program.name, ": ", program.num_microbatches, " microbatches, ",
                                  program.instructions.size(), " instructions\n");
  const std::vector<CommunicatorId> usual = UsualCommunicators(program);
  absl::StrAppend(&text, "streams:");
  for (size_t i = 0; i < program.streams.size(); ++i) {
    const Stream& stream = program.streams[i];
    absl::StrAppend(&text, i == 0 ? " " : ", ", stream.name, stream.copies_host ? " (copies)" : "");
    if (usual[i] >= 0) {
      absl::StrAppend(&text, " on ", CommunicatorName(program, usual[i]));
    }
  }
  absl::StrAppend(&text, "\ncommunicators:");
  for (size_t i = 0; i < program.communicators.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", CommunicatorName(program, static_cast<CommunicatorId>(i)),
                    program.communicators[i].window ? " (window)" : "");
  }
  absl::StrAppend(&text, "\n");
  AppendBuffers(text, program);
  absl::StrAppend(&text, "\ninstructions\n");
  const int width = static_cast<int>(absl::StrCat(program.instructions.size()).size());
  int stream_width = 0;
  for (const Stream& stream : program.streams) {
    stream_width = std::max(stream_width, static_cast<int>(stream.name.size()));
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const std::string name = ToText(instruction, outline);
    std::string line = absl::StrFormat("%*d  %-*s  %s", width, i, stream_width,
                                       NameOf(program.streams, instruction.stream, "stream"), name);
    if (InfoOf(instruction.opcode).target == TargetKind::kValue && IsGradient(program, instruction)) {
      absl::StrAppend(&line, " (gradient)");
    }
    const bool has_stream = instruction.stream >= 0 && instruction.stream < static_cast<int>(usual.size());
    if (instruction.communicator != (has_stream ? usual[instruction.stream] : -1)) {
      absl::StrAppend(&line, "  on ", CommunicatorName(program, instruction.communicator));
    }
    AppendOperands(line, program, instruction, name);
    AppendWaits(line, instruction);
    if (instruction.segment >= 0) {
      absl::StrAppend(&line, "  segment ", instruction.segment);
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace tandem::schedules
