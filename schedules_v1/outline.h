#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::schedules_v1 {

// What a schedule needs to know of a model, and no more: nodes, values, units, sizes, FLOPs.
// Torch-free; model/ writes it from a configuration.

using NodeId = int;
using UnitId = int;
using ValueId = int;

// (expected, bound), because routing is dynamic. Equal where sizes are fixed.
struct Bytes {
  int64_t expected = 0;
  int64_t bound = 0;
  bool operator==(const Bytes&) const = default;
};

enum class ValueKind : uint8_t {
  kActivation,
  kAllToAll,  // lives in memory that a communicator registered
  kHost,      // read by the issuing thread: split sizes
};

// Data that one node produces and others read, once per microbatch. Its gradient, where it has one,
// is a resource of its own with its own lifetime.
struct Value {
  std::string name;  // "layers.3.hidden"
  ValueKind kind = ValueKind::kActivation;
  Bytes bytes;
  Bytes gradient_bytes;  // zero: no gradient
};

// A run of consecutive items of a unit whose gradients one node writes together.
struct UnitPart {
  UnitId unit = -1;
  int part = -1;
  bool operator==(const UnitPart&) const = default;
};

// What one pass of a node (forward, backward, or a half of the backward) touches. The order of each list is
// the order in which the node's code gets the tensors (model/node.h).
struct Access {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::vector<ValueId> gradient_reads;
  std::vector<ValueId> gradient_writes;  // first write of a microbatch overwrites, later ones add
  std::vector<UnitPart> parameters;
  std::vector<UnitPart> parameter_gradients;
  Bytes scratch;  // of the arena, only while the instruction runs
  double flops = 0;
  double bytes_moved = 0;
};

enum class StreamKind : uint8_t { kCompute, kGather, kReduce, kDispatch, kSend };

enum class NodeKind : uint8_t {
  kEmbedding,
  kAttention,
  kRoute,
  kPermute,
  kDispatch,
  kExperts,
  kCombine,
  kFinish,
  kMlp,
  kMamba,
  kMtp,
  kHead,
};

// A piece of the model that runs on one stream.
struct Node {
  std::string name;  // "layers.3.attention"
  NodeKind kind = NodeKind::kMlp;
  int layer = -1;  // -1: not in a layer
  StreamKind stream = StreamKind::kCompute;
  Access forward;
  Access backward;  // whole; the halves below are empty where the node does not split
  bool splits_backward = false;
  Access backward_input;
  Access backward_weight;
};

// Parameters that are gathered and released together.
struct Unit {
  std::string name;                // "embedding", "layers.3", "head"
  std::vector<std::string> parts;  // "attention", "mlp"
  int64_t elements = 0;            // of its layout, gaps included
};

// Nodes are in the forward order of one microbatch.
struct Outline {
  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<Unit> units;
  ValueId batch = -1;  // written by LoadBatch: tokens [B, S + 1] int64
  ValueId loss = -1;   // written by the head: one element
};

}  // namespace tandem::schedules_v1
