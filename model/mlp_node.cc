// hidden = x + Wdown · swiglu(Wgate_up · norm(x)). The forward keeps gate and up; the backward recomputes the
// norm and the activation.
#include <ATen/core/Tensor.h>

#include "device/arena.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "model/hidden_node.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

// The part's items, in layout order.
enum MlpParameter { kPostAttentionNorm, kGate, kUp, kDown };

class MlpNode final : public HiddenNode {
 public:
  MlpNode(const DecoderConfig& config, BatchShape batch, ComputeType type, const ops::Operations& ops)
      : HiddenNode("mlp", config, batch, type, ops, mlp_forward::Scratch, mlp_backward::Scratch) {}

 private:
  void AllocateWrites(NodeCall& call, device::Arena& arena) const override {
    call.writes[0] = arena.Allocate({s_.tokens, s_.hidden}, dtype_);
    call.writes[1] = arena.Allocate({s_.tokens, 2 * s_.inner}, dtype_);
  }

  void Forward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    at::Tensor& hidden = call.writes[0];
    at::Tensor& gate_up = call.writes[1];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor normed = ForwardPiece(call, mlp_forward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor activated = ForwardPiece(call, mlp_forward::kActivated, {s_.tokens, s_.inner});

    ops_.RmsNorm(x, weights[kPostAttentionNorm], epsilon_, normed);
    ops_.Linear(normed, Block(weights + kGate, 2), gate_up, {});
    ops_.SwiGlu(gate_up, activated);
    ops_.Linear(activated, weights[kDown], hidden, {});
    ops_.ResidualAdd(x, hidden);
  }

  void Backward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    const at::Tensor& gate_up = call.reads[1];
    const at::Tensor& grad_hidden = call.gradient_reads[0];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor* gradients = call.parameter_gradients[0];
    const bool add = call.add_parameter_gradient[0];
    at::Tensor normed = BackwardPiece(call, mlp_backward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor grad_normed = BackwardPiece(call, mlp_backward::kGradNormed, {s_.tokens, s_.hidden});
    // First the activation's gradient, then the activation itself.
    at::Tensor activated = BackwardPiece(call, mlp_backward::kActivated, {s_.tokens, s_.inner});
    at::Tensor grad_gate_up = BackwardPiece(call, mlp_backward::kGradGateUp, {s_.tokens, 2 * s_.inner});

    ops_.LinearBackwardInput(grad_hidden, weights[kDown], activated, {});
    ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated);
    ops_.LinearBackwardWeight(grad_hidden, activated, add, gradients[kDown], {});
    ops_.RmsNorm(x, weights[kPostAttentionNorm], epsilon_, normed);
    at::Tensor grad_block = Block(gradients + kGate, 2);
    ops_.LinearBackwardWeight(grad_gate_up, normed, add, grad_block, {});
    ops_.LinearBackwardInput(grad_gate_up, Block(weights + kGate, 2), grad_normed, {});
    ops_.RmsNormBackward(grad_normed, x, weights[kPostAttentionNorm], epsilon_, /*residual=*/grad_hidden,
                         call.add_gradient[0], call.gradient_writes[0], add, gradients[kPostAttentionNorm]);
  }
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                  const ops::Operations& ops) {
  return std::make_unique<MlpNode>(config, batch, type, ops);
}

}  // namespace tandem::model
