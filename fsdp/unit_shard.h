// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "fsdp/class_shard.h"
#include "fsdp/layout.h"
#include "fsdp/optimizer.h"
#include "fsdp/unit_mesh.h"

namespace tandem::fsdp {

// One class of a unit: parameters with the same element types, in a flat element space of their own.
struct UnitClass {
  Layout layout;
  ClassTypes types;  // UnitShard sets `publishes`
};

// The operations on one unit, on one rank of a mesh; class_shard.h says what each does. A buffer of the unit
// is the concatenation of its classes' buffers, in their order; the two moments have a buffer each. A bound
// call makes one call for each class, one after the other on the current stream. Shards are multiples of the
// granule, so the elements of each class begin at a multiple of 128 bytes. A class without elements has no
// memory in any buffer.
class UnitShard {
 public:
  // All classes are frozen, or none is. `device` and `kernels` are of the same kind; they must outlive this
  // object and everything that it binds. Throws std::invalid_argument with the unit's name, as the Bind
  // functions do.
  UnitShard(std::string name, std::vector<UnitClass> classes, const UnitMesh& mesh, device::Device& device,
            const ShardKernels& kernels);

  const std::string& name() const { return name_; }
  const std::vector<ClassShard>& classes() const { return classes_; }  // those that have elements

  // Cuts the weights and moments by class.
  std::vector<StateMemory> ByClass(const StateMemory& state) const;

  // Cuts the norm terms by class.
  std::vector<device::Memory> NormTermsByClass(device::Memory norm_terms) const;

  // `inits` has one element for each parameter of the layouts, class by class.
  void Initialize(uint64_t seed, const std::vector<ParameterInit>& inits, const StateMemory& state) const;
  void Publish(const StateMemory& state) const;
  BoundCall BindUnshard(comm::Communicator& inner, device::Memory shard, device::Memory gathered) const;
  BoundCall BindUnshardOuter(comm::Communicator& outer, device::Memory piece, device::Memory shard) const;
  BoundCall BindAccumulate(device::Memory contribution, device::Memory full_gradient, bool add) const;
  BoundCall BindReduceGradients(comm::Communicator* inner, const ReduceMemory& memory, bool add) const;
  BoundCall BindReduceOuter(comm::Communicator& outer, const ReduceOuterMemory& memory) const;
  BoundCall BindOptimizerStep(const OptimizerMemory& memory, const AdamWConfig& config) const;

 private:
  // Returns the part of a buffer of the unit that is class i's buffer, `role`; no memory if there is none.
  device::Memory Part(size_t i, const char* what, device::Memory memory, int64_t ClassBytes::*role) const;

  // Binds a call for each class; the result makes them in order.
  BoundCall BindEach(const std::function<BoundCall(size_t i)>& bind) const;

  std::string name_;
  std::vector<ClassShard> classes_;
};

}  // namespace tandem::fsdp
