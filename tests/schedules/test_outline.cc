#include "tests/schedules/test_outline.h"

namespace tandem::schedules {
namespace {

class OutlineBuilder {
 public:
  Outline Build(int layers, bool tied) {
    outline_.units.push_back({"embedding", {"table"}, 1024});
    for (int layer = 0; layer < layers; ++layer) {
      outline_.units.push_back({Layer(layer), {"attention", "mlp"}, 512});
    }
    outline_.units.push_back({"head", {"head"}, tied ? 64 : 1088});

    outline_.batch = Add("tokens", 1000, 0);
    ValueId hidden = Add("hidden", 4096, 4096);
    const UnitPart table{0, 0};
    outline_.nodes.push_back({
        .name = "embedding",
        .kind = NodeKind::kEmbedding,
        .forward = {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {table}},
        .backward = {.reads = {outline_.batch}, .gradient_reads = {hidden}, .parameter_gradients = {table}},
    });
    for (int layer = 0; layer < layers; ++layer) {
      hidden = HalfLayer(layer, "attention", 0, NodeKind::kAttention, hidden);
      hidden = HalfLayer(layer, "mlp", 1, NodeKind::kMlp, hidden);
    }
    outline_.loss = Add("loss", 8, 0);
    const ValueId logits = Add("head.logits", 16384, 0);
    std::vector<UnitPart> parts = {{layers + 1, 0}};
    if (tied) {
      parts.push_back(table);
    }
    outline_.nodes.push_back({
        .name = "head",
        .kind = NodeKind::kHead,
        .forward = {.reads = {hidden, outline_.batch},
                    .writes = {outline_.loss, logits},
                    .parameters = parts},
        .backward = {.reads = {hidden, logits},
                     .gradient_writes = {hidden},
                     .parameters = parts,
                     .parameter_gradients = parts,
                     .scratch = {8000, 8000}},
    });
    return outline_;
  }

 private:
  static std::string Layer(int layer) { return "layers." + std::to_string(layer); }

  ValueId Add(const std::string& name, int64_t bytes, int64_t gradient_bytes) {
    outline_.values.push_back(
        {.name = name, .bytes = {bytes, bytes}, .gradient_bytes = {gradient_bytes, gradient_bytes}});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  ValueId HalfLayer(int layer, const std::string& half, int part, NodeKind kind, ValueId input) {
    const std::string name = Layer(layer) + "." + half;
    const ValueId output = Add(name + ".hidden", 4096, 4096);
    const ValueId saved = Add(name + ".saved", 10000, 0);
    const UnitPart unit_part{layer + 1, part};
    outline_.nodes.push_back({
        .name = name,
        .kind = kind,
        .layer = layer,
        .forward =
            {.reads = {input}, .writes = {output, saved}, .parameters = {unit_part}, .scratch = {5000, 5000}},
        .backward = {.reads = {input, saved},
                     .gradient_reads = {output},
                     .gradient_writes = {input},
                     .parameters = {unit_part},
                     .parameter_gradients = {unit_part},
                     .scratch = {9000, 9000}},
    });
    return output;
  }

  Outline outline_;
};

}  // namespace

Outline TestOutline(int layers, bool tied) { return OutlineBuilder().Build(layers, tied); }

FsdpOptions TestOptions(const Outline& outline, int prefetch) {
  FsdpOptions options{.prefetch = prefetch};
  for (const Unit& unit : outline.units) {
    options.unit_parameter_slot_bytes.push_back(unit.elements * 4);
    options.unit_gradient_slot_bytes.push_back(unit.elements * 4);
  }
  return options;
}

}  // namespace tandem::schedules
