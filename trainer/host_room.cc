// SPDX-License-Identifier: Apache-2.0
#include "trainer/host_room.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/exchange.h"
#include "device/device.h"
#include "plan/memory_plan.h"
#include "platform/control_groups.h"

namespace tandem::trainer {

std::string ToText(const HostRoom& room) {
  return nlohmann::json{{"host", room.host}, {"wanted", room.wanted}, {"available", room.available}}.dump();
}

std::string WhyNoRoom(const std::vector<std::string>& texts) {
  constexpr double kGiB = 1 << 30;
  std::map<std::string, HostRoom> machines;
  for (const std::string& text : texts) {
    const auto json = nlohmann::json::parse(text);
    const auto available = json.at("available").get<int64_t>();
    HostRoom& machine =
        machines.try_emplace(json.at("host").get<std::string>(), HostRoom{.available = available})
            .first->second;
    machine.wanted += json.at("wanted").get<int64_t>();
    machine.available = std::min(machine.available, available);
  }
  for (const auto& [host, machine] : machines) {
    if (machine.wanted > plan::MostHostBytes(machine.available)) {
      return absl::StrFormat(
          "machine %s has %.2f GiB of memory available, and may give 90 %% of it to its ranks, which take "
          "%.2f GiB with the copies that checkpoints are written from; give it more memory, or fewer ranks",
          host, static_cast<double>(machine.available) / kGiB, static_cast<double>(machine.wanted) / kGiB);
    }
  }
  return "";
}

SharedRoom ReserveTogether(comm::Communicator& comm, device::Device& device, const std::string& host,
                           int64_t wanted, int64_t bytes) {
  SharedRoom room;
  // All ranks look before one of them takes any.
  room.refused = WhyNoRoom(checkpoint::ExchangeTexts(
      comm, ToText({.host = host, .wanted = wanted, .available = platform::AvailableMemoryBytes()})));
  if (!room.refused.empty()) {
    return room;
  }
  std::string error;
  try {
    room.region = device.ReserveHost(bytes);
  } catch (const device::OutOfMemory& out) {
    error = absl::StrCat("machine ", host, ": ", out.what());
  }
  for (const std::string& of_rank : checkpoint::ExchangeTexts(comm, error)) {
    room.refused = room.refused.empty() ? of_rank : room.refused;
  }
  if (!room.refused.empty()) {
    room.region.reset();
  }
  return room;
}

}  // namespace tandem::trainer
