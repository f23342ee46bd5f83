// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/node_declaration.h"

namespace tandem::model {

// The name of a parameter or state in Hugging Face's safetensors.
struct ParameterName {
  const char* parameter;  // as its kind declares it; of experts without their number
  const char* name;       // of what is in a layer: behind "model.layers.N."; *: the number of an expert
  const char* mixtral = nullptr;  // Mixtral's, where it is another
  // Of mamba2 and nemotron_h: behind "backbone.layers.N."; null: they have no such parameter.
  const char* mixer = nullptr;
};

// A kind of node.
struct NodeKind {
  const char* name;  // "mlp": of its nodes, behind their layer's
  NodeDeclaration (*declare)(const DecoderShapes& shapes);
  absl::Span<const ParameterName> names = {};
  bool experts =
      false;  // its nodes have units of their own, which are sharded over the ranks with the same experts
  bool of_model = false;  // its parameters have names without a layer's number, whatever layer it is in
};

// The kinds that decoders are made of, each in the file of its name (embedding.cc, ...; sizes and combine
// with dispatch, whose rows they count and bring back); its code is beside it (embedding_node.cc). A new kind
// is these two files, its line here, the layers that have it (LayerKinds), and its lines in decoder_nodes.h
// and .cc.
extern const NodeKind kEmbedding;
extern const NodeKind kAttention;
extern const NodeKind kWindowAttention;     // with a sliding window
extern const NodeKind kAttentionNormAfter;  // its norm is of what it adds to the hidden state
extern const NodeKind kLatentAttention;
extern const NodeKind kMlp;
extern const NodeKind kMlpNormAfter;
extern const NodeKind kMlpSquaredRelu;
extern const NodeKind kMamba;
extern const NodeKind kGatedDelta;
extern const NodeKind kRoute;
extern const NodeKind kBalance;
extern const NodeKind kPermute;
extern const NodeKind kSizes;
extern const NodeKind kDispatch;
extern const NodeKind kExperts;
extern const NodeKind kCombine;
extern const NodeKind kFinish;
extern const NodeKind kHead;
// Of models with depths (depths.h).
extern const NodeKind kMainNorm;
extern const NodeKind kDepthInput;
extern const NodeKind kDepthNorm;
extern const NodeKind kHeadOfNormed;  // in place of kHead
extern const NodeKind kDepthHead;

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

// Work memory: of the backward of a norm over hidden states ("norm_work"), and of matrix products
// ("products").
TensorSpec NormWork(const DecoderShapes& shapes);
TensorSpec ProductsWork(const DecoderShapes& shapes);

// The weight of a norm over so many columns.
ParameterSpec NormOver(const char* name, int64_t columns);

// A bias of so many columns.
ParameterSpec BiasOf(const char* name, int64_t columns);

// One node of a decoder, and the unit that its parameters belong to.
struct DecoderNode {
  const NodeKind* kind = nullptr;
  int layer = -1;     // -1: not in a layer
  std::string name;   // "layers.3.attention"
  std::string unit;   // "layers.3"
  int64_t depth = 0;  // DecoderShapes::depth
  int letter = -1;    // its place in the depth, if the names of its parameters say that
};

// What its kind declares, with the parts named as they are in the unit.
NodeDeclaration DeclarationOf(const DecoderNode& node, DecoderShapes shapes);

// In forward order.
std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config);

// "model.layers.3.mlp.gate_proj.weight". Of experts, `parameter` ends in the number of one: "gate.5". Throws
// std::logic_error for one that the kind does not name.
std::string HuggingFaceName(ParameterNames names, const NodeKind& kind, const std::string& parameter,
                            int layer);

// That of a parameter or state of the node.
std::string HuggingFaceName(ParameterNames names, const DecoderNode& node, const std::string& parameter);

}  // namespace tandem::model
