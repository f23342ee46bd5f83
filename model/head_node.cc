// loss = cross_entropy(Whead · norm(x), targets). The forward leaves the gradient of the logits where the
// logits were: the derivative of the loss is 1 by definition, so it is known already, and what would be kept
// for the backward is as large. Whead is the embedding's matrix when it is tied.
#include <ATen/core/Tensor.h>

#include "device/arena.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "model/hidden_node.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

class HeadNode final : public HiddenNode {
 public:
  HeadNode(const DecoderConfig& config, BatchShape batch, ComputeType type, const ops::Operations& ops)
      : HiddenNode("head", config, batch, type, ops, head_forward::Scratch, head_backward::Scratch),
        tied_(config.tie_word_embeddings) {}

 private:
  void AllocateWrites(NodeCall& call, device::Arena& arena) const override {
    call.writes[0] = arena.Allocate({1}, at::kDouble);
    call.writes[1] = arena.Allocate({s_.tokens, s_.vocabulary}, dtype_);
  }

  void Forward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    const at::Tensor targets = call.reads[1].narrow(1, 1, s_.length);
    at::Tensor& loss = call.writes[0];
    at::Tensor& logits = call.writes[1];
    at::Tensor normed = ForwardPiece(call, head_forward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor lse = ForwardPiece(call, head_forward::kLogSumExp, {s_.tokens});

    ops_.RmsNorm(x, call.parameters[0][0], epsilon_, normed);
    ops_.Linear(normed, tied_ ? call.parameters[1][0] : call.parameters[0][1], logits, {});
    ops_.CrossEntropy(logits, targets, lse, loss);
    ops_.CrossEntropyBackward(logits, targets, lse, logits);
  }

  void Backward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    const at::Tensor& grad_logits = call.reads[1];
    const at::Tensor& norm = call.parameters[0][0];
    const at::Tensor& weight = tied_ ? call.parameters[1][0] : call.parameters[0][1];
    at::Tensor& grad_norm = call.parameter_gradients[0][0];
    at::Tensor& grad_weight = tied_ ? call.parameter_gradients[1][0] : call.parameter_gradients[0][1];
    at::Tensor normed = BackwardPiece(call, head_backward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor grad_normed = BackwardPiece(call, head_backward::kGradNormed, {s_.tokens, s_.hidden});

    ops_.RmsNorm(x, norm, epsilon_, normed);
    ops_.LinearBackwardWeight(grad_logits, normed, call.add_parameter_gradient[tied_ ? 1 : 0], grad_weight,
                              {});
    ops_.LinearBackwardInput(grad_logits, weight, grad_normed, {});
    ops_.RmsNormBackward(grad_normed, x, norm, epsilon_, /*residual=*/at::Tensor(), call.add_gradient[0],
                         call.gradient_writes[0], call.add_parameter_gradient[0], grad_norm);
  }

  const bool tied_;
};

}  // namespace

std::unique_ptr<Node> MakeHeadNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                   const ops::Operations& ops) {
  return std::make_unique<HeadNode>(config, batch, type, ops);
}

}  // namespace tandem::model
