// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/platform/seeded_random.h"
#include "tests/schedules/outline_pieces.h"
#include "tests/schedules/test_outlines.h"

namespace tandem::schedules {

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
      .kind = "embedding",
      .forward =
          {.reads = {outline.batch}, .writes = {hidden[0]}, .parameters = {{first, 0}}, .bytes_moved = 1e4},
      .backward_input = {.reads = {outline.batch},
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
          .kind = "dispatch",
          .place = Place::kDispatch,
          .layer = n + 1,
          .stream = "dispatch",
          .group = "ep",
          .purpose = "dispatch",
          .forward = {.reads = {input}, .writes = {output}, .link_bytes = 4096},
          .backward_input = {.gradient_reads = {output}, .gradient_writes = {input}, .link_bytes = 4096},
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
        .kind = "mlp",
        .place = Place::kInner,
        .layer = n + 1,
        .forward = {.reads = {input},
                    .writes = {output, saved},
                    .parameters = {a, b},
                    .scratch = Fixed(below(2) * size()),
                    .flops = 1e6},
        .backward_input = {.reads = {input, saved},
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
      node.backward_input.gradient_writes.push_back(skip);
    }
    if (below(4) == 0) {  // tied: another node's gradient has two writers
      const UnitId other = static_cast<UnitId>(below(unit));
      node.forward.parameters.push_back({other, 0});
      node.backward_input.parameters.push_back({other, 0});
      node.backward_input.parameter_gradients.push_back({other, 0});
    }
    if (below(2) == 0) {  // its gradients of parameters may come later
      const ValueId between = AddValue(outline, absl::StrCat(name, ".between"), size());
      node.backward_input.writes = {between};
      node.backward_weight = {.reads = {saved, between},
                              .gradient_reads = {output},
                              .parameter_gradients = std::move(node.backward_input.parameter_gradients),
                              .scratch = Fixed(below(2) * size()),
                              .flops = 1e6};
      node.backward_input.parameter_gradients.clear();
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
    if (below(3) == 0) {  // all of its gradients are its forward's
      outline.nodes.push_back({
          .name = absl::StrCat(name, ".head"),
          .kind = "head",
          .forward = {.reads = {input, outline.batch},
                      .writes = {loss},
                      .gradient_writes = {input},
                      .parameters = {{unit, 0}},
                      .parameter_gradients = {{unit, 0}},
                      .sums_parameter_gradients = below(2) == 0,
                      .scratch = Fixed(size()),
                      .flops = 3e6},
      });
      continue;
    }
    outline.nodes.push_back({
        .name = absl::StrCat(name, ".head"),
        .kind = "head",
        .forward = {.reads = {input, outline.batch},
                    .writes = {loss, saved},
                    .parameters = {{unit, 0}},
                    .flops = 1e6},
        .backward_input = {.reads = {input, saved},
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

}  // namespace tandem::schedules
