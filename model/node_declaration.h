// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/decoder_shapes.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// What one kind of node touches, by name. A kind declares it once (attention.cc, mlp.cc, ...), and it is read
// three times: for the parameters of the units (DecoderUnits), for the outline (DecoderOutline), and for the
// tensors that the node's code gets (bound_arrays.h). Sizes are in elements.

enum class ElementType : uint8_t {
  kCompute,     // what the node computes in
  kHidden,      // of hidden states; the node's code gets them in what it computes in
  kStatistics,  // MainType of what it computes in
  kFloat64,
  kInt64,
  kByte,
};

struct TensorSpec {
  std::string name;  // unique among the values, the parameters, or one pass's scratch of a node
  std::vector<int64_t> shape;
  ElementType type = ElementType::kCompute;
  bool on_host = false;  // in the host's memory, also where the model computes on a GPU
};

// A value that another node produces.
struct InputSpec {
  TensorSpec tensor;
  // The output of that name of the latest node before this one that has it, or of one node, by its name:
  // "embedding.hidden". "tokens": the batch.
  std::string from;
};

// A value that this node's forward writes.
struct OutputSpec {
  TensorSpec tensor;
  bool gradient = false;
  bool loss = false;  // doubles that the host reads of every microbatch
  schedules::ValueKind kind =
      schedules::ValueKind::kActivation;  // kAllToAll: of what a collective moves; kHost: of one on_host
  // Outputs that the forward computes it from. A recompute that writes this one writes them as well.
  std::vector<std::string> computed_from;
  double fill = 1;   // of the tensor, what is expected to be used
  double flops = 0;  // of the forward's, what a recompute without this output saves
};

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  // Parameters of the same non-empty block follow each other and are used as one matrix, by the name of the
  // block.
  std::string block;
  Init init = Init::kNormal;
  bool gradient_is_statistics = false;  // the code writes the gradient as one, whatever its buffer's type is
};

// Parameters of one part of a unit, in layout order.
struct PartSpec {
  std::string name;
  std::string unit;  // that the part belongs to; empty: the unit of the node itself, which this declaration
                     // adds it to
  std::vector<ParameterSpec> parameters;
  // Stored, gathered and reduced in the main type, whatever the node computes in; the code gets them, and
  // writes their gradients, in it. What one node has in both types are two parts.
  bool main_type = false;
  bool frozen = false;  // no pass writes their gradients: a backward gets none (FreezeParts), or this one's
};

struct PassSpec {
  std::vector<std::string> reads;            // values
  std::vector<std::string> writes;           // outputs
  std::vector<std::string> gradient_reads;   // of values
  std::vector<std::string> gradient_writes;  // of values
  bool parameters = false;                   // reads those of every part
  bool parameter_gradients = false;          // writes those of every part
  std::vector<std::string> state_reads;      // states
  std::vector<std::string> state_adds;       // states that it changes, in training; a recompute does not
  // States that it continues from what the microbatch before left, in training; the first of a run overwrites
  // it.
  std::vector<std::string> state_carries;
  std::vector<TensorSpec> scratch;  // memory while the pass runs
  // How often it goes through its scratch and its parameters, where it takes some of its rows at a time: to
  // the gradients of these it then adds as often.
  int64_t rounds = 1;
  double flops = 0;
  double score_flops = 0;  // the part of `flops` that attention's own kernel computes
  // Elements of the compute type that kernels between the products read and write: norms, rotations, SwiGLU,
  // permutations. Their time adds to that of the products.
  double row_elements = 0;
  double link_bytes = 0;  // of a node that communicates: the buffer that its collective moves
};

// Once a step `state` changes by what all ranks have counted in `counter`, which then starts from zeros.
struct StateUpdate {
  std::string state;
  std::string counter;
};

struct NodeDeclaration {
  schedules::Place place = schedules::Place::kBefore;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<PartSpec> parts;
  // Kept from one microbatch to the next and from one step to the next; zeros when a job starts.
  std::vector<StateUpdate> state_updates;
  std::vector<TensorSpec> states;
  // For a node that communicates: its stream, and the communicator that its passes get, by process group and
  // purpose ("ep", "dispatch"). Nodes that name the same two share it, and then they share the stream.
  std::string stream = "compute";
  std::string group;
  std::string purpose;
  PassSpec forward;
  // What the backward of the nodes before this one waits for; all of the backward, where there is no weight
  // half. Writes the intermediates, which the weight half alone reads.
  PassSpec backward_input;
  std::vector<TensorSpec> intermediates;
  // Writes the gradients of parameters; best without reading any, so that the unit can go. Nothing where all
  // of them are frozen (FreezeParts).
  std::optional<PassSpec> backward_weight;
  bool recomputes = false;  // outputs that were not kept can be computed again
  // How its products differ from large ones, of which a device does more or less a second; behind the name of
  // its type. " grouped": one for each expert, of its rows.
  std::string products;
  double rows = 0;  // of each of its products; 0: one a token
};

// Marks the parts of the units that `config` freezes. unit: the node's own. The gradient of a vector comes
// out of the same kernel as the input's: for it, a pass that writes both gets scratch that is never read.
// Those of matrices are not computed, which `flops` no longer counts.
void FreezeParts(const DecoderConfig& config, const std::string& unit, const DecoderShapes& shapes,
                 NodeDeclaration& declaration);

// What the code gets a part's parameters in.
ElementType ParameterType(const PartSpec& part);

// What it gets the gradient in, where its buffer allows.
ElementType GradientType(const PartSpec& part, const ParameterSpec& parameter);

// The name of that scratch.
std::string FrozenGradientScratch(const std::string& parameter);

int64_t NumElements(const std::vector<int64_t>& shape);
ComputeType TypeOf(ElementType element, const NodeTypes& types);  // not of kInt64 and kByte
int64_t BytesOf(const TensorSpec& spec, const NodeTypes& types);

// The memory of a pass while it runs: the scratch that it declares, and behind it a tensor for each operand
// that the code gets in another type than it is stored in: "x", "gradient of x", "gradient of norm". Pieces
// begin at multiples of 256 bytes.
struct ScratchLayout {
  std::vector<TensorSpec> pieces;
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};
ScratchLayout LayOutScratch(const NodeDeclaration& declaration, const PassSpec& pass, const NodeTypes& types);

int64_t AlignedToPiece(int64_t bytes);  // up to a multiple of 256

// The tensor of an input, output or intermediate of that name. Throws std::logic_error where there is none.
const TensorSpec& ValueOf(const NodeDeclaration& declaration, const std::string& name);

std::string GradientName(const std::string& name);  // "gradient of x"

}  // namespace tandem::model
