#pragma once

#include "schedules_v1/outline.h"
#include "schedules_v1/program_builder.h"

namespace tandem::schedules_v1 {

// A decoder's outline with made-up sizes: embedding, `layers` times attention and mlp, head; units
// "embedding", "layers.N" (two parts), "head". tied: the head also uses the embedding's parameters.
Outline TestOutline(int layers, bool tied);

// The same with mixtures of experts: `layers` times attention, route, dispatch, shared, experts, combine,
// gate, finish. Dispatch and combine run on the dispatch stream. Four nodes contribute to the gradient of the
// value after attention, two of them to one part as well, and the backward of "shared" may come anywhere
// between those of finish and route. Units "layers.N" have parts for attention, router (with shared) and
// experts.
Outline TestMoeOutline(int layers);

// Slot sizes that put the layers in a class of their own, and so the embedding and the head.
FsdpOptions TestOptions(const Outline& outline, int prefetch);

}  // namespace tandem::schedules_v1
