// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::schedules {

// What a schedule needs to know of one stage of a model, and no more: nodes, values, units, sizes, FLOPs.
// Torch-free; model/ writes it from a configuration.

using NodeId = int;
using UnitId = int;
using ValueId = int;
using StateId = int;

// (expected, bound), because routing is dynamic. Equal where sizes are fixed.
struct Bytes {
  int64_t expected = 0;
  int64_t bound = 0;
  bool operator==(const Bytes&) const = default;
};

inline Bytes Fixed(int64_t bytes) { return {bytes, bytes}; }

enum class ValueKind : uint8_t {
  kActivation,
  kAllToAll,  // lives in memory that a communicator registered
  kHost,      // read by the issuing thread: split sizes
};

// Data that one node produces and others read, once per microbatch. Its gradient, where it has one,
// is a buffer of its own with its own life.
struct Value {
  std::string name;  // "layers.3.mlp.hidden"
  ValueKind kind = ValueKind::kActivation;
  Bytes bytes;
  Bytes gradient_bytes;  // zero: no gradient
};

// What a node keeps from one microbatch to the next and from one step to the next: the bias of an expert
// router, a counter. Persistent, on every rank.
struct NodeState {
  std::string name;
  int64_t bytes = 0;
  // The state in which passes count what this state is updated from. Once per step, with the optimizer steps,
  // this state is updated from the counters of all ranks, which become zero. -1: no counter; only passes
  // change this state.
  StateId counter = -1;
};

// A run of consecutive parameters of a unit whose gradients one node writes together.
struct UnitPart {
  UnitId unit = -1;
  int part = -1;
  bool operator==(const UnitPart&) const = default;
};

// What one pass of a node (forward, or a half of the backward) touches. The order of each list is
// the order of the instruction's operands (program.h), which model/ names.
struct Access {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::vector<ValueId> gradient_reads;
  std::vector<ValueId> gradient_writes;  // the first write of a microbatch overwrites, later ones add
  std::vector<UnitPart> parameters;
  std::vector<UnitPart> parameter_gradients;
  // Its code adds to each of them more than once: like a sum of several passes, it needs the main type.
  bool sums_parameter_gradients = false;
  std::vector<StateId> state_reads;
  std::vector<StateId> state_adds;
  // States that the pass continues: it reads what the previous microbatch of the run left, and overwrites it.
  // The first microbatch of a run, and every microbatch of a validation, finds zeros.
  std::vector<StateId> state_carries;
  bool reads_inputs = false;  // reads the run's inputs: the step number, from which random keys are made
  Bytes scratch;              // alive while the instruction runs
  double flops = 0;
  double score_flops = 0;  // the part of `flops` that attention's own kernel computes, at a rate of its own
  double bytes_moved = 0;  // in the device's memory
  double row_bytes = 0;    // the part of them that kernels between the products move
  double link_bytes = 0;   // of a node that communicates: the buffer that its collective moves
};

// Where a node is around the exchanges of its layer: what schedules read, whatever its kind. A layer has any
// number of nodes in each, in this order.
enum class Place : uint8_t { kBefore, kDispatch, kInner, kCombine, kAfter };
inline constexpr int kNumPlaces = 5;

// A piece of the model that runs on one stream.
struct Node {
  std::string name;  // "layers.3.attention"
  std::string kind;  // its code, which model/ names: "attention"; nothing here reads it
  Place place = Place::kBefore;
  int layer = -1;       // -1: not in a layer
  int chunk = 0;        // of the model's pieces on a rank: which of them; nodes of one follow each other
  std::string compute;  // the type of its FLOPs ("bf16", "bf16 grouped"), a key of DeviceProfile::compute
  std::string stream = "compute";
  // For a node that communicates: process group and purpose ("ep", "dispatch"); both empty otherwise.
  std::string group;
  std::string purpose;
  Access forward;
  // The input half is all of the backward that is not in the weight half, which writes gradients of
  // parameters alone and may come later. The input half may write values that only the weight half reads.
  Access backward_input;
  Access backward_weight;   // empty: the node has no such half
  bool recomputes = false;  // its forward can run again, for some of forward.writes or for all
  // For each of forward.writes: FLOPs of the forward that only this value needs; a recompute that leaves out
  // the value saves them. Empty: none.
  std::vector<double> write_flops;
};

// Whether the node has a backward: not if it only moves sizes, nor if its forward writes its gradients.
inline bool HasBackward(const Node& node) {
  const Access& access = node.backward_input;
  return !access.gradient_reads.empty() || !access.gradient_writes.empty() ||
         !access.parameter_gradients.empty() || !access.reads.empty();
}

inline bool HasWeightHalf(const Node& node) { return !node.backward_weight.parameter_gradients.empty(); }

// Which data parallel group a unit is sharded over.
enum class UnitGroup : uint8_t { kDense, kExpert };

// `expert` if `group` is kExpert, otherwise `dense`.
template <typename T>
const T& OfGroup(UnitGroup group, const T& dense, const T& expert) {
  return group == UnitGroup::kExpert ? expert : dense;
}

// Bytes of one element, by role.
struct UnitPrecision {
  int main = 4;       // main weights, moments, accumulator, and the input of norms
  int compute = 4;    // published shard and gathered parameters; equal to main: nothing is published
  int transport = 4;  // contribution and staging
  bool operator==(const UnitPrecision&) const = default;
};

// The parts of a unit whose elements have the same types: a flat element space of their own, which is cut
// into shards by itself. Each of the unit's buffers is those of its classes behind each other, class by
// class.
struct UnitClass {
  UnitPrecision precision;
  int64_t elements = 0;  // of its layout, gaps included
  bool operator==(const UnitClass&) const = default;
};

// Elements [begin, end) of the flat element space of its class that the parameters of one part span.
struct PartRange {
  std::string name;  // "attention"
  int64_t begin = 0;
  int64_t end = 0;
  int of_class = 0;  // index in Unit::classes
};

// Parameters that are gathered and given up together.
struct Unit {
  std::string name;  // "embedding", "layers.3", "layers.3.experts", "head"
  int layer = -1;    // the dense and the expert unit of a layer have the same number; embedding and head have
                     // numbers of their own
  UnitGroup group = UnitGroup::kDense;
  bool frozen = false;  // no gradient, no optimizer state
  std::vector<UnitClass> classes;
  // Class by class, and of a class ascending and disjoint; gaps between them are moved but never read.
  std::vector<PartRange> parts;
};

// A value that another stage produces or reads, with its gradient the other way.
struct Boundary {
  ValueId value = -1;
  int stage = -1;
  int chunk = 0;  // of this stage, which makes or reads it
};

// Nodes are in the forward order of one microbatch.
struct Outline {
  int stage = 0;
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Unit> units;
  std::vector<NodeState> states;
  ValueId batch = -1;  // written by LoadBatch: tokens [B, S + 1] int64; -1: this stage reads none
  // Doubles that nodes of this stage write and the host reads for every microbatch: the loss, and the
  // routers' statistics of experts.
  std::vector<ValueId> losses;
  std::vector<Boundary> received;
  std::vector<Boundary> sent;
};

// Pieces of the model that a rank of this stage has: its nodes' chunks are 0 to one less.
inline int NumChunks(const Outline& outline) {
  return outline.nodes.empty() ? 1 : outline.nodes.back().chunk + 1;
}

}  // namespace tandem::schedules
