#include "tests/schedules/test_outlines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/check.h"
#include "platform/seeded_random.h"

namespace tandem::schedules {
namespace {

Bytes Fixed(int64_t bytes) { return {bytes, bytes}; }

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

ValueId AddValue(Outline& outline, const std::string& name, int64_t bytes, int64_t gradient_bytes = 0,
                 ValueKind kind = ValueKind::kActivation) {
  outline.values.push_back(
      {.name = name, .kind = kind, .bytes = Fixed(bytes), .gradient_bytes = Fixed(gradient_bytes)});
  return static_cast<ValueId>(outline.values.size()) - 1;
}

// Parts start at multiples of 64 elements.
UnitId AddUnit(Outline& outline, const std::string& name, int layer, const std::vector<std::string>& parts,
               const std::vector<int64_t>& elements) {
  Unit unit{.name = name, .layer = layer};
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t begin = RoundUp(unit.elements, 64);
    unit.parts.push_back({parts[i], begin, begin + elements[i]});
    unit.elements = begin + elements[i];
  }
  outline.units.push_back(unit);
  return static_cast<UnitId>(outline.units.size()) - 1;
}

class DenseBuilder {
 public:
  DenseBuilder(const DecoderSize& size, bool tied) : s_(size), tied_(tied) {}

  // Layers [first, last) of s_.layers.
  Outline Build(int first, int last) {
    const bool has_embedding = first == 0;
    const bool has_head = last == s_.layers;
    TANDEM_CHECK(!tied_ || (has_embedding && has_head), "a tied head is on the embedding's stage");
    for (int layer = first; layer < last; ++layer) {
      if (layer == first && has_embedding) {
        embedding_ = AddUnit(outline_, "embedding", s_.layers, {"table"}, {s_.vocabulary * s_.hidden});
      }
      AddUnit(outline_, absl::StrCat("layers.", layer), layer, {"attention", "mlp"},
              {s_.hidden * (2 * s_.hidden + 2 * s_.key_value + 1), s_.hidden * (3 * s_.inner + 1)});
    }
    if (has_head) {
      head_ = tied_ ? AddUnit(outline_, "head", s_.layers + 1, {"norm"}, {s_.hidden})
                    : AddUnit(outline_, "head", s_.layers + 1, {"norm", "table"},
                              {s_.hidden, s_.vocabulary * s_.hidden});
    }
    for (Unit& unit : outline_.units) {
      unit.precision = {.main = 4, .compute = s_.element_bytes, .transport = s_.element_bytes};
    }
    if (has_embedding || has_head) {
      outline_.batch = AddValue(outline_, "tokens", (s_.tokens + 1) * 8);
    }
    ValueId hidden = has_embedding ? Embedding() : Hidden(absl::StrCat("layers.", first - 1, ".mlp.hidden"));
    if (!has_embedding) {
      outline_.received.push_back({hidden, -1});
    }
    for (int layer = first; layer < last; ++layer) {
      hidden = Attention(layer, hidden);
      hidden = Mlp(layer, hidden);
    }
    if (has_head) {
      Head(hidden);
    } else {
      outline_.sent.push_back({hidden, -1});
    }
    return std::move(outline_);
  }

 private:
  int64_t Matrix(int64_t columns) const { return s_.tokens * columns * s_.element_bytes; }

  ValueId Hidden(const std::string& name) {
    return AddValue(outline_, name, Matrix(s_.hidden), Matrix(s_.hidden));
  }

  double Product(double inputs, double outputs) const {
    return 2.0 * static_cast<double>(s_.tokens) * inputs * outputs;
  }

  ValueId Embedding() {
    const ValueId hidden = Hidden("embedding.hidden");
    const UnitPart table{embedding_, 0};
    outline_.nodes.push_back({
        .name = "embedding",
        .kind = NodeKind::kEmbedding,
        .forward = {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {table}, .bytes_moved = 1e3},
        .backward = {.reads = {outline_.batch},
                     .gradient_reads = {hidden},
                     .parameter_gradients = {table},
                     .bytes_moved = 1e3},
    });
    return hidden;
  }

  UnitPart PartOfLayer(int layer, int part) const {
    return {FindUnit(outline_, absl::StrCat("layers.", layer)), part};
  }

  ValueId Attention(int layer, ValueId input) {
    const std::string name = absl::StrCat("layers.", layer, ".attention");
    const int64_t columns = s_.hidden + 2 * s_.key_value;
    const ValueId hidden = Hidden(absl::StrCat(name, ".hidden"));
    const ValueId qkv = AddValue(outline_, absl::StrCat(name, ".qkv"), Matrix(columns));
    const ValueId context = AddValue(outline_, absl::StrCat(name, ".context"), Matrix(s_.hidden));
    const ValueId lse = AddValue(outline_, absl::StrCat(name, ".lse"), s_.tokens * s_.heads * 4);
    const UnitPart part = PartOfLayer(layer, 0);
    const double projections = Product(s_.hidden, columns + s_.hidden);
    const double scores = Product(s_.tokens, s_.hidden);  // one sequence, of which causality leaves half
    outline_.nodes.push_back({
        .name = name,
        .kind = NodeKind::kAttention,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, qkv, context, lse},
                    .parameters = {part},
                    .scratch = Fixed(Matrix(s_.hidden)),
                    .flops = projections + scores},
        .backward = {.reads = {input, qkv, context, lse},
                     .gradient_reads = {hidden},
                     .gradient_writes = {input},
                     .parameters = {part},
                     .parameter_gradients = {part},
                     .scratch = Fixed(Matrix(3 * s_.hidden + columns)),
                     .flops = 2 * projections + 2.5 * scores},
    });
    return hidden;
  }

  ValueId Mlp(int layer, ValueId input) {
    const std::string name = absl::StrCat("layers.", layer, ".mlp");
    const ValueId hidden = Hidden(absl::StrCat(name, ".hidden"));
    const ValueId gate_up = AddValue(outline_, absl::StrCat(name, ".gate_up"), Matrix(2 * s_.inner));
    const UnitPart part = PartOfLayer(layer, 1);
    const double flops = Product(s_.hidden, 3 * static_cast<double>(s_.inner));
    outline_.nodes.push_back({
        .name = name,
        .kind = NodeKind::kMlp,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, gate_up},
                    .parameters = {part},
                    .scratch = Fixed(Matrix(s_.hidden + s_.inner)),
                    .flops = flops},
        .backward = {.reads = {input, gate_up},
                     .gradient_reads = {hidden},
                     .gradient_writes = {input},
                     .parameters = {part},
                     .parameter_gradients = {part},
                     .scratch = Fixed(Matrix(2 * s_.hidden + 3 * s_.inner)),
                     .flops = 2 * flops},
    });
    return hidden;
  }

  void Head(ValueId input) {
    const ValueId loss = AddValue(outline_, "loss", 8);
    outline_.losses.push_back(loss);
    const ValueId logits = AddValue(outline_, "head.grad_logits", Matrix(s_.vocabulary));
    std::vector<UnitPart> parts = {{head_, 0}, {tied_ ? embedding_ : head_, tied_ ? 0 : 1}};
    const double flops = Product(s_.hidden, static_cast<double>(s_.vocabulary));
    outline_.nodes.push_back({
        .name = "head",
        .kind = NodeKind::kHead,
        .forward = {.reads = {input, outline_.batch},
                    .writes = {loss, logits},
                    .parameters = parts,
                    .scratch = Fixed(Matrix(s_.hidden)),
                    .flops = flops},
        .backward = {.reads = {input, logits},
                     .gradient_writes = {input},
                     .parameters = parts,
                     .parameter_gradients = parts,
                     .scratch = Fixed(Matrix(2 * s_.hidden)),
                     .flops = 2 * flops},
    });
  }

  const DecoderSize s_;
  const bool tied_;
  Outline outline_;
  UnitId embedding_ = -1;
  UnitId head_ = -1;
};

class MoeBuilder {
 public:
  Outline Build(int layers) {
    AddUnit(outline_, "embedding", layers, {"table"}, {1536});
    for (int layer = 0; layer < layers; ++layer) {
      const std::string name = absl::StrCat("layers.", layer);
      AddUnit(outline_, name, layer, {"attention", "router"}, {800, 100});
      const UnitId experts = AddUnit(outline_, absl::StrCat(name, ".experts"), layer, {"experts"}, {3000});
      outline_.units[experts].group = UnitGroup::kExpert;
    }
    const UnitId head = AddUnit(outline_, "head", layers + 1, {"table"}, {1600});
    outline_.batch = AddValue(outline_, "tokens", 520);
    ValueId hidden = AddValue(outline_, "embedding.hidden", 4096, 4096);
    outline_.nodes.push_back({
        .name = "embedding",
        .kind = NodeKind::kEmbedding,
        .forward =
            {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {{0, 0}}, .bytes_moved = 8192},
        .backward = {.reads = {outline_.batch},
                     .gradient_reads = {hidden},
                     .parameter_gradients = {{0, 0}},
                     .bytes_moved = 8192},
    });
    for (int layer = 0; layer < layers; ++layer) {
      hidden = Layer(layer, hidden);
    }
    const ValueId loss = AddValue(outline_, "loss", 8);
    const ValueId logits = AddValue(outline_, "head.grad_logits", 12288);
    outline_.losses = {loss};
    outline_.nodes.push_back({
        .name = "head",
        .kind = NodeKind::kHead,
        .forward = {.reads = {hidden, outline_.batch},
                    .writes = {loss, logits},
                    .parameters = {{head, 0}},
                    .scratch = Fixed(4096),
                    .flops = 1e6},
        .backward = {.reads = {hidden, logits},
                     .gradient_writes = {hidden},
                     .parameters = {{head, 0}},
                     .parameter_gradients = {{head, 0}},
                     .scratch = Fixed(8192),
                     .flops = 2e6},
    });
    return std::move(outline_);
  }

 private:
  // Routing makes sizes dynamic: half of the bound is expected.
  ValueId Dynamic(const std::string& name, int64_t bound, bool gradient, ValueKind kind) {
    outline_.values.push_back({.name = name,
                               .kind = kind,
                               .bytes = {bound / 2, bound},
                               .gradient_bytes = gradient ? Bytes{bound / 2, bound} : Bytes{}});
    return static_cast<ValueId>(outline_.values.size()) - 1;
  }

  ValueId Layer(int layer, ValueId input) {
    const std::string name = absl::StrCat("layers.", layer);
    const UnitId dense = FindUnit(outline_, name);
    const UnitPart attention{dense, 0};
    const UnitPart router{dense, 1};
    const UnitPart experts{dense + 1, 0};
    outline_.states.push_back({absl::StrCat(name, ".tokens_per_expert"), 64});
    const StateId counter = static_cast<StateId>(outline_.states.size()) - 1;

    const ValueId mixed = AddValue(outline_, absl::StrCat(name, ".attention.hidden"), 4096, 4096);
    const ValueId qkv = AddValue(outline_, absl::StrCat(name, ".attention.qkv"), 8192);
    const ValueId qkv_gradient = AddValue(outline_, absl::StrCat(name, ".attention.qkv_gradient"), 8192);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".attention"),
        .kind = NodeKind::kAttention,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {mixed, qkv},
                    .parameters = {attention},
                    .scratch = Fixed(5000),
                    .flops = 1e6},
        .backward = {.reads = {input, qkv},
                     .gradient_reads = {mixed},
                     .gradient_writes = {input},
                     .parameters = {attention},
                     .parameter_gradients = {attention},
                     .scratch = Fixed(16384),
                     .flops = 2e6},
        .splits_backward = true,
        .backward_input = {.reads = {input, qkv},
                           .writes = {qkv_gradient},
                           .gradient_reads = {mixed},
                           .gradient_writes = {input},
                           .parameters = {attention},
                           .scratch = Fixed(9000),
                           .flops = 1e6},
        .backward_weight = {.reads = {input, qkv, qkv_gradient},
                            .gradient_reads = {mixed},
                            .parameter_gradients = {attention},
                            .flops = 1e6},
    });

    const ValueId tokens = AddValue(outline_, absl::StrCat(name, ".tokens"), 4096, 4096);
    const ValueId probabilities = AddValue(outline_, absl::StrCat(name, ".probabilities"), 512, 512);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".route"),
        .kind = NodeKind::kRoute,
        .layer = layer,
        .forward = {.reads = {mixed},
                    .writes = {tokens, probabilities},
                    .parameters = {router},
                    .state_reads = {},
                    .state_adds = {counter},
                    .reads_inputs = true,
                    .flops = 1e5},
        .backward = {.reads = {mixed},
                     .gradient_reads = {tokens, probabilities},
                     .gradient_writes = {mixed},
                     .parameters = {router},
                     .parameter_gradients = {router},
                     .scratch = Fixed(700),
                     .flops = 2e5},
    });

    const ValueId outgoing = Dynamic(absl::StrCat(name, ".outgoing"), 8192, true, ValueKind::kAllToAll);
    const ValueId sizes = AddValue(outline_, absl::StrCat(name, ".sizes"), 64, 0, ValueKind::kHost);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".permute"),
        .kind = NodeKind::kPermute,
        .layer = layer,
        .forward = {.reads = {tokens, probabilities}, .writes = {outgoing, sizes}, .bytes_moved = 12288},
        .backward = {.reads = {probabilities},
                     .gradient_reads = {outgoing},
                     .gradient_writes = {tokens},
                     .bytes_moved = 12288},
    });

    const ValueId arrived = Dynamic(absl::StrCat(name, ".arrived"), 8192, true, ValueKind::kAllToAll);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".dispatch"),
        .kind = NodeKind::kDispatch,
        .layer = layer,
        .stream = "dispatch",
        .group = "ep",
        .purpose = "dispatch",
        .forward = {.reads = {outgoing, sizes}, .writes = {arrived}, .link_bytes = 8192},
        .backward = {.reads = {sizes},
                     .gradient_reads = {arrived},
                     .gradient_writes = {outgoing},
                     .link_bytes = 8192},
    });

    const ValueId made = Dynamic(absl::StrCat(name, ".made"), 8192, true, ValueKind::kAllToAll);
    const ValueId gate_up = Dynamic(absl::StrCat(name, ".gate_up"), 24576, false, ValueKind::kActivation);
    const ValueId gate_up_gradient =
        Dynamic(absl::StrCat(name, ".gate_up_gradient"), 24576, false, ValueKind::kActivation);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".experts"),
        .kind = NodeKind::kExperts,
        .layer = layer,
        .forward = {.reads = {arrived, sizes},
                    .writes = {made, gate_up},
                    .parameters = {experts},
                    .scratch = {4500, 9000},
                    .flops = 3e6},
        .backward = {.reads = {arrived, sizes, gate_up},
                     .gradient_reads = {made},
                     .gradient_writes = {arrived},
                     .parameters = {experts},
                     .parameter_gradients = {experts},
                     .scratch = {15000, 30000},
                     .flops = 6e6},
        .splits_backward = true,
        .backward_input = {.reads = {sizes, gate_up},
                           .writes = {gate_up_gradient},
                           .gradient_reads = {made},
                           .gradient_writes = {arrived},
                           .parameters = {experts},
                           .scratch = {4500, 9000},
                           .flops = 3e6},
        .backward_weight = {.reads = {arrived, sizes, gate_up, gate_up_gradient},
                            .gradient_reads = {made},
                            .parameter_gradients = {experts},
                            .flops = 3e6},
    });

    const ValueId combined = Dynamic(absl::StrCat(name, ".combined"), 8192, true, ValueKind::kAllToAll);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".combine"),
        .kind = NodeKind::kCombine,
        .layer = layer,
        .stream = "dispatch",
        .group = "ep",
        .purpose = "dispatch",
        .forward = {.reads = {made, sizes}, .writes = {combined}, .link_bytes = 8192},
        .backward =
            {.reads = {sizes}, .gradient_reads = {combined}, .gradient_writes = {made}, .link_bytes = 8192},
    });

    const ValueId output = AddValue(outline_, absl::StrCat(name, ".hidden"), 4096, 4096);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".finish"),
        .kind = NodeKind::kFinish,
        .layer = layer,
        .forward = {.reads = {combined, probabilities, mixed}, .writes = {output}, .bytes_moved = 16384},
        .backward = {.reads = {combined, probabilities},
                     .gradient_reads = {output},
                     .gradient_writes = {combined, probabilities, mixed},
                     .bytes_moved = 24576},
    });
    return output;
  }

  Outline outline_;
};

template <typename Named>
int Find(const std::vector<Named>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& named) { return named.name == name; });
  TANDEM_CHECK(found != all.end(), absl::StrCat("no ", name));
  return static_cast<int>(found - all.begin());
}

}  // namespace

ValueId FindValue(const Outline& outline, const std::string& name) { return Find(outline.values, name); }
NodeId FindNode(const Outline& outline, const std::string& name) { return Find(outline.nodes, name); }
UnitId FindUnit(const Outline& outline, const std::string& name) { return Find(outline.units, name); }

DecoderSize Llama8b(int layers, int64_t tokens, int element_bytes) {
  return {.layers = layers,
          .tokens = tokens,
          .hidden = 4096,
          .inner = 14336,
          .key_value = 1024,
          .vocabulary = 128256,
          .heads = 32,
          .element_bytes = element_bytes};
}

Outline DenseDecoder(const DecoderSize& size, bool tied) {
  return DenseBuilder(size, tied).Build(0, size.layers);
}

Outline SmallDecoder(int layers, bool tied) { return DenseDecoder({.layers = layers}, tied); }

Outline UnusualDecoder() {
  Outline outline = SmallDecoder(2, /*tied=*/true);
  const UnitId frozen = FindUnit(outline, "layers.0");
  outline.units[frozen].frozen = true;
  for (Node& node : outline.nodes) {
    if (node.layer == 0) {
      node.backward.parameter_gradients.clear();
    }
  }
  // A second head on the same hidden: its forward writes the whole contribution of its part (as a chunked
  // loss does), its backward only passes the gradient on.
  const UnitId extra = AddUnit(outline, "extra_head", 4, {"table"}, {640});
  AddUnit(outline, "unused", 5, {"first", "second"}, {200, 300});
  const ValueId hidden = FindValue(outline, "layers.1.mlp.hidden");
  const ValueId loss = AddValue(outline, "extra_loss", 8);
  const ValueId saved = AddValue(outline, "extra_head.hidden_gradient", 4096);
  outline.losses.push_back(loss);
  outline.nodes.push_back({
      .name = "extra_head",
      .kind = NodeKind::kHead,
      .forward = {.reads = {hidden, outline.batch},
                  .writes = {loss, saved},
                  .parameters = {{extra, 0}},
                  .parameter_gradients = {{extra, 0}},
                  .scratch = Fixed(4096),
                  .flops = 1e6},
      .backward = {.reads = {saved}, .gradient_writes = {hidden}, .bytes_moved = 8192},
  });
  return outline;
}

Outline MoeDecoder(int layers) { return MoeBuilder().Build(layers); }

std::vector<Outline> TwoStages() {
  std::vector<Outline> stages = {DenseBuilder({.layers = 2}, false).Build(0, 1),
                                 DenseBuilder({.layers = 2}, false).Build(1, 2)};
  for (int stage = 0; stage < 2; ++stage) {
    stages[stage].stage = stage;
    for (Boundary& boundary : stages[stage].received) {
      boundary.stage = 1 - stage;
    }
    for (Boundary& boundary : stages[stage].sent) {
      boundary.stage = 1 - stage;
    }
  }
  return stages;
}

Outline RandomOutline(uint64_t seed) {
  platform::SeededRandom random(seed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random.Next64() % bound); };
  const auto size = [&] { return 64 * (16 + below(145)); };  // 1-10 KiB
  Outline outline;
  outline.batch = AddValue(outline, "tokens", 8 * (16 + below(64)));
  const int num_nodes = 4 + static_cast<int>(below(6));
  std::vector<ValueId> hidden = {AddValue(outline, "start.hidden", size())};
  outline.values[0].gradient_bytes = {};
  outline.values[hidden[0]].gradient_bytes = outline.values[hidden[0]].bytes;
  const UnitId first = AddUnit(outline, "start", 0, {"table"}, {16 + below(4000)});
  outline.nodes.push_back({
      .name = "start",
      .kind = NodeKind::kEmbedding,
      .forward =
          {.reads = {outline.batch}, .writes = {hidden[0]}, .parameters = {{first, 0}}, .bytes_moved = 1e4},
      .backward = {.reads = {outline.batch},
                   .gradient_reads = {hidden[0]},
                   .parameter_gradients = {{first, 0}},
                   .bytes_moved = 1e4},
  });
  for (int n = 0; n < num_nodes; ++n) {
    const std::string name = absl::StrCat("node.", n);
    const ValueId input = hidden.back();
    const ValueId output = AddValue(outline, absl::StrCat(name, ".hidden"), size());
    outline.values[output].gradient_bytes = outline.values[output].bytes;
    if (n > 0 && below(4) == 0) {  // only moves data to peers
      outline.nodes.push_back({
          .name = name,
          .kind = NodeKind::kDispatch,
          .layer = n + 1,
          .stream = "dispatch",
          .group = "ep",
          .purpose = "dispatch",
          .forward = {.reads = {input}, .writes = {output}, .link_bytes = 4096},
          .backward = {.gradient_reads = {output}, .gradient_writes = {input}, .link_bytes = 4096},
      });
      hidden.push_back(output);
      continue;
    }
    const ValueId saved = AddValue(outline, absl::StrCat(name, ".saved"), size());
    const UnitId unit = AddUnit(outline, absl::StrCat(name, ".unit"), n + 1, {"a", "b"},
                                {64 + below(3000), 64 + below(3000)});
    outline.units[unit].group = below(3) == 0 ? UnitGroup::kExpert : UnitGroup::kDense;
    const UnitPart a{unit, 0};
    const UnitPart b{unit, 1};
    Node node{
        .name = name,
        .kind = NodeKind::kMlp,
        .layer = n + 1,
        .forward = {.reads = {input},
                    .writes = {output, saved},
                    .parameters = {a, b},
                    .scratch = Fixed(below(2) * size()),
                    .flops = 1e6},
        .backward = {.reads = {input, saved},
                     .gradient_reads = {output},
                     .gradient_writes = {input},
                     .parameters = {a},
                     .parameter_gradients = {a, b},
                     .scratch = Fixed(below(2) * size()),
                     .flops = 2e6},
    };
    const ValueId skip = hidden[below(static_cast<int64_t>(hidden.size()))];
    if (skip != input && below(2) == 0) {
      node.forward.reads.push_back(skip);
      node.backward.gradient_writes.push_back(skip);
    }
    if (below(4) == 0) {  // tied: another node's gradient has two writers
      const UnitId other = static_cast<UnitId>(below(unit));
      node.forward.parameters.push_back({other, 0});
      node.backward.parameters.push_back({other, 0});
      node.backward.parameter_gradients.push_back({other, 0});
    }
    outline.nodes.push_back(node);
    hidden.push_back(output);
  }
  const int num_losses = 1 + static_cast<int>(below(2));
  for (int i = 0; i < num_losses; ++i) {
    const std::string name = absl::StrCat("loss.", i);
    const ValueId input = hidden[hidden.size() - 1 - i];
    const ValueId loss = AddValue(outline, name, 8);
    const ValueId saved = AddValue(outline, absl::StrCat(name, ".saved"), size());
    const UnitId unit =
        AddUnit(outline, absl::StrCat(name, ".unit"), num_nodes + 2 + i, {"table"}, {64 + below(6000)});
    outline.losses.push_back(loss);
    outline.nodes.push_back({
        .name = absl::StrCat(name, ".head"),
        .kind = NodeKind::kHead,
        .forward = {.reads = {input, outline.batch},
                    .writes = {loss, saved},
                    .parameters = {{unit, 0}},
                    .flops = 1e6},
        .backward = {.reads = {input, saved},
                     .gradient_writes = {input},
                     .parameters = {{unit, 0}},
                     .parameter_gradients = {{unit, 0}},
                     .scratch = Fixed(size()),
                     .flops = 2e6},
    });
  }
  if (below(3) == 0) {
    UseBf16(outline);
  }
  return outline;
}

BuildOptions OptionsFor(const Outline& outline, const std::string& strategy, int num_microbatches,
                        int ranks) {
  BuildOptions options{.num_microbatches = num_microbatches, .num_validation_microbatches = 1};
  options.strategy = StrategyOf(strategy).value();
  options.expert_strategy = options.strategy;
  const bool has_outer = options.strategy.outer.gradients == Placement::kPartial;
  const int outer = has_outer && ranks > 1 ? 2 : 1;
  options.dense = {.inner = ranks / outer, .outer = outer};
  options.expert = {.inner = std::max(1, ranks / outer / 2),
                    .outer = outer,
                    .inner_group = "expt_dp",
                    .gather_group = "expt_dp_ag",
                    .outer_group = "inter_expt_dp"};
  if (has_outer) {
    options.dense.inner_group = "intra_dp_cp";
    options.expert.inner_group = "intra_expt_dp";
  }
  for (const Unit& unit : outline.units) {
    const MeshAxes& axes = unit.group == UnitGroup::kExpert ? options.expert : options.dense;
    const int64_t shards = static_cast<int64_t>(axes.inner) * axes.outer;
    const int64_t outer_shard = RoundUp((unit.elements + shards - 1) / shards, 64);
    options.units.push_back({.shard_elements = outer_shard * axes.outer,
                             .outer_shard_elements = outer_shard,
                             .norm_terms_bytes = 16,
                             .update_norms_bytes = 24 * static_cast<int64_t>(unit.parts.size()),
                             .optimizer_scratch_bytes = 512});
  }
  options.rings = {.inputs_bytes = 48, .outcome_bytes = 24};
  return options;
}

BuildOptions RandomOptions(const Outline& outline, uint64_t seed) {
  platform::SeededRandom random(seed ^ 0x5eed);
  const auto below = [&](int64_t bound) { return static_cast<int>(random.Next64() % bound); };
  const int num_microbatches = 1 + below(4);
  const int ranks = 4 << below(2);
  BuildOptions options = OptionsFor(
      outline, Strategies()[below(static_cast<int64_t>(Strategies().size()))].name, num_microbatches, ranks);
  options.prefetch = below(3);
  return options;
}

std::vector<bool> RecomputeLayers(const Outline& outline) {
  std::vector<bool> recompute(outline.values.size(), false);
  for (const Node& node : outline.nodes) {
    const bool ends_layer = node.kind == NodeKind::kFinish || node.kind == NodeKind::kMlp;
    for (const ValueId value : node.forward.writes) {
      recompute[value] = node.layer >= 0 && outline.values[value].kind != ValueKind::kHost &&
                         !(ends_layer && value == node.forward.writes.front());
    }
  }
  return recompute;
}

void UseBf16(Outline& outline) {
  for (Unit& unit : outline.units) {
    unit.precision = {.main = 4, .compute = 2, .transport = 2};
  }
}

}  // namespace tandem::schedules
