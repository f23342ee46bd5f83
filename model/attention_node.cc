// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "model/bound_arrays.h"
#include "model/decoder_nodes.h"
#include "model/node_kinds.h"

namespace tandem::model {

namespace {

// Arrays have the names of attention.cc; those of the norms of heads are not defined where heads have none.
class AttentionNode final : public SplitNode {
 public:
  AttentionNode(const NodeContext& context, std::shared_ptr<const RotaryTables> tables)
      : SplitNode(context, kAttention.declare(context.shapes)),
        tables_(std::move(tables)),
        shape_(s_.attention()) {
    ops_.PrepareAttention(shape_, s_.compute_bytes);
  }

 private:
  // A recompute leaves out what was kept, from the end.
  BoundPass BindForward(BoundArrays& in) const override {
    const ops::Array x = in.Value("x");
    const ops::Array qkv = in.Value("qkv");
    const ops::Array documents = DocumentStarts(in);
    const ops::Array hidden = in.Value("hidden");
    const ops::Array context = in.Value("context");
    const ops::Array lse = in.Value("lse");
    const ops::Array weight_output = in.Parameter("output");
    const ops::Array normed = in.Scratch("normed");
    const ops::Workspace work = in.Work("work");
    const ops::Workspace products = in.Work("products");
    const Heads heads = HeadsOf(in, qkv);
    ops::Calls calls;
    calls.Add(ops_.RmsNorm(x, in.Parameter("norm"), epsilon_, normed));
    calls.Add(ops_.Linear(normed, in.Parameter("qkv"), /*residual=*/{}, qkv, products));
    if (!s_.norms_heads) {
      calls.Add(Rotate(qkv));
    }
    if (!context.defined()) {
      return calls;
    }
    NormAndRotate(heads, qkv, calls);
    calls.Add(ops_.Attention(shape_, heads.rotated, documents, context, lse, work));
    if (!hidden.defined()) {
      return calls;
    }
    calls.Add(ops_.Linear(context, weight_output, /*residual=*/x, hidden, products));
    return calls;
  }

  BoundPass BindBackwardInput(BoundArrays& in) const override {
    const ops::Array qkv = in.Value("qkv");
    const ops::Array grad_hidden = in.Gradient("hidden");
    const ops::Array grad_qkv = in.Value("grad_qkv");
    const ops::Array grad_normed = in.Scratch("grad_normed");
    const ops::Array grad_context = in.Scratch("grad_context");
    const ops::Workspace products = in.Work("products");
    const Heads heads = HeadsOf(in, qkv);
    ops::Calls calls;
    calls.Add(
        ops_.LinearBackwardInput(grad_hidden, in.Parameter("output"), /*add=*/false, grad_context, products));
    NormAndRotate(heads, qkv, calls);
    calls.Add(ops_.AttentionBackward(shape_, heads.rotated, DocumentStarts(in), in.Value("context"),
                                     in.Value("lse"), grad_context, grad_qkv, in.Work("work")));
    calls.Add(
        ops_.RopeBackward(tables_->cosines.array, tables_->sines.array, s_.heads + s_.kv_heads, grad_qkv));
    if (s_.norms_heads) {
      calls.Add(ops_.HeadNormBackward(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, epsilon_,
                                      /*add_weights=*/false, grad_qkv, in.Value("grad_query_norm"),
                                      in.Value("grad_key_norm"), in.Work("head_norm_work")));
    }
    calls.Add(ops_.LinearBackwardInput(grad_qkv, in.Parameter("qkv"), /*add=*/false, grad_normed, products));
    AddNormBackward(grad_normed, in, calls);
    return calls;
  }

  BoundPass BindBackwardWeight(BoundArrays& in) const override {
    const bool add = in.AddsToParameterGradient("norm");
    const ops::Workspace products = in.Work("products");
    ops::Calls calls;
    calls.Add(ops_.LinearBackwardWeight(in.Gradient("hidden"), in.Value("context"), add,
                                        in.ParameterGradient("output"), products));
    calls.Add(ops_.LinearBackwardWeight(in.Value("grad_qkv"), in.Value("normed"), add,
                                        in.ParameterGradient("qkv"), products));
    std::vector<std::string> norms = {"norm"};
    if (s_.norms_heads) {
      norms.insert(norms.end(), {"query_norm", "key_norm"});
    }
    for (const std::string& name : norms) {
      calls.Add(CopyOrAdd(in.Value("grad_" + name), add, in.ParameterGradient(name)));
    }
    return calls;
  }

  // What attention reads: qkv itself, which is kept rotated, or where heads are normalised what is made of
  // it, which is kept as it was projected.
  struct Heads {
    ops::Array query_norm, key_norm, rotated;
  };
  Heads HeadsOf(BoundArrays& in, const ops::Array& qkv) const {
    return s_.norms_heads ? Heads{in.Parameter("query_norm"), in.Parameter("key_norm"), in.Scratch("rotated")}
                          : Heads{.rotated = qkv};
  }

  void NormAndRotate(const Heads& heads, const ops::Array& qkv, ops::Calls& calls) const {
    if (s_.norms_heads) {
      calls.Add(ops_.HeadNorm(qkv, s_.heads, s_.kv_heads, heads.query_norm, heads.key_norm, epsilon_,
                              heads.rotated));
      calls.Add(Rotate(heads.rotated));
    }
  }

  ops::Call Rotate(const ops::Array& qkv) const {
    return ops_.Rope(tables_->cosines.array, tables_->sines.array, s_.heads + s_.kv_heads, qkv);
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
