// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/operand_shapes.h"
#include "schedules/check/rules.h"
#include "schedules/check/violation.h"
#include "schedules/program/signature.h"
#include "schedules/program/text.h"
#include "schedules/program/unit_bytes.h"

namespace tandem::schedules {
namespace {

constexpr char kFormed[] = "formed";

template <typename T>
bool InRange(int index, const std::vector<T>& all) {
  return index >= 0 && index < static_cast<int>(all.size());
}

// By group and purpose: the stream that uses the communicator, and where it was first used.
using Users = std::map<std::pair<std::string, std::string>, std::pair<std::string, std::string>>;

class FormedRule {
 public:
  FormedRule(const Outline& outline, const BuildOptions& options, const StagePrograms& stage,
             const Program& program, Users& users)
      : outline_(outline), options_(options), stage_(stage), program_(program), users_(users) {}

  absl::Status Run() {
    TANDEM_RETURN_IF_ERROR(CheckBuffers());
    TANDEM_RETURN_IF_ERROR(CheckNames());
    for (int i = 0; i < static_cast<int>(program_.instructions.size()); ++i) {
      TANDEM_RETURN_IF_ERROR(CheckInstruction(i));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckNames() const {
    absl::flat_hash_set<absl::string_view> streams;
    for (const Stream& stream : program_.streams) {
      if (!streams.insert(stream.name).second) {
        return Violation(kFormed, program_, absl::StrCat("has two streams named ", stream.name));
      }
    }
    absl::flat_hash_set<std::pair<std::string, std::string>> uses;
    for (const CommunicatorUse& use : program_.communicators) {
      if (!uses.insert({use.group, use.purpose}).second) {
        return Violation(kFormed, program_,
                         absl::StrCat("has two communicators of ", use.group, " for ", use.purpose));
      }
    }
    return absl::OkStatus();
  }

  // What its kind says of the buffer; what is wrong with it, or nothing.
  std::string CheckKind(const Buffer& buffer) const {
    const BufferKindInfo& info = InfoOf(buffer.kind);
    if (info.life != buffer.life) {
      return absl::StrCat("does not live as long as ", info.name, " do");
    }
    switch (info.subject) {
      case SubjectKind::kNone:
        return "";
      case SubjectKind::kState:
        return InRange(buffer.subject, outline_.states) ? "" : "is of no state of the outline";
      case SubjectKind::kValue:
        return InRange(buffer.subject, outline_.values) ? "" : "is of no value of the outline";
      case SubjectKind::kUnit:
        return InRange(buffer.subject, outline_.units) ? CheckUnitParts(buffer)
                                                       : "is of no unit of the outline";
    }
    return "";
  }

  // Where nodes find parameters and put gradients, the layout of the unit puts them too.
  std::string CheckUnitParts(const Buffer& buffer) const {
    const Unit& unit = outline_.units[buffer.subject];
    const bool moments =
        buffer.kind == BufferKind::kOptimizerState || buffer.kind == BufferKind::kHostOptimizerState;
    if (buffer.parts.empty() || moments) {
      return "";
    }
    const auto type = buffer.kind == BufferKind::kContribution ? &UnitPrecision::transport
                      : buffer.kind == BufferKind::kCollected  ? &UnitPrecision::main
                                                               : &UnitPrecision::compute;
    const bool same = std::equal(unit.parts.begin(), unit.parts.end(), buffer.parts.begin(),
                                 buffer.parts.end(), [&](const PartRange& part, const BufferPart& has) {
                                   return RangeOf(options_, outline_, buffer.subject, part, type) ==
                                          std::pair(has.begin, has.end);
                                 });
    return same ? "" : absl::StrCat("has other parts than ", unit.name);
  }

  absl::Status CheckBuffers() const {
    absl::flat_hash_set<absl::string_view> names;
    names.reserve(program_.buffers.size());
    bool locals = false;
    for (const Buffer& buffer : program_.buffers) {
      const auto violation = [&](const std::string& what) {
        return Violation(kFormed, program_, absl::StrCat("buffer ", buffer.name, " ", what));
      };
      if (!names.insert(buffer.name).second) {
        return violation("appears twice");
      }
      if (const std::string wrong = CheckKind(buffer); !wrong.empty()) {
        return violation(wrong);
      }
      const bool local = buffer.life == Life::kLocal;
      if (!local && locals) {
        return violation("is persistent and comes after local ones");
      }
      locals |= local;
      if (buffer.bytes.bound < 0 || buffer.bytes.expected > buffer.bytes.bound) {
        return violation(
            absl::StrCat("has ", buffer.bytes.expected, " bytes of at most ", buffer.bytes.bound));
      }
      int64_t end = 0;
      for (const BufferPart& part : buffer.parts) {
        if (part.begin < end || part.end < part.begin || part.end > buffer.bytes.bound) {
          return violation(absl::StrCat("has part ", part.name, " at [", part.begin, ", ", part.end,
                                        "), which is not behind the part before it and within ",
                                        buffer.bytes.bound, " bytes"));
        }
        end = part.end;
      }
      const int64_t begin = !IsHost(buffer.kind) && local ? stage_.persistent_bytes : 0;
      const int64_t limit = IsHost(buffer.kind) ? stage_.host_bytes
                            : local             ? stage_.arena_bytes
                                                : stage_.persistent_bytes;
      if (buffer.alignment <= 0 || buffer.address < begin || buffer.address % buffer.alignment != 0 ||
          buffer.address + ExtentOf(buffer) > limit) {
        return violation(absl::StrCat("lies at ", buffer.address, " with ", ExtentOf(buffer),
                                      " bytes, and not aligned to ", buffer.alignment, " within [", begin,
                                      ", ", limit, ")"));
      }
    }
    return CheckPersistent();
  }

  // The same as in the first program.
  absl::Status CheckPersistent() const {
    const std::vector<Buffer>& first = stage_.All().front()->buffers;
    size_t b = 0;
    for (; b < program_.buffers.size() && program_.buffers[b].life != Life::kLocal; ++b) {
      if (b >= first.size() || !(program_.buffers[b] == first[b])) {
        return Violation(kFormed, program_,
                         absl::StrCat("buffer ", program_.buffers[b].name, " is not as in ",
                                      stage_.All().front()->name, ", though it is persistent"));
      }
    }
    if (b < first.size() && first[b].life != Life::kLocal) {
      return Violation(kFormed, program_,
                       absl::StrCat("has no buffer ", first[b].name, ", which is persistent"));
    }
    return absl::OkStatus();
  }

  absl::Status Refuse(int i, absl::string_view what) const {
    return Violation(kFormed, outline_, program_, i, what);
  }

  absl::Status CheckInstruction(int i) {
    const Instruction& in = program_.instructions[i];
    const int opcode = static_cast<int>(in.opcode);
    if (opcode < 0 || opcode >= kNumOpcodes) {
      return Violation(kFormed, program_, absl::StrCat("instruction ", i, " has opcode ", opcode));
    }
    const OpcodeInfo& info = InfoOf(in.opcode);
    const bool target = info.target == TargetKind::kNone   ? in.target == -1
                        : info.target == TargetKind::kNode ? InRange(in.target, outline_.nodes)
                        : info.target == TargetKind::kUnit ? InRange(in.target, outline_.units)
                                                           : InRange(in.target, outline_.values);
    if (!target) {
      return Refuse(i, absl::StrCat("has no target ", in.target));
    }
    if (in.microbatch < (info.of_microbatch ? 0 : -1) || in.microbatch >= program_.num_microbatches) {
      return Refuse(i, absl::StrCat("is of microbatch ", in.microbatch, " of ", program_.num_microbatches));
    }
    if (!InRange(in.stream, program_.streams)) {
      return Refuse(i, absl::StrCat("is on stream ", in.stream, ", which is not there"));
    }
    TANDEM_RETURN_IF_ERROR(CheckCommunicator(i));
    for (const Wait& wait : in.waits) {
      if (wait.instruction < 0 || wait.instruction >= i) {
        return Refuse(i, absl::StrCat("waits for ", wait.instruction, ", which is not issued before it"));
      }
    }
    for (const Operand& operand : in.operands) {
      if (!InRange(operand.buffer, program_.buffers)) {
        return Refuse(i,
                      absl::StrCat("has operand ", OperandName(program_, operand), ", which is not there"));
      }
      const Buffer& buffer = program_.buffers[operand.buffer];
      if (operand.part != -1 && !InRange(operand.part, buffer.parts)) {
        return Refuse(i, absl::StrCat("has operand ", OperandName(program_, operand), ", and the buffer has ",
                                      buffer.parts.size(), " parts"));
      }
      if (operand.former && (buffer.life != Life::kRing || operand.mode != Mode::kReads)) {
        return Refuse(i, absl::StrCat("has operand ", OperandName(program_, operand),
                                      ": of a former run only rings are there, and only to read"));
      }
      if (program_.streams[in.stream].copies_host && buffer.life != Life::kRing) {
        return Refuse(i, absl::StrCat("touches ", OperandName(program_, operand), " on stream ",
                                      program_.streams[in.stream].name, ", which may touch only rings"));
      }
    }
    return in.opcode == Opcode::kReport || in.opcode == Opcode::kSnapshot || in.opcode == Opcode::kCopy
               ? CheckCopies(i)
               : CheckShapes(i);
  }

  absl::Status CheckCommunicator(int i) {
    const Instruction& in = program_.instructions[i];
    if (in.communicator == -1) {
      return absl::OkStatus();
    }
    if (!InRange(in.communicator, program_.communicators)) {
      return Refuse(i, absl::StrCat("is on communicator ", in.communicator, ", which is not there"));
    }
    const CommunicatorUse& use = program_.communicators[in.communicator];
    const std::string& stream = program_.streams[in.stream].name;
    const auto [user, first] = users_.try_emplace({use.group, use.purpose}, stream, "");
    if (first) {
      user->second.second = absl::StrCat(program_.name, ": ", Describe(outline_, program_, i));
    } else if (user->second.first != stream) {
      return Refuse(
          i, absl::StrCat("uses communicator ", use.group, " ", use.purpose, " on stream ", stream, ", and ",
                          user->second.second, " uses it on stream ", user->second.first));
    }
    return absl::OkStatus();
  }

  int64_t BytesOf(const Operand& operand) const {
    const Buffer& buffer = program_.buffers[operand.buffer];
    return operand.part < 0 ? buffer.bytes.bound
                            : buffer.parts[operand.part].end - buffer.parts[operand.part].begin;
  }

  absl::Status CheckShapes(int i) {
    const Instruction& in = program_.instructions[i];
    ShapesOf(outline_, options_, in, &program_ == &stage_.validate, shapes_);
    const size_t required = std::find_if(shapes_.begin(), shapes_.end(),
                                         [](const OperandShape& shape) { return shape.optional; }) -
                            shapes_.begin();
    if (in.operands.size() != shapes_.size() && in.operands.size() != required) {
      return Refuse(i, absl::StrCat("has ", in.operands.size(), " operands instead of ", required));
    }
    for (size_t k = 0; k < in.operands.size(); ++k) {
      const Operand& operand = in.operands[k];
      const OperandShape& shape = shapes_[k];
      const Buffer& buffer = program_.buffers[operand.buffer];
      // A part is the whole where nothing divides the buffer.
      const bool part =
          shape.part < 0 || operand.part == shape.part || (operand.part < 0 && buffer.parts.empty());
      if (operand.role != shape.role || !Allows(shape.kinds, static_cast<int>(buffer.kind)) ||
          (shape.subject >= 0 && buffer.subject != shape.subject) || !part) {
        return Refuse(i, absl::StrCat("has operand ", OperandName(program_, operand), " in place ", k,
                                      ", where something else belongs"));
      }
      if (!Allows(shape.modes, static_cast<int>(operand.mode)) || shape.former != operand.former) {
        const char* modes[] = {"reads", "writes", "adds to"};
        return Refuse(i, absl::StrCat(modes[static_cast<int>(operand.mode)], " ",
                                      OperandName(program_, operand), ", which it may not"));
      }
      if (BytesOf(operand) < shape.bytes) {
        return Refuse(i, absl::StrCat("needs ", shape.bytes, " bytes of ", OperandName(program_, operand),
                                      ", which has ", BytesOf(operand)));
      }
    }
    return absl::OkStatus();
  }

  // Whether one is a microbatch's part of a ring, and the other the local that segments access instead.
  bool AreRingAndLocal(const Operand& one, const Operand& other) const {
    const Buffer& ring = program_.buffers[one.buffer];
    const Buffer& local = program_.buffers[other.buffer];
    return (ring.kind == BufferKind::kBatch || ring.kind == BufferKind::kLosses) && one.part >= 0 &&
           local.kind == BufferKind::kActivation && other.part < 0 && BytesOf(one) == BytesOf(other);
  }

  // Whether the copy is one that the instruction may make.
  bool IsCopy(Opcode opcode, const Operand& from, const Operand& to) const {
    if (opcode == Opcode::kCopy) {
      return AreRingAndLocal(from, to) || AreRingAndLocal(to, from);
    }
    const Buffer& source = program_.buffers[from.buffer];
    const Buffer& copy = program_.buffers[to.buffer];
    const BufferKind host = HostCopyOf(source.kind);
    return copy.kind == host && host != source.kind && IsSaved(host) == (opcode == Opcode::kSnapshot) &&
           from.part == to.part && source.parts.size() == copy.parts.size();
  }

  // As many reads as writes, of the same subjects and sizes.
  absl::Status CheckCopies(int i) const {
    const Opcode opcode = program_.instructions[i].opcode;
    const std::vector<Operand>& operands = program_.instructions[i].operands;
    const size_t half = operands.size() / 2;
    for (size_t k = 0; k < half; ++k) {
      const Operand& from = operands[k];
      const Operand& to = operands[half + k];
      const Buffer& source = program_.buffers[from.buffer];
      const Buffer& copy = program_.buffers[to.buffer];
      if (from.role != Role::kSource || to.role != Role::kCopy || from.mode != Mode::kReads ||
          to.mode != Mode::kWrites || source.subject != copy.subject || !IsCopy(opcode, from, to) ||
          BytesOf(to) < BytesOf(from)) {
        return Refuse(
            i, absl::StrCat("copies ", OperandName(program_, from), " to ", OperandName(program_, to),
                            ", which is not ",
                            opcode == Opcode::kCopy ? "its ring or its local" : "its place on the host"));
      }
    }
    return operands.size() % 2 == 0 ? absl::OkStatus() : Refuse(i, "does not write as much as it reads");
  }

  const Outline& outline_;
  const BuildOptions& options_;
  const StagePrograms& stage_;
  const Program& program_;
  Users& users_;
  std::vector<OperandShape> shapes_;  // of the instruction at hand
};

}  // namespace

absl::Status CheckFormed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage) {
  Users users;
  for (const Program* program : stage.All()) {
    TANDEM_RETURN_IF_ERROR(FormedRule(outline, options, stage, *program, users).Run());
  }
  return absl::OkStatus();
}

}  // namespace tandem::schedules
