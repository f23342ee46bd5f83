// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "model/decoder_shapes.h"
#include "model/node_declaration.h"

namespace tandem::model {

// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, 2.2): layers behind those of the model, the depths
// d = 1 to D, of which depth d predicts the token d + 1 places ahead. With e = the embedding's rows:
//
//   h[0]    = norm(hidden)                                        main_norm, in the unit of depth 1
//   x[d][i] = W · [norm(e[i + d]); norm(h[d-1][i])]               depth_input
//   h[d]    = norm(layer(x[d]))                                   the layer's nodes, depth_norm
//   loss    = cross_entropy(lm_head · h[0], next tokens)          head
//   loss[d] = cross_entropy(lm_head · h[d][i], token i + d + 1)   depth_head
//
// The sum that is trained is loss + weight / D · (loss[1] + ... + loss[D]), where loss[d] is the mean over
// the S - d targets that a sequence has at that depth. Rows of x[d] behind those, whose e would be of the
// next sequence, have zeros in its place: nothing is predicted from them, and no row before them sees
// them, but routers count them.
//
// A depth is one layer behind the others and one unit, "mtp.0": gathered, given up, recomputed and overlapped
// as they are. What it shares with the model it shares as values: e is what the embedding made of the tokens,
// kept until the last depth has read it, and its gradient has a share of each depth and of the first layer
// before the embedding's backward reads it. So the table is gathered once a microbatch. The heads are behind
// the last depth, in the order of the depths, all on the head's unit: one gather serves them one after the
// other, forward and backward, and its matrix has a gradient of each of them, which are summed in the main
// type. (Tied, the matrix is the embedding's, whose own backward adds to the same sum.) Kept from the main
// layers to the backward are h[0], h[1], ..., e, and what each layer keeps.
//
// Detached, no gradient goes from a depth to h[0], e or the head's matrix: depths train themselves alone.

// The name of a depth's unit: "mtp.0" for depth 1.
std::string UnitOfDepth(int64_t depth);

// H[depth], [T, H], declared as an input named `name`.
InputSpec HiddenOfDepth(const char* name, int64_t depth, const DecoderShapes& shapes);

}  // namespace tandem::model
