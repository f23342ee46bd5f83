// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/config.h"
#include "model/precision.h"

namespace tandem::model {

// The parts of a unit with the same element types are a class (schedules/program/outline.h): those in what
// the unit computes in, and behind them those in the main type. Where the two are the same there is one
// class.
struct UnitClasses {
  std::vector<UnitTypes> types;  // of each class; classes are in the order of the unit's parts
  std::vector<int> of_part;      // UnitParameters::parts → class
};

UnitClasses ClassesOf(const UnitParameters& unit, const Precision& precision);

// The types of one part.
UnitTypes TypesOf(const UnitParameters& unit, int part, const Precision& precision);

}  // namespace tandem::model
