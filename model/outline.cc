#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/decoder_shapes.h"

// The order of the tensors in every list below is what the nodes' code relies on
// (embedding_node.cc, attention_node.cc, mlp_node.cc, head_node.cc).

namespace tandem::model {
namespace {

struct ScratchLayout {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

constexpr int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector register

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

ScratchLayout Pieces(const DecoderShapes& shapes, const std::vector<int64_t>& elements) {
  ScratchLayout layout;
  for (const int64_t count : elements) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += RoundUp(count * shapes.element_bytes, kAlignment);
  }
  return layout;
}

// What ops::AttentionWorkElements asks for (that header belongs to the other half; a test compares them):
// packed matrices of one head, and blocks of 32 rows of scores and of head_dim.
int64_t AttentionWork(const DecoderShapes& s, int64_t matrices, int64_t score_blocks, int64_t row_blocks) {
  const int64_t line = kAlignment / s.element_bytes;
  const int64_t length = RoundUp(s.length, 2 * line);
  const int64_t dim = RoundUp(s.head_dim, line);
  return (matrices * dim + score_blocks * 32) * (length + line) + row_blocks * 32 * dim;
}

namespace attention_forward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, AttentionWork(s, 2, 1, 2)});
}
}  // namespace attention_forward

namespace attention_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden, s.tokens * s.query, s.tokens * s.qkv,
                    AttentionWork(s, 5, 2, 3)});
}
}  // namespace attention_backward

namespace mlp_forward {
ScratchLayout Scratch(const DecoderShapes& s) { return Pieces(s, {s.tokens * s.hidden, s.tokens * s.inner}); }
}  // namespace mlp_forward

namespace mlp_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden, s.tokens * s.inner, s.tokens * 2 * s.inner});
}
}  // namespace mlp_backward

namespace head_forward {
ScratchLayout Scratch(const DecoderShapes& s) { return Pieces(s, {s.tokens * s.hidden, s.tokens}); }
}  // namespace head_forward

namespace head_backward {
ScratchLayout Scratch(const DecoderShapes& s) {
  return Pieces(s, {s.tokens * s.hidden, s.tokens * s.hidden});
}
}  // namespace head_backward

using schedules_v1::Access;
using schedules_v1::Node;
using schedules_v1::NodeKind;
using schedules_v1::Outline;
using schedules_v1::UnitId;
using schedules_v1::UnitPart;
using schedules_v1::Value;
using schedules_v1::ValueId;

schedules_v1::Bytes Fixed(int64_t bytes) { return {bytes, bytes}; }

class Builder {
 public:
  Builder(const DecoderConfig& config, BatchShape batch, ComputeType type)
      : config_(config), s_(config, batch, type), units_(DecoderUnits(config)) {}

  Outline Build(const std::vector<int64_t>& unit_elements) {
    for (size_t i = 0; i < units_.size(); ++i) {
      outline_.units.push_back(
          {.name = units_[i].name, .parts = units_[i].parts, .elements = unit_elements.at(i)});
    }
    outline_.batch = Saved("tokens", s_.sequences * (s_.length + 1) * sizeof(int64_t));
    ValueId hidden = Embedding();
    for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
      hidden = Attention(layer, hidden);
      hidden = Mlp(layer, hidden);
    }
    Head(hidden);
    for (Node& node : outline_.nodes) {
      node.forward.bytes_moved = BytesMoved(node.forward);
      node.backward.bytes_moved = BytesMoved(node.backward);
    }
    return std::move(outline_);
  }

 private:
  // A value without a gradient: tokens, what a backward needs, the loss.
  ValueId Saved(const std::string& name, int64_t bytes) {
    outline_.values.push_back({.name = name, .bytes = Fixed(bytes)});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  // [T, H], with a gradient.
  ValueId Hidden(const std::string& name) {
    const schedules_v1::Bytes bytes = Fixed(s_.tokens * s_.hidden * s_.element_bytes);
    outline_.values.push_back({.name = name, .bytes = bytes, .gradient_bytes = bytes});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  int64_t Elements(int64_t count) const { return count * s_.element_bytes; }

  // Floating point operations of a product with T rows.
  double Product(int64_t inputs, int64_t outputs) const {
    return 2.0 * static_cast<double>(s_.tokens) * static_cast<double>(inputs) * static_cast<double>(outputs);
  }

  ValueId Embedding() {
    const ValueId hidden = Hidden("embedding.hidden");
    const UnitPart table{.unit = 0, .part = 0};
    outline_.nodes.push_back({
        .name = "embedding",
        .kind = NodeKind::kEmbedding,
        .forward = {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {table}},
        .backward = {.reads = {outline_.batch}, .gradient_reads = {hidden}, .parameter_gradients = {table}},
    });
    return hidden;
  }

  ValueId Attention(int layer, ValueId input) {
    const std::string name = "layers." + std::to_string(layer) + ".attention";
    const ValueId hidden = Hidden(name + ".hidden");
    const ValueId qkv = Saved(name + ".qkv", Elements(s_.tokens * s_.qkv));
    const ValueId context = Saved(name + ".context", Elements(s_.tokens * s_.query));
    const ValueId lse = Saved(name + ".lse", Elements(s_.tokens * s_.heads));
    const UnitPart part{.unit = 1 + layer, .part = 0};
    const double projections = Product(s_.hidden, s_.qkv) + Product(s_.query, s_.hidden);
    // Two products of [S, d] x [d, S] a head, of which causality leaves half; the backward has five.
    const double scores = Product(s_.length, s_.query);
    outline_.nodes.push_back({
        .name = name,
        .kind = NodeKind::kAttention,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, qkv, context, lse},
                    .parameters = {part},
                    .scratch = Fixed(attention_forward::Scratch(s_).bytes),
                    .flops = projections + scores},
        .backward = {.reads = {input, qkv, context, lse},
                     .gradient_reads = {hidden},
                     .gradient_writes = {input},
                     .parameters = {part},
                     .parameter_gradients = {part},
                     .scratch = Fixed(attention_backward::Scratch(s_).bytes),
                     .flops = 2 * projections + 2.5 * scores},
    });
    return hidden;
  }

  ValueId Mlp(int layer, ValueId input) {
    const std::string name = "layers." + std::to_string(layer) + ".mlp";
    const ValueId hidden = Hidden(name + ".hidden");
    const ValueId gate_up = Saved(name + ".gate_up", Elements(s_.tokens * 2 * s_.inner));
    const UnitPart part{.unit = 1 + layer, .part = 1};
    const double flops = Product(s_.hidden, 3 * s_.inner);
    outline_.nodes.push_back({
        .name = name,
        .kind = NodeKind::kMlp,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, gate_up},
                    .parameters = {part},
                    .scratch = Fixed(mlp_forward::Scratch(s_).bytes),
                    .flops = flops},
        .backward = {.reads = {input, gate_up},
                     .gradient_reads = {hidden},
                     .gradient_writes = {input},
                     .parameters = {part},
                     .parameter_gradients = {part},
                     .scratch = Fixed(mlp_backward::Scratch(s_).bytes),
                     .flops = 2 * flops},
    });
    return hidden;
  }

  void Head(ValueId input) {
    outline_.loss = Saved("loss", sizeof(double));
    const ValueId grad_logits = Saved("head.grad_logits", Elements(s_.tokens * s_.vocabulary));
    std::vector<UnitPart> parts = {{.unit = static_cast<UnitId>(outline_.units.size()) - 1, .part = 0}};
    if (config_.tie_word_embeddings) {
      parts.push_back({.unit = 0, .part = 0});
    }
    const double flops = Product(s_.hidden, s_.vocabulary);
    outline_.nodes.push_back({
        .name = "head",
        .kind = NodeKind::kHead,
        .forward = {.reads = {input, outline_.batch},
                    .writes = {outline_.loss, grad_logits},
                    .parameters = parts,
                    .scratch = Fixed(head_forward::Scratch(s_).bytes),
                    .flops = flops},
        .backward = {.reads = {input, grad_logits},
                     .gradient_writes = {input},
                     .parameters = parts,
                     .parameter_gradients = parts,
                     .scratch = Fixed(head_backward::Scratch(s_).bytes),
                     .flops = 2 * flops},
    });
  }

  // What a pass reads and writes once of values and parameters, and its scratch once each way.
  double BytesMoved(const Access& access) const {
    double bytes = 2.0 * static_cast<double>(access.scratch.expected);
    for (const std::vector<ValueId>* list : {&access.reads, &access.writes}) {
      for (const ValueId value : *list) {
        bytes += static_cast<double>(outline_.values[value].bytes.expected);
      }
    }
    for (const std::vector<ValueId>* list : {&access.gradient_reads, &access.gradient_writes}) {
      for (const ValueId value : *list) {
        bytes += static_cast<double>(outline_.values[value].gradient_bytes.expected);
      }
    }
    for (const std::vector<UnitPart>* list : {&access.parameters, &access.parameter_gradients}) {
      for (const UnitPart& part : *list) {
        for (const Parameter& parameter : units_[part.unit].parameters) {
          if (parameter.part == part.part) {
            double elements = 1;
            for (const int64_t dim : parameter.shape) {
              elements *= static_cast<double>(dim);
            }
            bytes += elements * static_cast<double>(s_.element_bytes);
          }
        }
      }
    }
    return bytes;
  }

  const DecoderConfig& config_;
  const DecoderShapes s_;
  const std::vector<UnitParameters> units_;
  Outline outline_;
};

}  // namespace

Outline DecoderOutline(const DecoderConfig& config, BatchShape batch, ComputeType type,
                       const std::vector<int64_t>& unit_elements) {
  return Builder(config, batch, type).Build(unit_elements);
}

}  // namespace tandem::model
