#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "device/arena.h"  // declares at::Tensor and c10::ScalarType
#include "model/config.h"
#include "model/decoder_shapes.h"
#include "model/node.h"

// How the nodes allocate and look at the tensors of a NodeCall. Private to model/.
namespace tandem::model {

c10::ScalarType ScalarTypeOf(ComputeType type);

// Allocates call.gradient_writes[index] unless it is there already.
void PrepareGradient(NodeCall& call, int index, const std::vector<int64_t>& shape, c10::ScalarType dtype,
                     device::Arena& arena);

void PrepareScratch(NodeCall& call, const ScratchLayout& layout, device::Arena& arena);

// One piece of the scratch memory, as a tensor.
at::Tensor Piece(const NodeCall& call, const ScratchLayout& layout, int piece,
                 std::initializer_list<int64_t> shape, c10::ScalarType dtype);

// `count` items, each a matrix, that lie without gaps (one block of the layout), as one matrix.
at::Tensor Block(const at::Tensor* items, int count);

// For a pass that a node does not have.
[[noreturn]] void RefusePass(const char* node, Pass pass);

}  // namespace tandem::model
