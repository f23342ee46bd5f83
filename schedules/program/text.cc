#include "schedules/program/text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
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

void AppendBuffers(std::string& text, const Program& program) {
  const auto has_kind = [](BufferKind kind) {
    return [kind](const Buffer& buffer) { return buffer.kind == kind; };
  };
  std::vector<BufferKind> kinds;
  for (const Buffer& buffer : program.buffers) {
    if (std::find(kinds.begin(), kinds.end(), buffer.kind) == kinds.end()) {
      kinds.push_back(buffer.kind);
    }
  }
  std::sort(kinds.begin(), kinds.end());
  for (const BufferKind kind : kinds) {
    const Buffer& first = *std::find_if(program.buffers.begin(), program.buffers.end(), has_kind(kind));
    const char* lives[] = {"", " (persistent)", " (two, by the run's parity)"};
    absl::StrAppend(&text, "\n", ToText(kind), lives[static_cast<int>(first.life)], "\n");
    for (const Buffer& buffer : program.buffers) {
      if (buffer.kind != kind) {
        continue;
      }
      absl::StrAppend(&text, "  ", buffer.name, ": ", buffer.bytes.bound, " B");
      if (buffer.bytes.expected != buffer.bytes.bound) {
        absl::StrAppend(&text, " (expected ", buffer.bytes.expected, ")");
      }
      absl::StrAppend(&text, " @ ", buffer.address);
      if (buffer.alignment != 256) {
        absl::StrAppend(&text, " aligned to ", buffer.alignment);
      }
      if (buffer.life != first.life) {
        absl::StrAppend(&text, " life ", static_cast<int>(buffer.life));
      }
      for (const BufferPart& part : buffer.parts) {
        absl::StrAppend(&text, "; ", part.name, " [", part.begin, ", ", part.end, ")");
      }
      absl::StrAppend(&text, "\n");
    }
  }
}

// Where the buffer is of the instruction's microbatch, that is left out, and scratch is named by its
// instruction.
void AppendOperands(std::string& line, const Program& program, const Instruction& instruction) {
  const std::string suffix = absl::StrCat(" mb ", instruction.microbatch);
  std::vector<std::string> names[3];  // by mode
  for (const Operand& operand : instruction.operands) {
    std::string name = OperandName(program, operand);
    absl::string_view shown = name;
    absl::ConsumeSuffix(&shown, suffix);
    const bool scratch = operand.buffer >= 0 && operand.buffer < static_cast<int>(program.buffers.size()) &&
                         program.buffers[operand.buffer].kind == BufferKind::kScratch;
    names[static_cast<int>(operand.mode)].push_back(
        scratch && absl::StartsWith(shown, "scratch of ") ? "scratch" : std::string(shown));
  }
  const char* modes[] = {"reads", "writes", "adds"};
  for (int mode = 0; mode < 3; ++mode) {
    if (!names[mode].empty()) {
      absl::StrAppend(&line, "  ", modes[mode], " ", absl::StrJoin(names[mode], ", "));
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

std::string ToText(const Instruction& instruction, const Outline& outline) {
  std::string text(ToText(instruction.opcode));
  switch (InfoOf(instruction.opcode).target) {
    case TargetKind::kNone:
      break;
    case TargetKind::kNode:
      absl::StrAppend(&text, " ", NameOf(outline.nodes, instruction.target, "node"));
      break;
    case TargetKind::kUnit:
      absl::StrAppend(&text, " ", NameOf(outline.units, instruction.target, "unit"));
      break;
    case TargetKind::kValue:
      absl::StrAppend(&text, " ", NameOf(outline.values, instruction.target, "value"));
      break;
  }
  if (instruction.microbatch >= 0) {
    absl::StrAppend(&text, " mb ", instruction.microbatch);
  }
  return text;
}

std::string ToText(const Program& program, const Outline& outline) {
  std::string text = absl::StrCat(program.name, ": ", program.num_microbatches, " microbatches, ",
                                  program.instructions.size(), " instructions\n");
  absl::StrAppend(&text, "streams: ",
                  absl::StrJoin(program.streams, ", ",
                                [](std::string* out, const Stream& stream) {
                                  absl::StrAppend(out, stream.name, stream.copies_host ? " (copies)" : "");
                                }),
                  "\ncommunicators: ",
                  absl::StrJoin(program.communicators, ", ",
                                [](std::string* out, const CommunicatorUse& use) {
                                  absl::StrAppend(out, use.group, " ", use.purpose,
                                                  use.window ? " (window)" : "");
                                }),
                  "\n");
  AppendBuffers(text, program);
  absl::StrAppend(&text, "\ninstructions\n");
  const int width = static_cast<int>(absl::StrCat(program.instructions.size()).size());
  int stream_width = 0;
  for (const Stream& stream : program.streams) {
    stream_width = std::max(stream_width, static_cast<int>(stream.name.size()));
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    std::string line =
        absl::StrFormat("%*d  %-*s  %s", width, i, stream_width,
                        NameOf(program.streams, instruction.stream, "stream"), ToText(instruction, outline));
    if (InfoOf(instruction.opcode).target == TargetKind::kValue && IsGradient(program, instruction)) {
      absl::StrAppend(&line, " (gradient)");
    }
    if (instruction.communicator >= 0) {
      const bool exists = instruction.communicator < static_cast<int>(program.communicators.size());
      absl::StrAppend(&line, "  on ",
                      exists ? absl::StrCat(program.communicators[instruction.communicator].group, " ",
                                            program.communicators[instruction.communicator].purpose)
                             : absl::StrCat("communicator ", instruction.communicator, "?"));
    }
    AppendOperands(line, program, instruction);
    AppendWaits(line, instruction);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace tandem::schedules
