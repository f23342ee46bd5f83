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
  const char* parameter;  // as its kind declares it; without the number of an expert
  const char* name;       // after "model.layers.N." if it is in a layer; * stands for an expert's number
  const char* mixtral = nullptr;  // Mixtral's name if it differs
  // The name in mamba2 and nemotron_h, after "backbone.layers.N.". Null: these have no such parameter.
  const char* mixer = nullptr;
};

// A kind of node.
struct NodeKind {
  const char* name;  // "mlp"; the names of its nodes end in it
  NodeDeclaration (*declare)(const DecoderShapes& shapes);
  absl::Span<const ParameterName> names = {};
  // Its nodes have units of their own, sharded over the ranks that have the same experts.
  bool experts = false;
  bool of_model = false;  // the names of its parameters have no layer number, whatever layer it is in
};

// The kinds of nodes that decoders are made of. The declaration of a kind is in the file of its name
// (embedding.cc), and its code in embedding_node.cc. Some kinds share two files: all that move the rows of
// experts are in dispatch.cc, `balance` is in route.cc, the three heads are in head.cc, and the other kinds
// of depths in depths.cc. CONTRIBUTING.md says what a new kind needs.
extern const NodeKind kEmbedding;
extern const NodeKind kAttention;
extern const NodeKind kLatentAttention;
extern const NodeKind kMlp;
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
// The kinds that only models with depths have (depths.h).
extern const NodeKind kMainNorm;
extern const NodeKind kDepthInput;
extern const NodeKind kDepthNorm;
extern const NodeKind kHeadOfNormed;  // replaces kHead
extern const NodeKind kDepthHead;

// The stream, group and purpose of the communicator that moves the rows of experts.
inline constexpr char kDispatchStream[] = "dispatch";
inline constexpr char kExpertGroup[] = "ep";
inline constexpr char kDispatchPurpose[] = "dispatch";
// The stream and purpose of the exchange of row counts, which precedes the rows.
inline constexpr char kSizesStream[] = "sizes";
inline constexpr char kSizesPurpose[] = "sizes";
// The stream, group and purpose of the exchange in which ranks count the tokens of each expert. Only a
// backward reads the result, so the exchange has a stream of its own, on which it delays no other.
inline constexpr char kBalanceStream[] = "balance";
inline constexpr char kDataGroup[] = "dp_cp";
inline constexpr char kBalancePurpose[] = "balance";

// Inputs that several kinds have.
InputSpec BatchTokens(const DecoderShapes& shapes);  // "tokens": [B, BatchShape::columns]
InputSpec HiddenState(const std::string& name, const DecoderShapes& shapes);  // [T, H]
InputSpec ChosenExperts(const DecoderShapes& shapes);                         // "chosen": [T, k]

// If documents are packed, makes the batch an input that attention's forward and backward read.
void ReadDocuments(const DecoderShapes& shapes, NodeDeclaration& declaration);

// The scratch of a pass that computes which tokens are sent to which ranks (ops/sends.h): "place",
// "sort_work" and, last, "sent_counts".
std::vector<TensorSpec> SendsScratch(const DecoderShapes& shapes);

// "counts", [P, P]: the number of rows that each rank sends to each. If the device is a GPU, they are
// nevertheless in the host's memory, because the host needs them to issue the exchange of rows. ReadCounts
// makes them an input that forward and backward read.
TensorSpec ExchangedCounts(const DecoderShapes& shapes);
void ReadCounts(const DecoderShapes& shapes, NodeDeclaration& declaration);

// "balance_counts", [E]: the number of tokens of each expert by which a microbatch's balance loss is computed
// if its scope is global. The route node has this output; the balance node's forward writes it, and the route
// node's backward reads it.
TensorSpec BalanceCounts(const DecoderShapes& shapes);

// Work memory of the backward of a norm over hidden states ("norm_work"), and of matrix products
// ("products").
TensorSpec NormWork(const DecoderShapes& shapes);
TensorSpec ProductsWork(const DecoderShapes& shapes);

// Declares a vector. Its gradient is a sum over tokens, and so is written as kStatistics.
ParameterSpec VectorOf(const char* name, int64_t elements, Init init);

// Adds an intermediate "grad_NAME" for each parameter NAME whose gradient is kStatistics, for a kind whose
// input half computes them all.
void AddStatisticsGradients(const std::vector<PartSpec>& parts, std::vector<TensorSpec>& intermediates);

// Declares the weight of a norm over `columns` columns, which starts at 0 in models whose norms multiply by 1
// + weight, otherwise at 1. (The norms beside gates, which always start at 1, do not use it.)
ParameterSpec NormOver(const DecoderShapes& shapes, const char* name, int64_t columns);

// One node of a decoder, and the unit that its parameters belong to.
struct DecoderNode {
  const NodeKind* kind = nullptr;
  int layer = -1;     // -1 if it is not in a layer
  std::string name;   // "layers.3.attention"
  std::string unit;   // "layers.3"
  int64_t depth = 0;  // DecoderShapes::depth
  int letter = -1;    // index of the node's letter in the depth, if parameter names contain it; else -1
};

// Computes the dimensions of the node's tensors.
DecoderShapes ShapesOf(const DecoderNode& node, const DecoderConfig& config, BatchShape batch,
                       const NodeTypes& types, DeviceKind device);

// Makes the declaration of the node's kind for `shapes` (ShapesOf the node), and completes it: parts get the
// names that they have in the unit, outputs and intermediates are added to the passes that write or read
// them, and frozen parts are marked.
NodeDeclaration DeclarationOf(const DecoderNode& node, const DecoderShapes& shapes);

// All nodes of a decoder, in forward order.
std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config);

// The name in Hugging Face's files of a parameter of a kind: "model.layers.3.mlp.gate_proj.weight". For
// experts, `parameter` ends in the expert's number: "gate.5". Throws std::logic_error if the kind has no name
// for the parameter.
std::string HuggingFaceName(ParameterNames names, const NodeKind& kind, const std::string& parameter,
                            int layer);

// The name of a parameter or state of the node.
std::string HuggingFaceName(ParameterNames names, const DecoderNode& node, const std::string& parameter);

}  // namespace tandem::model
