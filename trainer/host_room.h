// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::comm {
class Communicator;
}
namespace tandem::device {
class Device;
class Region;
}  // namespace tandem::device
namespace tandem::trainer {

// What a rank wants of its machine's memory beside what it has, and what the machine has left.
struct HostRoom {
  std::string host;
  int64_t wanted = 0;     // bytes
  int64_t available = 0;  // bytes, before any of the ranks has taken what it wants
};

std::string ToText(const HostRoom& room);

// texts: ToText of every rank's. Why a machine has no room for all that its ranks want, with a tenth of what
// it has left to spare, naming the first such machine; empty: all have.
std::string WhyNoRoom(const std::vector<std::string>& texts);

// Pinned memory of the host, or why no rank has it.
struct SharedRoom {
  std::shared_ptr<device::Region> region;
  std::string refused;
};

// Collective: `bytes` of this rank's machine, `host`, if every machine has room for what all its ranks want
// and every rank gets them, else null on all. Throws CommError.
SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes);

}  // namespace tandem::trainer
