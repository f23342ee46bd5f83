// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/config.h"

namespace tandem::model {

// Counts the parameters of all ranks together.
int64_t NumParameters(const DecoderConfig& config);

// Counts the parameters that one token uses: all except the experts that it did not choose.
int64_t NumActiveParameters(const DecoderConfig& config);

// Model FLOPs of one token, forward and backward. The sum has
// * 6 for each active parameter except the input embedding's, or 4 if its unit is frozen and has no
//   gradients;
// * 6·L·H·S for causal attention, with L the layers that attend and H = heads · head_dim (PaLM,
//   arXiv:2204.02311, appendix B, has 12·L·H·S; causality halves it). If values and keys differ in size, H is
//   heads times their mean. In a layer with a sliding window, AttendedLength replaces S;
// * 18 for each number of a Mamba-2 mixer's state, and 24 for each of a gated delta net's.
// The head counts once more for each depth, for the tokens that the depth predicts from.
double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length);

// Twice the mean number of tokens that a token of a sequence sees, if it sees at most `window` tokens: S if
// the window is not shorter than the sequence, W (2 - W / S) otherwise.
double AttendedLength(int64_t sequence_length, int64_t window);

}  // namespace tandem::model
