#include "model/hidden_node.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "model/call_memory.h"

namespace tandem::model {

HiddenNode::HiddenNode(const char* name, const NodeContext& context, NodeDeclaration declaration,
                       ScratchLayout (*forward)(const DecoderShapes&),
                       ScratchLayout (*backward)(const DecoderShapes&))
    : DeclaredNode(context, std::move(declaration)),
      dtype_(ScalarTypeOf(context.type)),
      name_(name),
      forward_scratch_(forward(s_)),
      backward_scratch_(backward(s_)) {}

void HiddenNode::Prepare(NodeCall& call, device::Arena& arena) const {
  if (call.pass == Pass::kForward) {
    AllocateWrites(call, arena);
    PrepareScratch(call, forward_scratch_, arena);
  } else if (call.pass == Pass::kBackward) {
    PrepareGradient(call, 0, {s_.tokens, s_.hidden}, dtype_, arena);
    PrepareScratch(call, backward_scratch_, arena);
  } else {
    RefusePass(name_, call.pass);
  }
}

void HiddenNode::Run(const NodeCall& call) const {
  call.pass == Pass::kForward ? Forward(call) : Backward(call);
}

at::Tensor HiddenNode::ForwardPiece(const NodeCall& call, int piece,
                                    std::initializer_list<int64_t> shape) const {
  return Piece(call, forward_scratch_, piece, shape, dtype_);
}

at::Tensor HiddenNode::BackwardPiece(const NodeCall& call, int piece,
                                     std::initializer_list<int64_t> shape) const {
  return Piece(call, backward_scratch_, piece, shape, dtype_);
}

}  // namespace tandem::model
