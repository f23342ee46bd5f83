#pragma once

#include <initializer_list>

#include "device/arena.h"  // declares at::Tensor and c10::ScalarType
#include "model/declared_node.h"
#include "model/decoder_shapes.h"
#include "model/node.h"

namespace tandem::model {

// What the nodes that the hidden state goes through share (attention, mlp, head): a forward and a whole
// backward, each with scratch memory; the backward's one gradient is that of the input, [T, H].
class HiddenNode : public DeclaredNode {
 public:
  void Prepare(NodeCall& call, device::Arena& arena) const final;
  void Run(const NodeCall& call) const final;

 protected:
  // name: for a pass that it does not have.
  HiddenNode(const char* name, const NodeContext& context, NodeDeclaration declaration,
             ScratchLayout (*forward)(const DecoderShapes&), ScratchLayout (*backward)(const DecoderShapes&));

  virtual void AllocateWrites(NodeCall& call, device::Arena& arena) const = 0;
  virtual void Forward(const NodeCall& call) const = 0;
  virtual void Backward(const NodeCall& call) const = 0;

  // One piece of the scratch memory of that pass, of the compute type.
  at::Tensor ForwardPiece(const NodeCall& call, int piece, std::initializer_list<int64_t> shape) const;
  at::Tensor BackwardPiece(const NodeCall& call, int piece, std::initializer_list<int64_t> shape) const;
  // Elements of the last piece.
  int64_t ForwardRest() const { return Rest(forward_scratch_); }
  int64_t BackwardRest() const { return Rest(backward_scratch_); }

  const c10::ScalarType dtype_;

 private:
  int64_t Rest(const ScratchLayout& layout) const {
    return (layout.bytes - layout.offsets.back()) / s_.element_bytes;
  }

  const char* const name_;
  const ScratchLayout forward_scratch_;
  const ScratchLayout backward_scratch_;
};

}  // namespace tandem::model
