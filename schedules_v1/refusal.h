#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "schedules_v1/outline.h"
#include "schedules_v1/program.h"

namespace tandem::schedules_v1 {

// How the checker's walks over one program word what they refuse: "train 12 (forward a mb 0) WHAT train 3
// (unshard layers.0 mb 0)REST". Both arguments outlive it.
class Refusal {
 public:
  Refusal(const Outline& outline, const Program& program) : outline_(outline), program_(program) {}

  // other: the second instruction; -1: there is none.
  absl::Status Of(int i, absl::string_view what, int other = -1, absl::string_view rest = "") const;
  absl::Status ByHygiene(absl::string_view hygiene_rule, int i, absl::string_view what, int other = -1,
                         absl::string_view rest = "") const;

 private:
  std::string Text(int i, absl::string_view what, int other, absl::string_view rest) const;

  const Outline& outline_;
  const Program& program_;
};

}  // namespace tandem::schedules_v1
