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

// Wraps the memory of one bound pass in arrays. The node's code requests them by the names in the node's
// declaration. Private to model/.
//
// A pass has the arrays that its PassSpec lists. Hidden states and their gradients have the type that the
// node computes in, whatever type they are stored in. The parameters of one block are one matrix, which has
// the block's name. Requesting an array that is not listed throws std::logic_error; so does CheckAllUsed if a
// listed array was never requested.
class BoundArrays {
 public:
  // `operands` and `communicator` are the arguments of Node::Bind. All arguments that are passed by
  // reference, span or pointer must outlive this object.
  BoundArrays(const NodeDeclaration& declaration, Pass pass, absl::Span<const OperandMemory> operands,
              const NodeTypes& types, const ops::Operations& ops, comm::Communicator* communicator);

  // Returns an input, an output or an intermediate. In a recompute, an output that was kept, and so is not
  // written again, is undefined.
  ops::Array Value(const std::string& name);
  // Undefined in the forward of a validation, which computes no gradients.
  ops::Array Gradient(const std::string& value);
  // The gradient of a value with one reader. Throws std::logic_error if the pass adds to it.
  ops::Array OverwrittenGradient(const std::string& value);
  ops::Array Parameter(const std::string& name);
  // Undefined in the forward of a validation, and if the parameter is frozen and has no scratch in place of
  // its gradient (FreezeParts in node_declaration.h).
  ops::Array ParameterGradient(const std::string& name);
  bool HasParameterGradient(const std::string& name);
  // A recompute and a validation do not change states: a state that the pass would change is then undefined.
  ops::Array State(const std::string& name);
  ops::Array Scratch(const std::string& name);
  ops::Workspace Work(const std::string& scratch);

  // Whether the pass adds to the gradient instead of overwriting it.
  bool AddsToGradient(const std::string& value);
  bool AddsToParameterGradient(const std::string& name);

  // Whether the pass continues the state that the previous microbatch left. If false, it overwrites the
  // state.
  bool ContinuesState(const std::string& name);

  // The communicator of the pass. Throws std::logic_error if the node's kind declares none.
  comm::Communicator& Communicator();

  void CheckAllUsed() const;

  // Wraps `code` in the conversions that its operands need. An operand that is stored in another type is
  // converted before the code if the pass reads it or adds to it, and converted back after the code if the
  // pass writes it.
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
    ops::ElementKind type = ops::ElementKind::kFloat;  // as stored
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
  Entry* TryFind(Role role, const std::string& name);  // null if it is not declared
  ops::ElementKind StoredType(const TensorSpec& spec) const;
  ops::Array ArrayOf(const Entry& entry) const;
  ops::Array ArrayIn(Role role, const std::string& name);
  ops::Array Converted(const Entry& entry, const Entry& scratch);
  // The beginning of an error message: "mlp backward: ".
  std::string Where() const;

  const NodeDeclaration& declaration_;
  const Pass pass_;
  const NodeTypes types_;
  const absl::Span<const OperandMemory> operands_;
  size_t next_ = 0;  // index in operands_
  const ops::Operations& ops_;
  comm::Communicator* const communicator_;
  bool communicator_used_ = false;
  std::vector<Entry> entries_;
  std::vector<ops::Call> before_;
  std::vector<ops::Call> after_;
};

}  // namespace tandem::model
