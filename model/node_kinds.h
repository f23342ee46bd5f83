// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/node_declaration.h"

namespace tandem::model {

// The kinds of nodes that a decoder is made of, each declared in the file of its name (embedding.cc, ...);
// its code is beside it (embedding_node.cc). A new kind is these two files, its row and its place in a layer
// in node_kinds.cc, its row in decoder_nodes.cc, and its parameters' names in hugging_face_names.cc.
NodeDeclaration DeclareEmbedding(const DecoderShapes& shapes);
NodeDeclaration DeclareAttention(const DecoderShapes& shapes);
NodeDeclaration DeclareLatentAttention(const DecoderShapes& shapes);
NodeDeclaration DeclareMlp(const DecoderShapes& shapes);
NodeDeclaration DeclareRoute(const DecoderShapes& shapes);
NodeDeclaration DeclarePermute(const DecoderShapes& shapes);
NodeDeclaration DeclareSizes(const DecoderShapes& shapes);
NodeDeclaration DeclareBalance(const DecoderShapes& shapes);
NodeDeclaration DeclareDispatch(const DecoderShapes& shapes);
NodeDeclaration DeclareExperts(const DecoderShapes& shapes);
NodeDeclaration DeclareCombine(const DecoderShapes& shapes);
NodeDeclaration DeclareFinish(const DecoderShapes& shapes);
NodeDeclaration DeclareHead(const DecoderShapes& shapes);         // whichever of both the shapes ask for
NodeDeclaration DeclareBlockedHead(const DecoderShapes& shapes);  // DecoderShapes::logit_columns

// Where the rows of experts travel.
inline constexpr char kDispatchStream[] = "dispatch";
inline constexpr char kExpertGroup[] = "ep";
inline constexpr char kDispatchPurpose[] = "dispatch";
// How many rows travel goes ahead of them.
inline constexpr char kSizesStream[] = "sizes";
inline constexpr char kSizesPurpose[] = "sizes";
// Where ranks exchange how many tokens their routers would send to each expert: beside everything
// else, since a backward is the first to read it.
inline constexpr char kBalanceStream[] = "balance";
inline constexpr char kDataGroup[] = "dp_cp";
inline constexpr char kBalancePurpose[] = "balance";

// Inputs that several kinds have.
InputSpec BatchTokens(const DecoderShapes& shapes);  // "tokens": [B, BatchShape::columns]
InputSpec HiddenState(const std::string& name, const DecoderShapes& shapes);  // [T, H]
InputSpec ChosenExperts(const DecoderShapes& shapes);                         // "chosen": [T, k]

// Makes the batch an input that attention's forward and backward read, where documents are packed.
void ReadDocuments(const DecoderShapes& shapes, NodeDeclaration& declaration);

// Scratch of a pass that works out which tokens go to which ranks (ops/sends.h): "place", "sort_work" and,
// last, "sent_counts".
std::vector<TensorSpec> SendsScratch(const DecoderShapes& shapes);

// "counts": [P, P], the rows from each rank to each. The thread that issues collectives reads them: of a
// GPU's streams, the host. ReadCounts makes them an input that forward and backward read.
TensorSpec ExchangedCounts(const DecoderShapes& shapes);
void ReadCounts(const DecoderShapes& shapes, NodeDeclaration& declaration);

// "balance_counts": [E], tokens of each expert that the balance of a microbatch counts, where its scope is
// global: the route node makes room for them, and reads them in its backward.
TensorSpec BalanceCounts(const DecoderShapes& shapes);

std::vector<PartSpec> HeadParts(const DecoderShapes& shapes);

// Scratch of the backward of a norm over hidden states: "norm_work".
TensorSpec NormWork(const DecoderShapes& shapes);

NodeDeclaration Declare(schedules::NodeKind kind, const DecoderShapes& shapes);

// One node of a decoder, and the unit that its parameters belong to.
struct DecoderNode {
  schedules::NodeKind kind = schedules::NodeKind::kMlp;
  int layer = -1;    // -1: not in a layer
  std::string name;  // "layers.3.attention"
  std::string unit;  // "layers.3"
};

// In forward order.
std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config);

}  // namespace tandem::model
