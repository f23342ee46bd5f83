// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/node.h"
#include "model/node_declaration.h"
#include "ops/operations.h"

namespace at {
class Tensor;
}
namespace tandem::comm {
class Communicator;
}

namespace tandem::model {

// The memory of one bound pass as tensors, by the names of its declaration. Private to model/.
//
// A pass has what its PassSpec lists. Hidden states and their gradients are in what the node computes in,
// whatever type they are stored in. Parameters of one block are one matrix, by the block's name. Asking for
// anything else throws std::logic_error, and so does CheckAllUsed when something that is declared was not
// asked for.
class BoundTensors {
 public:
  // operands, communicator: as Node::Bind gets them. They, `declaration` and `ops` outlive it.
  BoundTensors(const NodeDeclaration& declaration, Pass pass, absl::Span<const OperandMemory> operands,
               const NodeTypes& types, const ops::Operations& ops, comm::Communicator* communicator);
  ~BoundTensors();

  // An intermediate too. Undefined: an output that a recompute does not write, because it was kept.
  at::Tensor Value(const std::string& name);
  // Undefined: of a forward, in a validation.
  at::Tensor Gradient(const std::string& value);
  // For a value with one reader: throws std::logic_error where the pass adds to it.
  at::Tensor OverwrittenGradient(const std::string& value);
  at::Tensor Parameter(const std::string& name);
  // Undefined: the matrix is frozen, or it is one of a forward, in a validation.
  at::Tensor ParameterGradient(const std::string& name);
  // Undefined: a state that the pass would change, and that a recompute or a validation leaves alone.
  at::Tensor State(const std::string& name);
  at::Tensor Scratch(const std::string& name);
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
  BoundPass WithConversions(BoundPass code) const;

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
  struct Copy;

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
  at::Tensor TensorAt(char* begin, const TensorSpec& spec, ComputeType type) const;
  at::Tensor TensorOf(Role role, const std::string& name);
  at::Tensor Converted(const Entry& entry, const Entry& scratch);
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
  std::vector<Copy> before_;
  std::vector<Copy> after_;
};

}  // namespace tandem::model
