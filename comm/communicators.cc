// SPDX-License-Identifier: Apache-2.0
#include "comm/communicators.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "parallel/group_options.h"

namespace tandem::comm {
namespace {

std::string Text(const CommunicatorUse& use) { return use.group + " " + use.purpose; }

}  // namespace

Communicators::Communicators(CommunicatorFactory& factory, const std::vector<Membership>& groups,
                             const std::vector<CommunicatorUse>& uses)
    : uses_(uses) {
  std::vector<Membership> joined;  // one for each use
  for (size_t i = 0; i < uses_.size(); ++i) {
    const CommunicatorUse& use = uses_[i];
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&use](const Membership& each) { return each.group == use.group; });
    if (group == groups.end()) {
      throw std::invalid_argument("communicator " + Text(use) + ": this rank is in no such group");
    }
    for (size_t j = 0; j < i; ++j) {
      if (uses_[j].group == use.group && uses_[j].purpose == use.purpose) {
        throw std::invalid_argument("communicator " + Text(use) + " is listed twice");
      }
    }
    joined.push_back(*group);
  }
  communicators_.resize(uses_.size());
  // If one cannot be made, the job ends, and all are aborted. To close them in order would mean to wait for
  // other ranks.
  absl::Cleanup abort = [this] { Abort(); };
  std::map<std::string, Communicator*> live;  // the first communicator of each group
  for (const bool clones : {false, true}) {   // a clone needs its parent, whichever is listed first
    for (size_t i = 0; i < uses_.size(); ++i) {
      Membership membership = joined[i];
      if (membership.clone_of.empty() == clones) {
        continue;
      }
      membership.ctas = parallel::BoundOfCtas(membership.options, uses_[i].purpose);
      const bool first = !live.contains(membership.group);
      if (!first) {
        membership.prefix += uses_[i].purpose + "/";  // keys of its own, in case no clone is made
      }
      const auto parent = live.find(first ? membership.clone_of : membership.group);
      communicators_[i] = factory.Make(membership, parent == live.end() ? nullptr : parent->second);
      live.emplace(membership.group, communicators_[i].get());
    }
  }
  std::move(abort).Cancel();
}

Communicators::~Communicators() = default;
Communicators::Communicators(Communicators&&) noexcept = default;

std::vector<Communicator*> Communicators::all() const {
  std::vector<Communicator*> all;
  for (const std::unique_ptr<Communicator>& each : communicators_) {
    all.push_back(each.get());
  }
  return all;
}

std::vector<std::string> Communicators::RegisterWindows(const std::shared_ptr<const device::Region>& region) {
  std::vector<std::string> refused;
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (!uses_[i].window) {
      continue;
    }
    const absl::Status status = communicators_[i]->RegisterWindow(region);
    if (!status.ok()) {
      refused.push_back("communicator " + Text(uses_[i]) + ": " + std::string(status.message()));
    }
  }
  return refused;
}

void Communicators::Abort() {
  for (const std::unique_ptr<Communicator>& each : communicators_) {
    if (each != nullptr) {  // null while the constructor makes them
      each->Abort();
    }
  }
}

}  // namespace tandem::comm
