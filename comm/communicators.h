// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator_factory.h"

namespace tandem::comm {

// A process group and one purpose that it is used for. Each use has its own communicator, and so its own
// stream.
struct CommunicatorUse {
  std::string group;    // "dp_cp"
  std::string purpose;  // "reduce"
  bool window = false;  // its collectives need the arena to be registered
};

// The communicators that a rank's programs need, by group and purpose.
class Communicators {
 public:
  // Collective: every member of a group makes its communicators in the order of `uses`, but clones of other
  // groups last. The first use of a group joins it, or clones a live communicator if the group is a clone of
  // another group in `uses`; further uses clone the first. Throws std::invalid_argument if this rank is not
  // in a group or a use is listed twice, and CommError.
  Communicators(CommunicatorFactory& factory, const std::vector<Membership>& groups,
                const std::vector<CommunicatorUse>& uses);
  ~Communicators();
  Communicators(Communicators&&) noexcept;

  size_t size() const { return communicators_.size(); }
  Communicator& operator[](size_t use) const { return *communicators_.at(use); }

  // All of them, in the order of the uses.
  std::vector<Communicator*> all() const;

  // Collective: registers all of `region` with every communicator that needs a window. Returns a line with
  // the reason for each refusal; collectives of those communicators copy through their own memory.
  std::vector<std::string> RegisterWindows(const std::shared_ptr<const device::Region>& region);

  void Abort();  // aborts all communicators; callable from any thread

 private:
  std::vector<CommunicatorUse> uses_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace tandem::comm
