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
  const char* name;       // behind "model.layers.N." if it is in a layer; * stands for an expert's number
  const char* mixtral = nullptr;  // Mixtral's name if it differs
  // The name in mamba2 and nemotron_h, behind "backbone.layers.N.". Null: these have no such parameter.
  const char* mixer = nullptr;
};

// A kind of node.
struct NodeKind {
  const char* name;  // "mlp"; the names of its nodes end in it
  NodeDeclaration (*declare)(const DecoderShapes& shapes);
  absl::Span<const ParameterName> names = {};
  bool experts =
      false;  // its nodes have units of their own, sharded over the ranks that have the same experts
  bool of_model = false;  // the names of its parameters have no layer number, whatever layer it is in
};

// The kinds of nodes that decoders are made of. Each kind is declared in the file of its name (embedding.cc,
// ...), and its code is in the file beside it (embedding_node.cc). All nodes that move the rows of experts
// are in the files of `dispatch`, `balance` is in those of `route`, the three heads in those of `head`, and
// the other kinds of depths in depths.cc. A new kind needs these two files, its line here, the layers that
// have it (LayerKinds), and its lines in decoder_nodes.h and .cc.
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
// The stream, group and purpose of the exchange in which ranks count the tokens of each expert. It has a
// stream of its own, because only a backward reads its result.
inline constexpr char kBalanceStream[] = "balance";
inline constexpr char kDataGroup[] = "dp_cp";
inline constexpr char kBalancePurpose[] = "balance";

// Inputs that several kinds have.
InputSpec BatchTokens(const DecoderShapes& shapes);  // "tokens": [B, BatchShape::columns]
InputSpec HiddenState(const std::string& name, const DecoderShapes& shapes);  // [T, H]
InputSpec ChosenExperts(const DecoderShapes& shapes);                         // "chosen": [T, k]

// If documents are packed, makes the batch an input that attention's forward and backward read.
void ReadDocuments(const DecoderShapes& shapes, NodeDeclaration& declaration);

// The scratch of a pass that computes which tokens go to which ranks (ops/sends.h): "place", "sort_work" and,
// last, "sent_counts".
std::vector<TensorSpec> SendsScratch(const DecoderShapes& shapes);

// "counts", [P, P]: the number of rows from each rank to each. They are in the memory of the thread that
// issues collectives, which for a GPU's stream is the host. ReadCounts makes them an input that forward and
// backward read.
TensorSpec ExchangedCounts(const DecoderShapes& shapes);
void ReadCounts(const DecoderShapes& shapes, NodeDeclaration& declaration);

// "balance_counts", [E]: the tokens of each expert that the balance loss of a microbatch counts if its scope
// is global. The route node allocates them and reads them in its backward.
TensorSpec BalanceCounts(const DecoderShapes& shapes);

// Work memory of the backward of a norm over hidden states ("norm_work"), and of matrix products
// ("products").
TensorSpec NormWork(const DecoderShapes& shapes);
TensorSpec ProductsWork(const DecoderShapes& shapes);

// A vector, whose gradient is a sum over tokens.
ParameterSpec VectorOf(const char* name, int64_t elements, Init init);

// Adds an intermediate "grad_NAME" for each parameter NAME whose gradient is kStatistics, for a kind whose
// input half computes them all.
void AddStatisticsGradients(const std::vector<PartSpec>& parts, std::vector<TensorSpec>& intermediates);

// The weight of a norm over `columns` columns. That of a norm beside a gate starts at 1 in every model
// instead.
ParameterSpec NormOver(const DecoderShapes& shapes, const char* name, int64_t columns);

// One node of a decoder, and the unit that its parameters belong to.
struct DecoderNode {
  const NodeKind* kind = nullptr;
  int layer = -1;     // -1 if it is not in a layer
  std::string name;   // "layers.3.attention"
  std::string unit;   // "layers.3"
  int64_t depth = 0;  // DecoderShapes::depth
  int letter = -1;    // its place in the depth if the names of its parameters contain it, else -1
};

// The dimensions of the node's tensors.
DecoderShapes ShapesOf(const DecoderNode& node, const DecoderConfig& config, BatchShape batch,
                       const NodeTypes& types, DeviceKind device);

// What the node's kind declares with ShapesOf it, completed: with its parts named as in the unit, outputs and
// intermediates among what passes write and read, and frozen parts marked.
NodeDeclaration DeclarationOf(const DecoderNode& node, const DecoderShapes& shapes);

// All nodes of a decoder, in forward order.
std::vector<DecoderNode> DecoderNodeList(const DecoderConfig& config);

// The name of a parameter of a kind in Hugging Face's files: "model.layers.3.mlp.gate_proj.weight". For
// experts, `parameter` ends in the number of one: "gate.5". Throws std::logic_error if the kind does not name
// the parameter.
std::string HuggingFaceName(ParameterNames names, const NodeKind& kind, const std::string& parameter,
                            int layer);

// The name of a parameter or state of the node.
std::string HuggingFaceName(ParameterNames names, const DecoderNode& node, const std::string& parameter);

}  // namespace tandem::model
