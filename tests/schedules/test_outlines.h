// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/program/build_options.h"
#include "schedules/program/outline.h"

namespace tandem::schedules {

// Outlines made without model/, with made-up sizes, and options that fit them.

// Sizes of a dense decoder; bytes follow from them as in model/.
struct DecoderSize {
  int layers = 2;
  int64_t tokens = 64;  // of one microbatch
  int64_t hidden = 16;
  int64_t inner = 48;
  int64_t key_value = 8;  // columns of k and of v
  int64_t vocabulary = 96;
  int64_t heads = 2;
  int element_bytes = 4;  // of values, gathered parameters and contributions
};

DecoderSize Llama8b(int layers, int64_t tokens, int element_bytes);

// Embedding, layers of attention and mlp, head. The units are "embedding", "layers.N" (two parts) and "head".
// If tied, the head also uses the embedding's table, whose gradient then has two writers.
Outline DenseDecoder(const DecoderSize& size, bool tied = false);

// A small DenseDecoder: 2 layers unless said otherwise.
Outline SmallDecoder(int layers = 2, bool tied = false);

// A decoder with unusual parts: layer 0 is frozen; the head is tied and yields two losses, and its forward
// writes the contribution of its own part; the unit "unused" is trainable, but nothing writes its gradient.
Outline UnusualDecoder();

// Layers of attention, route, permute, dispatch, experts, combine, finish. Units "layers.N" (dense) and
// "layers.N.experts" (expert). dispatch and combine communicate on the stream "dispatch" in group "ep";
// permute writes split sizes that the host reads before dispatch; attention and experts split their backward,
// where the input half hands a value to the weight half; route adds to a counter.
Outline MoeDecoder(int layers = 2);

// A chain of up to nine nodes with skips, side values, comm nodes, one or two losses; sizes differ ten-fold.
// The same seed gives the same outline.
Outline RandomOutline(uint64_t seed);

// Options for any of these outlines. Dense units are on `ranks` data parallel ranks, expert units on half of
// them (at least 1). For a strategy with an outer axis, the outer size is 2 (1 for one rank), and the inner
// size is the rest.
BuildOptions OptionsFor(const Outline& outline, const std::string& strategy = "zero3",
                        int num_microbatches = 2, int ranks = 2);

// Random options for RandomOutline(seed): 1 to 4 microbatches, prefetch 0 to 2, one of the strategies.
BuildOptions RandomOptions(const Outline& outline, uint64_t seed);

// Sets every unit's precision: main weights in fp32, the rest in bf16.
void UseBf16(Outline& outline);

// Puts the last part of each unit with several parts into its own class, whose elements all have the main
// type.
void KeepLastPartsInMainType(Outline& outline);

// Returns BuildOptions::recompute for all values of a layer except what the next layer or the host reads.
std::vector<bool> RecomputeLayers(const Outline& outline);

ValueId FindValue(const Outline& outline, const std::string& name);
NodeId FindNode(const Outline& outline, const std::string& name);
UnitId FindUnit(const Outline& outline, const std::string& name);

}  // namespace tandem::schedules
