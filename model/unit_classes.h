// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/config.h"
#include "model/precision.h"

namespace tandem::model {

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
