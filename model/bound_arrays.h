// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/node.h"
#include "model/node_declaration.h"
#include "ops/array.h"
#include "ops/call.h"
#include "ops/operations.h"

namespace tandem::comm {
class Communicator;
}

namespace tandem::model {

// The memory of one bound pass as arrays, by the names of its declaration. Private to model/.
//
// A pass has what its PassSpec lists. Hidden states and their gradients are in what the node computes in,
// whatever type they are stored in. Parameters of one block are one matrix, by the block's name. Asking for
// anything else throws std::logic_error, and so does CheckAllUsed when something that is declared was not
// asked for.
class BoundArrays {
 public:
  // operands, communicator: as Node::Bind gets them. They, `declaration` and `ops` outlive it.
  BoundArrays(const NodeDeclaration& declaration, Pass pass, absl::Span<const OperandMemory> operands,
              const NodeTypes& types, const ops::Operations& ops, comm::Communicator* communicator);

  // An intermediate too. Not defined: an output that a recompute does not write, because it was kept.
  ops::Array Value(const std::string& name);
  // Not defined: of a forward, in a validation.
  ops::Array Gradient(const std::string& value);
  // For a value with one reader: throws std::logic_error where the pass adds to it.
  ops::Array OverwrittenGradient(const std::string& value);
  ops::Array Parameter(const std::string& name);
  // Not defined: the matrix is frozen, or it is one of a forward, in a validation.
  ops::Array ParameterGradient(const std::string& name);
  // Not defined: a state that the pass would change, and that a recompute or a validation leaves alone.
  ops::Array State(const std::string& name);
  ops::Array Scratch(const std::string& name);
  ops::Workspace Work(const std::string& scratch);

  // Whether the pass adds to that gradient instead of overwriting it.
  bool AddsToGradient(const std::string& value);
  bool AddsToParameterGradient(const std::string& name);

  // Whether the pass continues the state of the microbatch before; false: it overwrites whatever is in it.
  bool ContinuesState(const std::string& name);

  // For a kind that declares one.
  comm::Communicator& Communicator();

  void CheckAllUsed() const;

  // The pass with what its operands take beside the code: those that are stored in another type are converted
  // before, where they are read or added to, and back behind it, where they are written.
  BoundPass WithConversions(BoundPass code);

 private:
  enum class Role : uint8_t {
    kValue,
    kGradient,
    kParameter,
    kParameterGradient,
    kState,
    kScratch,
    kConverted
  };

  struct Entry {
    Role role = Role::kValue;
    TensorSpec spec;
    ComputeType type = ComputeType::kFp32;  // of what is stored; of kInt64 and kByte nothing
    char* begin = nullptr;
    bool writes = false;
    bool adds = false;
    bool used = false;
  };
  const OperandMemory& Next();
  void AddValues(Role role, const std::vector<std::string>& names, bool writes);
  void AddParts(Role role);
  void AddStates(const std::vector<std::string>& names, bool adds);
  void AddWithoutMemory(const PartSpec& part);
  void AddScratch(const PassSpec& spec);
  void CheckRecompute() const;
  void CheckInside(const std::string& name, int64_t bytes, const char* begin,
                   const OperandMemory& operand) const;
  Entry& Find(Role role, const std::string& name);
  Entry* TryFind(Role role, const std::string& name);  // null: it is not declared
  ops::Array ArrayAt(char* begin, const TensorSpec& spec, ComputeType type) const;
  ops::Array ArrayIn(Role role, const std::string& name);
  ops::Array Converted(const Entry& entry, const Entry& scratch);
  // "mlp backward: ": where a message is about.
  std::string Where() const;

  const NodeDeclaration& declaration_;
  const Pass pass_;
  const NodeTypes types_;
  const absl::Span<const OperandMemory> operands_;
  size_t next_ = 0;  // of operands_
  const ops::Operations& ops_;
  comm::Communicator* const communicator_;
  bool communicator_used_ = false;
  std::vector<Entry> entries_;
  std::vector<ops::Call> before_;
  std::vector<ops::Call> after_;
};

}  // namespace tandem::model
