#include "schedules/check/apart.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/check/violation.h"

namespace tandem::schedules {
namespace {

class ApartRule {
 public:
  ApartRule(const Outline& outline, const Program& program, const RunClocks& clocks)
      : outline_(outline), program_(program), clocks_(clocks), num_streams_(clocks.num_streams()) {
    const size_t num_buffers = program.buffers.size();
    last_.assign(num_buffers * num_streams_, 0);
    known_.assign(num_buffers * num_streams_, std::numeric_limits<int>::max());
    first_.assign(num_buffers, -1);
    for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
      const int stream = program.instructions[i].stream;
      const absl::Span<const int> known = clocks.Known(i);
      for (const Operand& operand : program.instructions[i].operands) {
        const size_t row = static_cast<size_t>(operand.buffer) * num_streams_;
        last_[row + stream] = std::max(last_[row + stream], clocks.Place(i));
        for (int s = 0; s < num_streams_; ++s) {
          known_[row + s] = std::min(known_[row + s], s == stream ? known[s] - 1 : known[s]);
        }
        if (first_[operand.buffer] < 0) {
          first_[operand.buffer] = i;
        }
      }
    }
  }

  absl::Status Run() {
    std::vector<BufferId> locals;
    for (BufferId b = 0; b < static_cast<int>(program_.buffers.size()); ++b) {
      if (program_.buffers[b].life != Life::kLocal) {
        if (absl::Status status = Place(b); !status.ok()) {
          return status;
        }
      } else if (first_[b] >= 0) {
        locals.push_back(b);
      }
    }
    // A buffer that is before another is also issued before it.
    std::stable_sort(locals.begin(), locals.end(),
                     [&](BufferId a, BufferId b) { return first_[a] < first_[b]; });
    for (const BufferId b : locals) {
      if (absl::Status status = Place(b); !status.ok()) {
        return status;
      }
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
      if (!IsBefore(owner->second.buffer, b)) {
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

  bool IsBefore(BufferId a, BufferId b) const {
    if (program_.buffers[a].life != Life::kLocal || program_.buffers[b].life != Life::kLocal) {
      return false;
    }
    for (int s = 0; s < num_streams_; ++s) {
      if (last_[static_cast<size_t>(a) * num_streams_ + s] >
          known_[static_cast<size_t>(b) * num_streams_ + s]) {
        return false;
      }
    }
    return true;
  }

  absl::Status Together(BufferId a, BufferId b) const {
    const std::string share =
        absl::StrCat(program_.buffers[a].name, " and ", program_.buffers[b].name, " share bytes");
    if (program_.buffers[a].life != Life::kLocal || program_.buffers[b].life != Life::kLocal) {
      return Violation("apart", program_, absl::StrCat(share, ", and one of them is persistent"));
    }
    // The pair that is not ordered: an access of b that does not know the last of a on some stream.
    for (int i = first_[b]; i < static_cast<int>(program_.instructions.size()); ++i) {
      const Instruction& instruction = program_.instructions[i];
      const auto touches = [&](const Operand& operand) { return operand.buffer == b; };
      if (std::none_of(instruction.operands.begin(), instruction.operands.end(), touches)) {
        continue;
      }
      for (int s = 0; s < num_streams_; ++s) {
        const int last = last_[static_cast<size_t>(a) * num_streams_ + s];
        const int known = clocks_.Known(i)[s] - (s == instruction.stream ? 1 : 0);
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
  const int num_streams_;
  std::vector<int> last_;           // buffer x stream: the place of its last access
  std::vector<int> known_;          // buffer x stream: what all of its accesses know to have ended
  std::vector<int> first_;          // per buffer: its first access in issue order; -1: none
  std::map<int64_t, Owner> arena_;  // by begin
  std::map<int64_t, Owner> host_;
};

}  // namespace

absl::Status CheckApart(const Outline& outline, const Program& program, const RunClocks& clocks) {
  return ApartRule(outline, program, clocks).Run();
}

}  // namespace tandem::schedules
