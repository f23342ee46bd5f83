// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/schedules/outline_pieces.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {
namespace {

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
        .kind = "embedding",
        .forward =
            {.reads = {outline_.batch}, .writes = {hidden}, .parameters = {{0, 0}}, .bytes_moved = 8192},
        .backward_input = {.reads = {outline_.batch},
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
        .kind = "head",
        .forward = {.reads = {hidden, outline_.batch},
                    .writes = {loss, logits},
                    .parameters = {{head, 0}},
                    .scratch = Fixed(4096),
                    .flops = 1e6},
        .backward_input = {.reads = {hidden, logits},
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
    outline_.states.push_back({absl::StrCat(name, ".bias"), 32, counter});
    const StateId bias = counter + 1;

    const ValueId mixed = AddValue(outline_, absl::StrCat(name, ".attention.hidden"), 4096, 4096);
    const ValueId qkv = AddValue(outline_, absl::StrCat(name, ".attention.qkv"), 8192);
    const ValueId qkv_gradient = AddValue(outline_, absl::StrCat(name, ".attention.qkv_gradient"), 8192);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".attention"),
        .kind = "attention",
        .layer = layer,
        .forward = {.reads = {input},
                    .writes = {mixed, qkv},
                    .parameters = {attention},
                    .scratch = Fixed(5000),
                    .flops = 1e6},
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
        .kind = "route",
        .layer = layer,
        .forward = {.reads = {mixed},
                    .writes = {tokens, probabilities},
                    .parameters = {router},
                    .state_reads = {bias},
                    .state_adds = {counter},
                    .reads_inputs = true,
                    .flops = 1e5},
        .backward_input = {.reads = {mixed},
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
        .kind = "permute",
        .layer = layer,
        .forward = {.reads = {tokens, probabilities}, .writes = {outgoing, sizes}, .bytes_moved = 12288},
        .backward_input = {.reads = {probabilities},
                           .gradient_reads = {outgoing},
                           .gradient_writes = {tokens},
                           .bytes_moved = 12288},
    });

    const ValueId arrived = Dynamic(absl::StrCat(name, ".arrived"), 8192, true, ValueKind::kAllToAll);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".dispatch"),
        .kind = "dispatch",
        .place = Place::kDispatch,
        .layer = layer,
        .stream = "dispatch",
        .group = "ep",
        .purpose = "dispatch",
        .forward = {.reads = {outgoing, sizes}, .writes = {arrived}, .link_bytes = 8192},
        .backward_input = {.reads = {sizes},
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
        .kind = "experts",
        .place = Place::kInner,
        .layer = layer,
        .forward = {.reads = {arrived, sizes},
                    .writes = {made, gate_up},
                    .parameters = {experts},
                    .scratch = {4500, 9000},
                    .flops = 3e6},
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
        .kind = "combine",
        .place = Place::kCombine,
        .layer = layer,
        .stream = "dispatch",
        .group = "ep",
        .purpose = "dispatch",
        .forward = {.reads = {made, sizes}, .writes = {combined}, .link_bytes = 8192},
        .backward_input =
            {.reads = {sizes}, .gradient_reads = {combined}, .gradient_writes = {made}, .link_bytes = 8192},
    });

    const ValueId output = AddValue(outline_, absl::StrCat(name, ".hidden"), 4096, 4096);
    outline_.nodes.push_back({
        .name = absl::StrCat(name, ".finish"),
        .kind = "finish",
        .place = Place::kAfter,
        .layer = layer,
        .forward = {.reads = {combined, probabilities, mixed}, .writes = {output}, .bytes_moved = 16384},
        .backward_input = {.reads = {combined, probabilities},
                           .gradient_reads = {output},
                           .gradient_writes = {combined, probabilities, mixed},
                           .bytes_moved = 24576},
    });
    return output;
  }

  Outline outline_;
};

}  // namespace

Outline MoeDecoder(int layers) { return MoeBuilder().Build(layers); }

}  // namespace tandem::schedules
