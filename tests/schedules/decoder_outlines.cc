// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/schedules/outline_pieces.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

class DenseBuilder {
 public:
  DenseBuilder(const DecoderSize& size, bool tied) : s_(size), tied_(tied) {}

  Outline Build() {
    embedding_ = AddUnit(outline_, "embedding", s_.layers, {"table"}, {s_.vocabulary * s_.hidden});
    for (int layer = 0; layer < s_.layers; ++layer) {
      AddUnit(outline_, absl::StrCat("layers.", layer), layer, {"attention", "mlp"},
              {s_.hidden * (2 * s_.hidden + 2 * s_.key_value + 1), s_.hidden * (3 * s_.inner + 1)});
    }
    head_ = tied_ ? AddUnit(outline_, "head", s_.layers + 1, {"norm"}, {s_.hidden})
                  : AddUnit(outline_, "head", s_.layers + 1, {"norm", "table"},
                            {s_.hidden, s_.vocabulary * s_.hidden});
    for (Unit& unit : outline_.units) {
      unit.classes[0].precision = {.main = 4, .compute = s_.element_bytes, .transport = s_.element_bytes};
    }
    outline_.batch = AddValue(outline_, "tokens", (s_.tokens + 1) * 8);
    ValueId hidden = Embedding();
    for (int layer = 0; layer < s_.layers; ++layer) {
      hidden = Attention(layer, hidden);
      hidden = Mlp(layer, hidden);
    }
    Head(hidden);
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
        .kind = "embedding",
        .forward = {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {table}, .bytes_moved = 1e3},
        .backward_input = {.reads = {outline_.batch},
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
        .kind = "attention",
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, qkv, context, lse},
                    .parameters = {part},
                    .scratch = Fixed(Matrix(s_.hidden)),
                    .flops = projections + scores},
        .backward_input = {.reads = {input, qkv, context, lse},
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
        .kind = "mlp",
        .place = Place::kInner,
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {hidden, gate_up},
                    .parameters = {part},
                    .scratch = Fixed(Matrix(s_.hidden + s_.inner)),
                    .flops = flops},
        .backward_input = {.reads = {input, gate_up},
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
        .kind = "head",
        .forward = {.reads = {input, outline_.batch},
                    .writes = {loss, logits},
                    .parameters = parts,
                    .scratch = Fixed(Matrix(s_.hidden)),
                    .flops = flops},
        .backward_input = {.reads = {input, logits},
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

}  // namespace

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

Outline DenseDecoder(const DecoderSize& size, bool tied) { return DenseBuilder(size, tied).Build(); }

Outline SmallDecoder(int layers, bool tied) { return DenseDecoder({.layers = layers}, tied); }

Outline UnusualDecoder() {
  Outline outline = SmallDecoder(2, /*tied=*/true);
  const UnitId frozen = FindUnit(outline, "layers.0");
  outline.units[frozen].frozen = true;
  for (Node& node : outline.nodes) {
    if (node.layer == 0) {
      node.backward_input.parameter_gradients.clear();
    }
  }
  // A second head on the same hidden, as one whose logits come in chunks: its forward writes every gradient,
  // and adds up that of its part.
  const UnitId extra = AddUnit(outline, "extra_head", 4, {"table"}, {640});
  AddUnit(outline, "unused", 5, {"first", "second"}, {200, 300});
  const ValueId hidden = FindValue(outline, "layers.1.mlp.hidden");
  const ValueId loss = AddValue(outline, "extra_loss", 8);
  outline.losses.push_back(loss);
  outline.nodes.push_back({
      .name = "extra_head",
      .kind = "head",
      .forward = {.reads = {hidden, outline.batch},
                  .writes = {loss},
                  .gradient_writes = {hidden},
                  .parameters = {{extra, 0}},
                  .parameter_gradients = {{extra, 0}},
                  .sums_parameter_gradients = true,
                  .scratch = Fixed(4096),
                  .flops = 3e6},
  });
  return outline;
}

}  // namespace tandem::schedules
