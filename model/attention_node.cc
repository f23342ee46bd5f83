// hidden = x + Wo · attention(rope(Wqkv · norm(x))). The forward keeps q, k, v (turned), the context and the
// log-sum-exps; the backward recomputes the norm.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "device/arena.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "model/hidden_node.h"
#include "ops/operations.h"
#include "ops/rope.h"

namespace tandem::model {

struct RotaryTables {
  at::Tensor cosines;  // [S, head_dim / 2]
  at::Tensor sines;
};

std::shared_ptr<const RotaryTables> MakeRotaryTables(const DecoderConfig& config, BatchShape batch,
                                                     ComputeType type, const ops::Operations& ops) {
  TORCH_CHECK(config.head_dim % 2 == 0, "rotary embedding needs an even head_dim, not ", config.head_dim);
  auto tables = std::make_shared<RotaryTables>();
  at::Tensor cosines = at::empty({batch.sequence_length, config.head_dim / 2}, ScalarTypeOf(type));
  at::Tensor sines = at::empty_like(cosines);
  ops::RopeTables(config.rope_theta, cosines, sines);
  tables->cosines = ops.Constant(cosines);
  tables->sines = ops.Constant(sines);
  return tables;
}

namespace {

// The part's items, in layout order.
enum AttentionParameter { kInputNorm, kQuery, kKey, kValue, kOutput };

class AttentionNode final : public HiddenNode {
 public:
  AttentionNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                std::shared_ptr<const RotaryTables> tables, const ops::Operations& ops)
      : HiddenNode("attention", config, batch, type, ops, attention_forward::Scratch,
                   attention_backward::Scratch),
        tables_(std::move(tables)),
        shape_{s_.sequences, s_.length, s_.heads, s_.kv_heads, s_.head_dim} {}

 private:
  void AllocateWrites(NodeCall& call, device::Arena& arena) const override {
    call.writes[0] = arena.Allocate({s_.tokens, s_.hidden}, dtype_);
    call.writes[1] = arena.Allocate({s_.tokens, s_.qkv}, dtype_);
    call.writes[2] = arena.Allocate({s_.tokens, s_.query}, dtype_);
    call.writes[3] = arena.Allocate({s_.sequences, s_.heads, s_.length}, dtype_);
  }

  void Forward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    at::Tensor& hidden = call.writes[0];
    at::Tensor& qkv = call.writes[1];
    at::Tensor& context = call.writes[2];
    at::Tensor& lse = call.writes[3];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor normed = ForwardPiece(call, attention_forward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor work = ForwardPiece(call, attention_forward::kWork, {ForwardRest()});

    ops_.RmsNorm(x, weights[kInputNorm], epsilon_, normed);
    ops_.Linear(normed, Block(weights + kQuery, 3), qkv, {});
    ops_.Rope(tables_->cosines, tables_->sines, s_.heads + s_.kv_heads, qkv);
    ops_.Attention(shape_, qkv, context, lse, work);
    ops_.Linear(context, weights[kOutput], hidden, {});
    ops_.ResidualAdd(x, hidden);
  }

  void Backward(const NodeCall& call) const override {
    const at::Tensor& x = call.reads[0];
    const at::Tensor& qkv = call.reads[1];
    const at::Tensor& context = call.reads[2];
    const at::Tensor& lse = call.reads[3];
    const at::Tensor& grad_hidden = call.gradient_reads[0];
    const at::Tensor* weights = call.parameters[0];
    at::Tensor* gradients = call.parameter_gradients[0];
    const bool add = call.add_parameter_gradient[0];
    at::Tensor normed = BackwardPiece(call, attention_backward::kNormed, {s_.tokens, s_.hidden});
    at::Tensor grad_normed = BackwardPiece(call, attention_backward::kGradNormed, {s_.tokens, s_.hidden});
    at::Tensor grad_context = BackwardPiece(call, attention_backward::kGradContext, {s_.tokens, s_.query});
    at::Tensor grad_qkv = BackwardPiece(call, attention_backward::kGradQkv, {s_.tokens, s_.qkv});
    at::Tensor work = BackwardPiece(call, attention_backward::kWork, {BackwardRest()});

    ops_.LinearBackwardWeight(grad_hidden, context, add, gradients[kOutput], {});
    ops_.LinearBackwardInput(grad_hidden, weights[kOutput], grad_context, {});
    ops_.AttentionBackward(shape_, qkv, context, lse, grad_context, grad_qkv, work);
    ops_.RopeBackward(tables_->cosines, tables_->sines, s_.heads + s_.kv_heads, grad_qkv);
    ops_.RmsNorm(x, weights[kInputNorm], epsilon_, normed);
    at::Tensor grad_block = Block(gradients + kQuery, 3);
    ops_.LinearBackwardWeight(grad_qkv, normed, add, grad_block, {});
    ops_.LinearBackwardInput(grad_qkv, Block(weights + kQuery, 3), grad_normed, {});
    ops_.RmsNormBackward(grad_normed, x, weights[kInputNorm], epsilon_, /*residual=*/grad_hidden,
                         call.add_gradient[0], call.gradient_writes[0], add, gradients[kInputNorm]);
  }

  const std::shared_ptr<const RotaryTables> tables_;
  const ops::AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Node> MakeAttentionNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                        std::shared_ptr<const RotaryTables> tables,
                                        const ops::Operations& ops) {
  return std::make_unique<AttentionNode>(config, batch, type, std::move(tables), ops);
}

}  // namespace tandem::model
