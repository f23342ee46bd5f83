// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "model/decoder_shapes.h"
#include "model/node_declaration.h"

namespace tandem::model {

// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, 2.2). The depths d = 1 to D are layers after the
// layers of the model. From token i, the model predicts token i + 1, and depth d token i + d + 1. With e, the
// embedding's rows:
//
//   h[0]    = norm(hidden)                                        main_norm, in the unit of depth 1
//   x[d][i] = W · [norm(e[i + d]); norm(h[d-1][i])]               depth_input
//   h[d]    = norm(layer(x[d]))                                   the layer's nodes, depth_norm
//   loss    = cross_entropy(lm_head · h[0], next tokens)          head
//   loss[d] = cross_entropy(lm_head · h[d][i], token i + d + 1)   depth_head
//
// The trained loss is loss + weight / D · (loss[1] + ... + loss[D]). At depth d, a sequence of S tokens has S
// - d targets, and loss[d] is the mean over them. The last d rows of x[d] would need an e of the next
// sequence, and get zeros instead: nothing is predicted from these rows, and no other row sees them, but
// routers count them.
//
// A depth is one layer and one unit ("mtp.0" for d = 1), which is gathered, released, recomputed and
// overlapped as any other. It shares e with the model as a value: the embedding computes e once, e is kept
// until the last depth has read it, and the first layer and all depths add to its gradient before the
// embedding's backward reads it. So the embedding's matrix is gathered once a microbatch. All heads come
// after the last depth, in the order of the depths, and use the head's unit: one gather serves all of them,
// and the gradients that they compute of its matrix are summed in the main type. (If weights are tied, the
// matrix is the embedding's, and the embedding's backward adds to the same sum.) From the forward to the
// backward, e and all h[d] are kept, besides what each layer keeps.
//
// If depths are detached, they compute no gradients of h[0], e and the head's matrix, and so train only their
// own parameters.

// The name of a depth's unit: "mtp.0" for depth 1.
std::string UnitOfDepth(int64_t depth);

// Declares h[depth], [T, H], as an input that is called `name`.
InputSpec HiddenOfDepth(const char* name, int64_t depth, const DecoderShapes& shapes);

}  // namespace tandem::model
