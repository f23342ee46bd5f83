#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "device/arena.h"
#include "model/bound_tensors.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "model/hidden_node.h"
#include "model/node_kinds.h"
#include "ops/rope.h"

namespace tandem::model {

struct RotaryTables {
  at::Tensor cosines;  // [S, head_dim / 2]
  at::Tensor sines;
};

std::shared_ptr<const RotaryTables> MakeRotaryTables(const NodeContext& context) {
  const int64_t head_dim = context.shapes.head_dim;
  TORCH_CHECK(head_dim % 2 == 0, "rotary embedding needs an even head_dim, not ", head_dim);
  auto tables = std::make_shared<RotaryTables>();
  at::Tensor cosines = at::empty({context.shapes.length, head_dim / 2}, ScalarTypeOf(context.type));
  at::Tensor sines = at::empty_like(cosines);
  ops::RopeTables(context.config.rope_theta, cosines, sines);
  tables->cosines = context.ops.Constant(cosines);
  tables->sines = context.ops.Constant(sines);
  return tables;
}

namespace {

// By the names of attention.cc.
struct AttentionForward {
  at::Tensor x, hidden, qkv, context, lse;
  at::Tensor norm, weight_qkv, weight_output;
  at::Tensor normed, work;
  ops::Workspace products;
};

struct AttentionBackward {
  at::Tensor x, qkv, context, lse, grad_hidden;
  at::Tensor grad_x;
  bool add_x = false;
  at::Tensor norm, weight_qkv, weight_output;
  at::Tensor grad_norm, grad_weight_qkv, grad_weight_output;
  bool add = false;  // to the parameters' gradients
  at::Tensor normed, grad_normed, grad_context, grad_qkv, work;
  ops::Workspace products;
};

class AttentionNode final : public HiddenNode {
 public:
  AttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : HiddenNode("attention", context, DeclareAttention(context.shapes), attention_forward::Scratch,
                   attention_backward::Scratch),
        tables_(std::move(tables)),
        shape_{s_.sequences, s_.length, s_.heads, s_.kv_heads, s_.head_dim} {}

 private:
  BoundPass BindForward(BoundTensors& in) const override {
    AttentionForward t{.x = in.Value("x"),
                       .hidden = in.Value("hidden"),
                       .qkv = in.Value("qkv"),
                       .context = in.Value("context"),
                       .lse = in.Value("lse"),
                       .norm = in.Parameter("norm"),
                       .weight_qkv = in.Parameter("qkv"),
                       .weight_output = in.Parameter("output"),
                       .normed = in.Scratch("normed"),
                       .work = in.Scratch("work"),
                       .products = in.Work("products")};
    return [this, t]() mutable { Forward(t); };
  }

  BoundPass BindBackward(BoundTensors& in) const override {
    AttentionBackward t{.x = in.Value("x"),
                        .qkv = in.Value("qkv"),
                        .context = in.Value("context"),
                        .lse = in.Value("lse"),
                        .grad_hidden = in.Gradient("hidden"),
                        .grad_x = in.Gradient("x"),
                        .add_x = in.AddsToGradient("x"),
                        .norm = in.Parameter("norm"),
                        .weight_qkv = in.Parameter("qkv"),
                        .weight_output = in.Parameter("output"),
                        .grad_norm = in.ParameterGradient("norm"),
                        .grad_weight_qkv = in.ParameterGradient("qkv"),
                        .grad_weight_output = in.ParameterGradient("output"),
                        .add = in.AddsToParameterGradient("norm"),
                        .normed = in.Scratch("normed"),
                        .grad_normed = in.Scratch("grad_normed"),
                        .grad_context = in.Scratch("grad_context"),
                        .grad_qkv = in.Scratch("grad_qkv"),
                        .work = in.Scratch("work"),
                        .products = in.Work("products")};
    return [this, t]() mutable { Backward(t); };
  }

  // A recompute leaves out what was kept, from the end.
  void Forward(AttentionForward& t) const {
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ops_.Linear(t.normed, t.weight_qkv, t.qkv, t.products);
    ops_.Rope(tables_->cosines, tables_->sines, s_.heads + s_.kv_heads, t.qkv);
    if (!t.context.defined()) {
      return;
    }
    ops_.Attention(shape_, t.qkv, t.context, t.lse, t.work);
    if (!t.hidden.defined()) {
      return;
    }
    ops_.Linear(t.context, t.weight_output, t.hidden, t.products);
    ops_.ResidualAdd(t.x, t.hidden);
  }

  void Backward(AttentionBackward& t) const {
    ops_.LinearBackwardWeight(t.grad_hidden, t.context, t.add, t.grad_weight_output, t.products);
    ops_.LinearBackwardInput(t.grad_hidden, t.weight_output, t.grad_context, t.products);
    ops_.AttentionBackward(shape_, t.qkv, t.context, t.lse, t.grad_context, t.grad_qkv, t.work);
    ops_.RopeBackward(tables_->cosines, tables_->sines, s_.heads + s_.kv_heads, t.grad_qkv);
    ops_.RmsNorm(t.x, t.norm, epsilon_, t.normed);
    ops_.LinearBackwardWeight(t.grad_qkv, t.normed, t.add, t.grad_weight_qkv, t.products);
    ops_.LinearBackwardInput(t.grad_qkv, t.weight_qkv, t.grad_normed, t.products);
    ops_.RmsNormBackward(t.grad_normed, t.x, t.norm, epsilon_, /*residual=*/t.grad_hidden, t.add_x, t.grad_x,
                         t.add, t.grad_norm);
  }

  // The first step program's calls.
  void AllocateWrites(NodeCall& call, device::Arena& arena) const override {
    call.writes[0] = arena.Allocate({s_.tokens, s_.hidden}, dtype_);
    call.writes[1] = arena.Allocate({s_.tokens, s_.qkv}, dtype_);
    call.writes[2] = arena.Allocate({s_.tokens, s_.query}, dtype_);
    call.writes[3] = arena.Allocate({s_.sequences, s_.heads, s_.length}, dtype_);
  }

  void Forward(const NodeCall& call) const override {
    const at::Tensor* weights = call.parameters[0];
    AttentionForward t{.x = call.reads[0],
                       .hidden = call.writes[0],
                       .qkv = call.writes[1],
                       .context = call.writes[2],
                       .lse = call.writes[3],
                       .norm = weights[0],
                       .weight_qkv = Block(weights + 1, 3),
                       .weight_output = weights[4],
                       .normed = ForwardPiece(call, attention_forward::kNormed, {s_.tokens, s_.hidden}),
                       .work = ForwardPiece(call, attention_forward::kWork, {ForwardRest()})};
    Forward(t);
  }

  void Backward(const NodeCall& call) const override {
    const at::Tensor* weights = call.parameters[0];
    at::Tensor* gradients = call.parameter_gradients[0];
    AttentionBackward t{
        .x = call.reads[0],
        .qkv = call.reads[1],
        .context = call.reads[2],
        .lse = call.reads[3],
        .grad_hidden = call.gradient_reads[0],
        .grad_x = call.gradient_writes[0],
        .add_x = call.add_gradient[0],
        .norm = weights[0],
        .weight_qkv = Block(weights + 1, 3),
        .weight_output = weights[4],
        .grad_norm = gradients[0],
        .grad_weight_qkv = Block(gradients + 1, 3),
        .grad_weight_output = gradients[4],
        .add = call.add_parameter_gradient[0],
        .normed = BackwardPiece(call, attention_backward::kNormed, {s_.tokens, s_.hidden}),
        .grad_normed = BackwardPiece(call, attention_backward::kGradNormed, {s_.tokens, s_.hidden}),
        .grad_context = BackwardPiece(call, attention_backward::kGradContext, {s_.tokens, s_.query}),
        .grad_qkv = BackwardPiece(call, attention_backward::kGradQkv, {s_.tokens, s_.qkv}),
        .work = BackwardPiece(call, attention_backward::kWork, {BackwardRest()})};
    Backward(t);
  }

  const std::shared_ptr<const RotaryTables> tables_;
  const ops::AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Node> MakeAttentionNode(const NodeContext& context,
                                        std::shared_ptr<const RotaryTables> tables) {
  return std::make_unique<AttentionNode>(context, std::move(tables));
}

}  // namespace tandem::model
