// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::schedules {

// The facts about one stage of a model that a schedule needs: nodes, values, units, sizes, FLOPs. Torch-free;
// model/ makes an outline from a configuration.

using NodeId = int;
using UnitId = int;
using ValueId = int;
using StateId = int;

// An expected size and an upper bound. They differ only if routing, which is dynamic, decides the size.
struct Bytes {
  int64_t expected = 0;
  int64_t bound = 0;
  bool operator==(const Bytes&) const = default;
};

inline Bytes Fixed(int64_t bytes) { return {bytes, bytes}; }

enum class ValueKind : uint8_t {
  kActivation,
  kAllToAll,  // in memory that a communicator registered
  kHost,      // split sizes, which the issuing thread reads
};

// Data that one node produces and others read, once for each microbatch. Its gradient, if it has one, is a
// separate buffer.
struct Value {
  std::string name;  // "layers.3.mlp.hidden"
  ValueKind kind = ValueKind::kActivation;
  Bytes bytes;
  Bytes gradient_bytes;  // zero if it has no gradient
};

// What a node keeps from one microbatch to the next and from one step to the next, such as the bias of an
// expert router, or a counter. It is persistent and on every rank.
struct NodeState {
  std::string name;
  int64_t bytes = 0;
  // The state in which passes count, and from which this state is updated. Once a step, with the optimizer
  // steps, the update adds up the counters of all ranks and resets them to zero. -1: there is no counter, and
  // only passes change this state.
  StateId counter = -1;
};

// A run of consecutive parameters of a unit whose gradients one node writes together.
struct UnitPart {
  UnitId unit = -1;
  int part = -1;
  bool operator==(const UnitPart&) const = default;
};

// What one pass of a node (forward, or a half of the backward) touches. Each list has the order of the
// instruction's operands (program.h); model/ knows their names.
struct Access {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::vector<ValueId> gradient_reads;
  std::vector<ValueId> gradient_writes;  // the first write of a microbatch overwrites, later ones add
  std::vector<UnitPart> parameters;
  std::vector<UnitPart> parameter_gradients;
  // Whether one pass adds to each of parameter_gradients more than once. Such a gradient is added up in the
  // main type, like one to which several passes add (BufferKind::kCollected).
  bool sums_parameter_gradients = false;
  std::vector<StateId> state_reads;
  std::vector<StateId> state_adds;
  // States that the pass continues: it reads what the previous microbatch of the run left, and overwrites it.
  // The first microbatch of a run, and every microbatch of a validation, finds zeros.
  std::vector<StateId> state_carries;
  bool reads_inputs = false;  // reads the run's inputs: the step number, from which random keys are made
  Bytes scratch;              // in use while the instruction runs
  double flops = 0;
  double score_flops = 0;  // the part of `flops` that attention's own kernel does, at a rate of its own
  double bytes_moved = 0;  // bytes read and written in the device's memory
  double row_bytes = 0;    // the part of bytes_moved that kernels between the matrix products move
  double link_bytes = 0;   // if the node communicates: the size of the buffer that its collective moves

  bool operator==(const Access&) const = default;
};

// The place of a node relative to the two exchanges of its layer, the dispatch of tokens to experts and the
// combination of the results. Schedules read this and not the node's kind. A layer has any number of nodes at
// each place, in this order.
enum class Place : uint8_t { kBefore, kDispatch, kInner, kCombine, kAfter };
inline constexpr int kNumPlaces = 5;

// A piece of the model that runs on one stream.
struct Node {
  std::string name;  // "layers.3.attention"
  std::string kind;  // the name of its code, which only model/ reads: "attention"
  Place place = Place::kBefore;
  int layer = -1;  // -1 if it is not in a layer
  int chunk = 0;  // which of the rank's pieces of the model it belongs to; nodes of one piece are consecutive
  std::string
      compute;  // the type of its matrix products ("bf16", "bf16 grouped"), a key of DeviceProfile::compute
  std::string stream = "compute";
  // The process group and purpose of a node that communicates ("ep", "dispatch"); empty otherwise.
  std::string group;
  std::string purpose;
  Access forward;
  // The input half is everything in the backward that is not in the weight half. The weight half only writes
  // gradients of parameters and may run later. The input half may write values that only the weight half
  // reads.
  Access backward_input;
  Access backward_weight;   // empty if the node has no weight half
  bool recomputes = false;  // whether its forward can run again, for some or all of forward.writes
  // By value in forward.writes: the FLOPs of the forward that only this value needs, which a recompute
  // without the value saves. Empty: none.
  std::vector<double> write_flops;
};

// Whether the node has a backward. A node that only moves sizes has none, nor one whose forward already
// writes the gradients.
inline bool HasBackward(const Node& node) {
  const Access& access = node.backward_input;
  return !access.gradient_reads.empty() || !access.gradient_writes.empty() ||
         !access.parameter_gradients.empty() || !access.reads.empty();
}

inline bool HasWeightHalf(const Node& node) { return !node.backward_weight.parameter_gradients.empty(); }

// The data parallel group that a unit is sharded over.
enum class UnitGroup : uint8_t { kDense, kExpert };

// `expert` if `group` is kExpert, otherwise `dense`.
template <typename T>
const T& OfGroup(UnitGroup group, const T& dense, const T& expert) {
  return group == UnitGroup::kExpert ? expert : dense;
}

// Bytes of one element, by role.
struct UnitPrecision {
  int main = 4;       // main weights, moments, accumulator, and the input of norms
  int compute = 4;    // published shard and gathered parameters; if equal to main, nothing is published
  int transport = 4;  // contribution and staging
  bool operator==(const UnitPrecision&) const = default;
};

// The parts of a unit whose elements have the same types. They form a flat element space of their own, which
// is cut into shards by itself. A buffer of the unit is a concatenation with one section for each of its
// classes.
struct UnitClass {
  UnitPrecision precision;
  int64_t elements = 0;  // of its flat element space, gaps included
  bool operator==(const UnitClass&) const = default;
};

// The elements [begin, end) that the parameters of one part span in the flat element space of its class.
struct PartRange {
  std::string name;  // "attention"
  int64_t begin = 0;
  int64_t end = 0;
  int of_class = 0;  // index in Unit::classes
};

// Parameters that are gathered and released together.
struct Unit {
  std::string name;  // "embedding", "layers.3", "layers.3.experts", "head"
  int layer = -1;    // the dense and the expert unit of a layer have the same number; embedding and head have
                     // numbers of their own
  UnitGroup group = UnitGroup::kDense;
  bool frozen = false;  // has no gradient and no optimizer state
  std::vector<UnitClass> classes;
  // Ordered by class, and within a class ascending and disjoint. Collectives also move the gaps between
  // parts, which nothing reads.
  std::vector<PartRange> parts;
};

// A value that another stage produces or reads. Its gradient goes the other way.
struct Boundary {
  ValueId value = -1;
  int stage = -1;  // the other stage
  int chunk = 0;   // the chunk of this stage that makes or reads the value
};

// One stage of a model.
struct Outline {
  int stage = 0;
  std::vector<Node> nodes;  // in the order of one microbatch's forward
  std::vector<Value> values;
  std::vector<Unit> units;
  std::vector<NodeState> states;
  ValueId batch = -1;  // written by LoadBatch: tokens [B, S + 1] int64; -1 if this stage reads none
  // Values of doubles that nodes of this stage write for every microbatch and the host reads: the loss, and
  // routers' statistics about experts.
  std::vector<ValueId> losses;
  std::vector<Boundary> received;
  std::vector<Boundary> sent;
};

// The units that are not frozen.
inline std::vector<UnitId> TrainedUnits(const Outline& outline) {
  std::vector<UnitId> trained;
  for (UnitId unit = 0; unit < static_cast<int>(outline.units.size()); ++unit) {
    if (!outline.units[unit].frozen) {
      trained.push_back(unit);
    }
  }
  return trained;
}

// The number of pieces of the model (chunks) that a rank of this stage has: Node::chunk is less than this.
inline int NumChunks(const Outline& outline) {
  return outline.nodes.empty() ? 1 : outline.nodes.back().chunk + 1;
}

}  // namespace tandem::schedules
