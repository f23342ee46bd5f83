// SPDX-License-Identifier: Apache-2.0
#include "model/unit_classes.h"

namespace tandem::model {

UnitTypes TypesOf(const UnitParameters& unit, int part, const Precision& precision) {
  const UnitTypes& types = precision.Of(unit.name);
  return unit.parts.at(part).main_type ? InMainType(types) : types;
}

UnitClasses ClassesOf(const UnitParameters& unit, const Precision& precision) {
  UnitClasses classes;
  for (int part = 0; part < static_cast<int>(unit.parts.size()); ++part) {
    const UnitTypes types = TypesOf(unit, part, precision);
    if (classes.types.empty() || classes.types.back() != types) {
      classes.types.push_back(types);
    }
    classes.of_part.push_back(static_cast<int>(classes.types.size()) - 1);
  }
  return classes;
}

}  // namespace tandem::model
