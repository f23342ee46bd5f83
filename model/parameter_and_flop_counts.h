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
// * 6 for each active parameter, or 4 if its unit is frozen. The input embedding does not count, unless the
//   head uses its matrix; a capacity factor below 1 reduces the share of the experts;
// * 6·L·H·S for causal attention, with L the layers that attend and H = heads · head_dim (PaLM,
//   arXiv:2204.02311, appendix B, has 12·L·H·S; causality halves it). If values and keys differ in size, H is
//   heads times their mean. In a layer with a sliding window, AttendedLength replaces S;
// * 18 for each number of a Mamba-2 mixer's state, and 24 for each of a gated delta net's;
// * for each depth (depths.h), the head's matrix once more, for as many tokens as the depth predicts from; 4
//   instead of 6 also if depths are detached.
double FlopsPerToken(const DecoderConfig& config, int64_t sequence_length);

// Twice the mean number of tokens that a token sees in a sequence of S tokens if it sees at most W (`window`)
// tokens: S if W >= S, otherwise W (2 - W / S).
double AttendedLength(int64_t sequence_length, int64_t window);

}  // namespace tandem::model
