// SPDX-License-Identifier: Apache-2.0
#include "trainer/on_rank_zero.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "checkpoint/exchange.h"
#include "comm/communicator.h"
#include "trainer/failure.h"

namespace tandem::trainer {

std::string OnRankZero(comm::Communicator& comm, const std::function<std::string()>& decide) {
  std::string text;
  std::string error;   // empty: none
  std::string reason;  // of the user's error; empty: it is not the user's
  if (comm.rank() == 0) {
    try {
      text = decide();
    } catch (const UserError& user) {
      error = user.what();
      reason = user.reason;
    } catch (const std::exception& other) {  // the other ranks wait for this one, so they must learn of it
      error = other.what();
    }
  }
  const nlohmann::json mine = {{"text", text}, {"error", error}, {"reason", reason}};
  const nlohmann::json json = nlohmann::json::parse(
      checkpoint::TextOfRankZero(comm, mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  text = json.at("text").get<std::string>();
  error = json.at("error").get<std::string>();
  reason = json.at("reason").get<std::string>();
  if (error.empty()) {
    return text;
  }
  if (reason.empty()) {
    throw checkpoint::CheckpointError(error);
  }
  throw UserError(error, reason);
}

}  // namespace tandem::trainer
