// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/unit_parameters.h"
#include "schedules/program/outline.h"

namespace tandem::model {

// A declaration lists, by name, the tensors that a node reads and writes. Each kind of node has a function
// that makes it (attention.cc, mlp.cc, ...). DecoderUnits takes the units' parameters from it, DecoderOutline
// the nodes of the outline, and BoundArrays the tensors that the node's code may request. Sizes are in
// elements.

enum class ElementType : uint8_t {
  kCompute,     // the type that the node computes in
  kHidden,      // the type of hidden states; the node's code gets them converted to kCompute
  kStatistics,  // MainType of the type that the node computes in
  kFloat64,
  kInt64,
  kByte,
};

struct TensorSpec {
  std::string name;  // unique among the node's values, its parameters, or one pass's scratch
  std::vector<int64_t> shape;
  ElementType type = ElementType::kCompute;
  bool on_host = false;  // in the host's memory, even if the model computes on a GPU
};

// A value that another node produces.
struct InputSpec {
  TensorSpec tensor;
  // Which output this is: of the latest earlier node that has an output of this name ("hidden"), or of a node
  // that is named too ("embedding.hidden"). "tokens" is the batch.
  std::string from;
};

// A value that this node's forward writes. DeclarationOf adds its name to `writes` of the forward.
struct OutputSpec {
  TensorSpec tensor;
  bool gradient = false;
  bool loss = false;  // doubles that the host reads for every microbatch
  // kAllToAll: a collective moves it; kHost: on_host is set.
  schedules::ValueKind kind = schedules::ValueKind::kActivation;
  // Other outputs that the forward computes this one from. A recompute that writes this output writes them
  // too.
  std::vector<std::string> computed_from;
  double fill = 1;              // the expected fraction of the tensor that is used
  double flops = 0;             // FLOPs of the forward that a recompute without this output saves
  bool written_behind = false;  // a later node, which has it as an input, writes it in its forward
};

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  // Consecutive parameters with the same non-empty block are used as one matrix of the block's name.
  std::string block;
  Init init = Init::kNormal;
  // The code writes the gradient as kStatistics, whatever its buffer's type.
  bool gradient_is_statistics = false;
};

// Parameters of one part of a unit, in layout order.
struct PartSpec {
  std::string name;
  // The unit that the part belongs to. Empty: the node's own unit, which gets the part from this declaration.
  std::string unit;
  std::vector<ParameterSpec> parameters;
  // The part is stored, gathered and reduced in the main type, whatever the node computes in. The code gets
  // the parameters and writes their gradients in that type. A node with parameters in both types declares two
  // parts.
  bool main_type = false;
  // If true, no pass of the node writes the parameters' gradients: the unit is not trained (FreezeParts), or
  // the node uses another node's parameters without training them.
  bool frozen = false;
};

// What one pass of a node does. "It" is the pass.
struct PassSpec {
  std::vector<std::string> reads;            // names of values
  std::vector<std::string> writes;           // names of outputs
  std::vector<std::string> gradient_reads;   // names of values whose gradients it reads
  std::vector<std::string> gradient_writes;  // names of values whose gradients it writes
  bool parameters = false;                   // whether it reads the parameters of every part
  bool parameter_gradients = false;          // whether it writes the gradients of every part's parameters
  std::vector<std::string> state_reads;      // names of states
  // States that it changes in training; a recompute does not change them.
  std::vector<std::string> state_adds;
  // States whose values in training continue from one microbatch to the next. The first microbatch of a run
  // overwrites them.
  std::vector<std::string> state_carries;
  std::vector<TensorSpec> scratch;  // memory that it uses while it runs
  // In how many rounds it computes its rows. Each round passes over its scratch and parameters, and adds to
  // the parameters' gradients.
  int64_t rounds = 1;
  double flops = 0;
  double score_flops = 0;  // the part of `flops` that attention's own kernel does
  // Elements of the compute type that the kernels between the matrix products read and write (norms,
  // rotations, SwiGLU, permutations). Their estimated time is added to the time of the products.
  double row_elements = 0;
  double link_bytes = 0;  // if the node communicates: bytes of the buffer that its collective moves
};

// Once a step, `state` changes by what all ranks have counted in `counter`; `counter` then restarts from
// zeros.
struct StateUpdate {
  std::string state;
  std::string counter;
};

struct NodeDeclaration {
  schedules::Place place = schedules::Place::kBefore;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<PartSpec> parts;
  // States are kept from one microbatch to the next and from one step to the next. They are zeros when a job
  // starts.
  std::vector<StateUpdate> state_updates;
  std::vector<TensorSpec> states;
  // The stream of a node that communicates, and the process group and purpose that identify the communicator
  // of its passes ("ep", "dispatch"). Nodes with the same group and purpose share the communicator, and must
  // have the same stream.
  std::string stream = "compute";
  std::string group;
  std::string purpose;
  PassSpec forward;
  // The input half of the backward, for which the backward of earlier nodes waits; all of the backward if
  // there is no weight half. It writes the intermediates, which only the weight half reads. DeclarationOf
  // adds their names to `writes` of the input half and to `reads` of the weight half.
  PassSpec backward_input;
  std::vector<TensorSpec> intermediates;
  // The weight half of the backward, which writes the gradients of parameters. It should read no parameters,
  // so that the unit can be released earlier. Unset if there is no such half, or if all parameters are frozen
  // (FreezeParts).
  std::optional<PassSpec> backward_weight;
  bool recomputes = false;  // whether outputs that were not kept can be recomputed
  // Which rate of the device holds for the node's matrix products: a suffix of the compute type's name in the
  // tables of rates. Empty: the rate of one large product; " grouped": the rate of one product for each
  // expert.
  std::string products;
  double rows = 0;  // rows of each of its products; 0: one for each token
};

// Marks the parts of units that the configuration freezes. `unit` is the node's own unit. Gradients of frozen
// matrices are not computed, and `flops` no longer counts them. Gradients of frozen vectors (norms' weights)
// are computed if the same kernel computes an input's gradient; they get scratch that is never read.
void FreezeParts(const std::string& unit, const DecoderShapes& shapes, NodeDeclaration& declaration);

// The type in which the code gets a part's parameters.
ElementType ParameterType(const PartSpec& part);

// The type in which the code writes a parameter's gradient. If the gradient is stored in another type, the
// code writes a kStatistics gradient to scratch, which is then converted, and any other gradient directly in
// the stored type.
ElementType GradientType(const PartSpec& part, const ParameterSpec& parameter);

// The name of the scratch that replaces the gradient of a frozen parameter.
std::string FrozenGradientScratch(const std::string& parameter);

int64_t NumElements(const std::vector<int64_t>& shape);
ComputeType TypeOf(ElementType element, const NodeTypes& types);  // `element` is neither kInt64 nor kByte
int64_t BytesOf(const TensorSpec& spec, const NodeTypes& types);

// The memory that a pass uses while it runs: first the scratch that the pass declares, then a tensor for each
// operand whose type in the code differs from the stored type ("x", "gradient of x", "gradient of norm").
// Each piece begins at a multiple of 256 bytes.
struct ScratchLayout {
  std::vector<TensorSpec> pieces;
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};
ScratchLayout LayOutScratch(const NodeDeclaration& declaration, const PassSpec& pass, const NodeTypes& types);

int64_t AlignedToPiece(int64_t bytes);  // rounds up to a multiple of 256

// Finds the tensor of an input, output or intermediate by name. Throws std::logic_error if there is none.
const TensorSpec& ValueOf(const NodeDeclaration& declaration, const std::string& name);

std::string GradientName(const std::string& name);  // "gradient of x"

}  // namespace tandem::model
