// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/precision.h"

namespace tandem::model {

enum class Init : uint8_t {
  kNormal,  // normal with mean 0 and deviation initializer_range
  kOnes,
  kZeros,
  kUniform,     // uniform in ±1 / sqrt(conv_width) of a mixer
  kTimeSteps,   // softplus of the value is log-uniform in [0.001, 0.1]
  kDecayRates,  // exp of the value is uniform in [1, 16]
};

// One named tensor of a unit.
struct Parameter {
  std::string name;  // Hugging Face name
  std::vector<int64_t> shape;
  int part = 0;  // index in UnitParameters::parts
  // Parameters with the same block, if it is not -1, are consecutive, and one GEMM uses them as one matrix
  // (q, k, v; gate, up).
  int block = -1;
  Init init = Init::kNormal;
};

// The parameters that are gathered together, in layout order: part by part, and parts in the main type last.
struct UnitParameters {
  // The parameters whose gradients one node writes.
  struct Part {
    std::string name;
    bool main_type = false;  // stays in the main type, whatever the unit computes in
  };

  std::string name;
  int layer = -1;  // the same for all units of a layer; embedding and head have numbers after the layers'
  bool experts = false;  // sharded over the expert data parallel group
  std::vector<Part> parts;
  std::vector<Parameter> parameters;
  bool frozen = false;  // not trained
};

// The units of a rank: "embedding", "layers.0" (parts "attention" and "mlp"), ..., "head" (the final norm,
// and lm_head unless tied). The unit of a sparse layer has the parts "attention" and "router"; a second unit,
// "layers.0.experts", has the experts of config.moe.rank. The units of depths are "mtp.0", ...; if there are
// depths, the final norm is in "mtp.0" instead of "head".
std::vector<UnitParameters> DecoderUnits(const DecoderConfig& config);

// The parts of a unit that have the same element types form a class (schedules/program/outline.h). The class
// in the type that the unit computes in comes first, then the class in the main type. If the two types are
// equal, there is one class.
struct UnitClasses {
  std::vector<UnitTypes> types;  // of each class, in the order of the unit's parts
  std::vector<int> of_part;      // the class of each of UnitParameters::parts
};

UnitClasses ClassesOf(const UnitParameters& unit, const Precision& precision);

// The types of one part.
UnitTypes TypesOf(const UnitParameters& unit, int part, const Precision& precision);

}  // namespace tandem::model
