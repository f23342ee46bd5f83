#include <ATen/core/Tensor.h>

#include "device/arena.h"
#include "model/call_memory.h"
#include "model/decoder_nodes.h"
#include "ops/operations.h"

namespace tandem::model {
namespace {

class EmbeddingNode final : public Node {
 public:
  EmbeddingNode(const DecoderConfig& config, BatchShape batch, ComputeType type, const ops::Operations& ops)
      : s_(config, batch, type), ops_(ops), dtype_(ScalarTypeOf(type)) {}

  void Prepare(NodeCall& call, device::Arena& arena) const override {
    if (call.pass == Pass::kForward) {
      call.writes[0] = arena.Allocate({s_.tokens, s_.hidden}, dtype_);
    } else if (call.pass != Pass::kBackward) {
      RefusePass("embedding", call.pass);
    }
  }

  void Run(const NodeCall& call) const override {
    const at::Tensor inputs = call.reads[0].narrow(1, 0, s_.length);
    if (call.pass == Pass::kForward) {
      ops_.Embedding(inputs, call.parameters[0][0], call.writes[0]);
    } else {
      ops_.EmbeddingBackward(inputs, call.gradient_reads[0], call.add_parameter_gradient[0],
                             call.parameter_gradients[0][0]);
    }
  }

 private:
  const DecoderShapes s_;
  const ops::Operations& ops_;
  const at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<Node> MakeEmbeddingNode(const DecoderConfig& config, BatchShape batch, ComputeType type,
                                        const ops::Operations& ops) {
  return std::make_unique<EmbeddingNode>(config, batch, type, ops);
}

}  // namespace tandem::model
