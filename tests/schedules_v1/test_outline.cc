#include "tests/schedules/test_outline.h"

namespace tandem::schedules_v1 {
namespace {

class OutlineBuilder {
 public:
  Outline Build(int layers, bool tied, bool experts) {
    outline_.units.push_back({"embedding", {"table"}, 1024});
    for (int layer = 0; layer < layers; ++layer) {
      outline_.units.push_back({Layer(layer), {"attention", "mlp"}, 512});
      if (experts) {
        outline_.units.back().parts = {"attention", "router", "experts"};
      }
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
      hidden = experts ? Experts(layer, hidden) : HalfLayer(layer, "mlp", 1, NodeKind::kMlp, hidden);
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

  ValueId Experts(int layer, ValueId input) {
    const std::string name = Layer(layer);
    const UnitPart router{layer + 1, 1};
    const UnitPart experts{layer + 1, 2};
    const ValueId tokens = Add(name + ".tokens", 4096, 4096);
    const ValueId probabilities = Add(name + ".probabilities", 300, 300);
    const ValueId dispatched = Add(name + ".dispatched", 8192, 8192);
    const ValueId made = Add(name + ".made", 8192, 8192);
    const ValueId shared = Add(name + ".shared", 4096, 4096);
    const ValueId combined = Add(name + ".combined", 4096, 4096);
    const ValueId output = Add(name + ".hidden", 4096, 4096);
    outline_.nodes.push_back({
        .name = name + ".route",
        .kind = NodeKind::kRoute,
        .layer = layer,
        .forward = {.reads = {input}, .writes = {tokens, probabilities}, .parameters = {router}},
        .backward = {.reads = {input},
                     .gradient_reads = {tokens, probabilities},
                     .gradient_writes = {input},
                     .parameters = {router},
                     .parameter_gradients = {router},
                     .scratch = {700, 700}},
    });
    outline_.nodes.push_back({
        .name = name + ".dispatch",
        .kind = NodeKind::kDispatch,
        .layer = layer,
        .stream = StreamKind::kDispatch,
        .forward = {.reads = {tokens}, .writes = {dispatched}, .scratch = {4096, 4096}},
        .backward = {.gradient_reads = {dispatched}, .gradient_writes = {tokens}, .scratch = {4096, 4096}},
    });
    outline_.nodes.push_back({
        .name = name + ".shared",
        .kind = NodeKind::kMlp,
        .layer = layer,
        .forward = {.reads = {input}, .writes = {shared}, .parameters = {router}},
        .backward = {.reads = {input},
                     .gradient_reads = {shared},
                     .gradient_writes = {input},
                     .parameters = {router},
                     .parameter_gradients = {router}},
    });
    outline_.nodes.push_back({
        .name = name + ".experts",
        .kind = NodeKind::kExperts,
        .layer = layer,
        .forward = {.reads = {dispatched, probabilities},
                    .writes = {made},
                    .parameters = {experts},
                    .scratch = {9000, 9000}},
        .backward = {.reads = {dispatched, probabilities},
                     .gradient_reads = {made},
                     .gradient_writes = {dispatched, probabilities},
                     .parameters = {experts},
                     .parameter_gradients = {experts},
                     .scratch = {12000, 12000}},
    });
    outline_.nodes.push_back({
        .name = name + ".combine",
        .kind = NodeKind::kCombine,
        .layer = layer,
        .stream = StreamKind::kDispatch,
        .forward = {.reads = {made}, .writes = {combined}, .scratch = {4096, 4096}},
        .backward = {.gradient_reads = {combined}, .gradient_writes = {made}, .scratch = {4096, 4096}},
    });
    const ValueId gated = Add(name + ".gated", 4096, 4096);
    outline_.nodes.push_back({
        .name = name + ".gate",
        .kind = NodeKind::kMlp,
        .layer = layer,
        .forward = {.reads = {combined, input, probabilities}, .writes = {gated}},
        .backward = {.reads = {combined, input, probabilities},
                     .gradient_reads = {gated},
                     .gradient_writes = {combined, input, probabilities}},
    });
    outline_.nodes.push_back({
        .name = name + ".finish",
        .kind = NodeKind::kFinish,
        .layer = layer,
        .forward = {.reads = {gated, shared, input}, .writes = {output}},
        .backward = {.gradient_reads = {output}, .gradient_writes = {gated, shared, input}},
    });
    return output;
  }

  Outline outline_;
};

}  // namespace

Outline TestOutline(int layers, bool tied) { return OutlineBuilder().Build(layers, tied, false); }

Outline TestMoeOutline(int layers) { return OutlineBuilder().Build(layers, false, true); }

FsdpOptions TestOptions(const Outline& outline, int prefetch) {
  FsdpOptions options{.prefetch = prefetch};
  for (const Unit& unit : outline.units) {
    options.unit_parameter_slot_bytes.push_back(unit.elements * 4);
    options.unit_gradient_slot_bytes.push_back(unit.elements * 4);
  }
  return options;
}

}  // namespace tandem::schedules_v1
