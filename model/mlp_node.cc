// hidden = x + Wdown · swiglu(Wgate_up · norm(x)). The forward keeps gate and up; the backward recomputes the
// norm and the activation.
#include <ATen/core/Tensor.h>

#include "device/arena.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "ops/linear.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

// The part's items, in layout order.
enum MlpParameter { kPostAttentionNorm, kGate, kUp, kDown };

class MlpNode final : public Node {
 public:
  MlpNode(const DecoderConfig& config, BatchShape batch, ComputeType type, const ops::Operations& ops)
      : s_(config, batch, type),
        ops_(ops),
        dtype_(ScalarTypeOf(type)),
        epsilon_(config.rms_norm_eps),
        forward_scratch_(mlp_forward::Scratch(s_)),
        backward_scratch_(mlp_backward::Scratch(s_)) {}

  void Prepare(NodeCall& call, device::Arena& arena) const override {
    if (call.pass == Pass::kForward) {
      call.writes[0] = arena.Allocate({s_.tokens, s_.hidden}, dtype_);
      call.writes[1] = arena.Allocate({s_.tokens, 2 * s_.inner}, dtype_);
      PrepareScratch(call, forward_scratch_, arena);
    } else if (call.pass == Pass::kBackward) {
      PrepareGradient(call, 0, {s_.tokens, s_.hidden}, dtype_, arena);
      PrepareScratch(call, backward_scratch_, arena);
    } else {
      RefusePass("mlp", call.pass);
    }
  }

  void Run(const NodeCall& call) const override {
    call.pass == Pass::kForward ? Forward(call) : Backward(call);
  }

 private:
  void Forward(const NodeCall& call) const {
    const at::Tensor& x = call.reads[0];
    at::Tensor& hidden = call.writes[0];
    at::Tensor& gate_up = call.writes[1];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor normed = Piece(call, forward_scratch_, mlp_forward::kNormed, {s_.tokens, s_.hidden}, dtype_);
    at::Tensor activated =
        Piece(call, forward_scratch_, mlp_forward::kActivated, {s_.tokens, s_.inner}, dtype_);

    ops_.RmsNorm(x, weights[kPostAttentionNorm], epsilon_, normed);
    ops::Linear(normed, Block(weights + kGate, 2), gate_up);
    ops_.SwiGlu(gate_up, activated);
    ops::Linear(activated, weights[kDown], hidden);
    ops_.ResidualAdd(x, hidden);
  }

  void Backward(const NodeCall& call) const {
    const at::Tensor& x = call.reads[0];
    const at::Tensor& gate_up = call.reads[1];
    const at::Tensor& grad_hidden = call.gradient_reads[0];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor* gradients = call.parameter_gradients[0];
    const bool add = call.add_parameter_gradient[0];
    at::Tensor normed = Piece(call, backward_scratch_, mlp_backward::kNormed, {s_.tokens, s_.hidden}, dtype_);
    at::Tensor grad_normed =
        Piece(call, backward_scratch_, mlp_backward::kGradNormed, {s_.tokens, s_.hidden}, dtype_);
    // First the activation's gradient, then the activation itself.
    at::Tensor activated =
        Piece(call, backward_scratch_, mlp_backward::kActivated, {s_.tokens, s_.inner}, dtype_);
    at::Tensor grad_gate_up =
        Piece(call, backward_scratch_, mlp_backward::kGradGateUp, {s_.tokens, 2 * s_.inner}, dtype_);

    ops::LinearBackwardInput(grad_hidden, weights[kDown], activated);
    ops_.SwiGluBackward(gate_up, activated, grad_gate_up, activated);
    ops::LinearBackwardWeight(grad_hidden, activated, add, gradients[kDown]);
    ops_.RmsNorm(x, weights[kPostAttentionNorm], epsilon_, normed);
    at::Tensor grad_block = Block(gradients + kGate, 2);
    ops::LinearBackwardWeight(grad_gate_up, normed, add, grad_block);
    ops::LinearBackwardInput(grad_gate_up, Block(weights + kGate, 2), grad_normed);
    ops_.RmsNormBackward(grad_normed, x, weights[kPostAttentionNorm], epsilon_, /*residual=*/grad_hidden,
                         call.add_gradient[0], call.gradient_writes[0], add, gradients[kPostAttentionNorm]);
  }

  const DecoderShapes s_;
  const ops::Operations& ops_;
  const at::ScalarType dtype_;
  const double epsilon_;
  const ScratchLayout forward_scratch_;
  const ScratchLayout backward_scratch_;
};

}  // namespace

std::unique_ptr<Node> MakeMlpNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                  const ops::Operations& ops) {
  return std::make_unique<MlpNode>(config, batch, type, ops);
}

}  // namespace tandem::model
