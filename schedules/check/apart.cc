// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "schedules/check/rules.h"
#include "schedules/check/violation.h"
#include "schedules/program/live_ranges.h"

namespace tandem::schedules {
namespace {

class ApartRule {
 public:
  ApartRule(const Outline& outline, const Program& program, const RunClocks& clocks)
      : outline_(outline), program_(program), clocks_(clocks), lives_(clocks, program) {}

  absl::Status Run() {
    std::vector<BufferId> locals;
    for (BufferId b = 0; b < static_cast<int>(program_.buffers.size()); ++b) {
      if (program_.buffers[b].life != Life::kLocal) {
        TANDEM_RETURN_IF_ERROR(Place(b));
      } else if (lives_.first(b) >= 0) {
        locals.push_back(b);
      }
    }
    // A buffer that is before another is also issued before it.
    std::stable_sort(locals.begin(), locals.end(),
                     [&](BufferId a, BufferId b) { return lives_.first(a) < lives_.first(b); });
    for (const BufferId b : locals) {
      TANDEM_RETURN_IF_ERROR(Place(b));
    }
    return absl::OkStatus();
  }

 private:
  struct Owner {
    int64_t end = 0;
    BufferId buffer = -1;
  };

  // Makes the buffer the owner of its bytes, after comparing it with each owner before it.
  absl::Status Place(BufferId b) {
    const int64_t begin = program_.buffers[b].address;
    const int64_t end = begin + ExtentOf(program_.buffers[b]);
    if (begin == end) {
      return absl::OkStatus();
    }
    std::map<int64_t, Owner>& owners = IsHost(program_.buffers[b].kind) ? host_ : arena_;
    auto owner = owners.lower_bound(begin);
    if (owner != owners.begin() && std::prev(owner)->second.end > begin) {
      --owner;
    }
    while (owner != owners.end() && owner->first < end) {
      if (!AreLocal(owner->second.buffer, b) || !lives_.Before(owner->second.buffer, b)) {
        return Together(owner->second.buffer, b);
      }
      const int64_t owner_begin = owner->first;
      const Owner old = owner->second;
      owner = owners.erase(owner);
      if (owner_begin < begin) {
        owners.emplace(owner_begin, Owner{begin, old.buffer});
      }
      if (old.end > end) {
        owner = owners.emplace(end, Owner{old.end, old.buffer}).first;
      }
    }
    owners.emplace(begin, Owner{end, b});
    return absl::OkStatus();
  }

  bool AreLocal(BufferId a, BufferId b) const {
    return program_.buffers[a].life == Life::kLocal && program_.buffers[b].life == Life::kLocal;
  }

  absl::Status Together(BufferId a, BufferId b) const {
    const std::string share =
        absl::StrCat(program_.buffers[a].name, " and ", program_.buffers[b].name, " share bytes");
    if (!AreLocal(a, b)) {
      return Violation("apart", program_, absl::StrCat(share, ", and one of them is persistent"));
    }
    // The pair that is not ordered: an access of b that does not know the last of a on some stream.
    for (int i = lives_.first(b); i < static_cast<int>(program_.instructions.size()); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const auto touches = [&](const Operand& operand) { return operand.buffer == b; };
      if (std::none_of(instruction.operands.begin(), instruction.operands.end(), touches)) {
        continue;
      }
      for (int s = 0; s < clocks_.num_streams(); ++s) {
        const int last = lives_.Last(a)[s];
        const int known = clocks_.End(i)[s] - (s == instruction.stream ? 1 : 0);
        if (last > known) {
          const int other = clocks_.At(s, last);
          return Violation(
              "apart", program_,
              absl::StrCat(share, ", and ", Describe(outline_, program_, i), ", which uses the second, ",
                           other == i ? "uses both"
                           : other > i
                               ? absl::StrCat("comes before ", Describe(outline_, program_, other),
                                              ", which still uses the first")
                               : absl::StrCat("does not wait for ", Describe(outline_, program_, other),
                                              ", which uses the first")));
        }
      }
    }
    return Violation("apart", program_, share);
  }

  const Outline& outline_;
  const Program& program_;
  const RunClocks& clocks_;
  const LiveRanges lives_;
  std::map<int64_t, Owner> arena_;  // by begin
  std::map<int64_t, Owner> host_;
};

}  // namespace

absl::Status CheckApart(const Outline& outline, const Program& program, const RunClocks& clocks) {
  return ApartRule(outline, program, clocks).Run();
}

}  // namespace tandem::schedules
