// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster/connection.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "platform/clock.h"

namespace tandem::cli {
namespace {

constexpr int kTries = 3;
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kNextLook = absl::Milliseconds(250);  // between calls of `given_up`
// A connection to a controller that is busy or far away may take long.
constexpr int kLongestDialMs = 10'000;

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

Connection::Connection(Address address) : address_(std::move(address)) {
  // Errors reach the user through statuses; gRPC's own log would tear the display.
  gpr_set_log_function([](gpr_log_func_args*) {});
  Dial();
}

void Connection::Dial() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The norms of one step of a large model, with the table of its parameters, are beyond gRPC's 4 MiB.
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 64 << 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kLongestDialMs);
  // A second connection to the same address must not share the back-off of the first.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!absl::StartsWith(address_.target, "unix:")) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (address_.tls != nullptr) {
    credentials = grpc::SslCredentials({address_.tls->ca, address_.tls->key, address_.tls->certificate});
    if (!address_.files.server_name.empty()) {
      arguments.SetSslTargetNameOverride(address_.files.server_name);
    }
  }
  stub_ = v1::Jobs::NewStub(grpc::CreateCustomChannel(address_.target, credentials, arguments));
}

absl::Status Connection::Call(absl::Duration limit, const Once& once, const std::function<bool()>& given_up) {
  const platform::Clock& clock = platform::SteadyClock();
  const absl::Time deadline = clock.Now() + limit;
  const bool is_bounded = limit != absl::InfiniteDuration() || given_up != nullptr;
  absl::Duration pause = kFirstPause;
  for (int tries = 1;; ++tries, pause *= 2) {
    grpc::ClientContext context;
    bool began = false;
    std::future<grpc::Status> answer = std::async(is_bounded ? std::launch::async : std::launch::deferred,
                                                  [&] { return once(*stub_, context, began); });
    // A gRPC that is built on Abseil's mutexes, as Debian's is, waits for deadlines by the wall clock: they
    // pass an hour late if that clock is set back by an hour.
    bool is_late = false;
    const auto wait = [&] { return absl::ToChronoNanoseconds(std::min(deadline - clock.Now(), kNextLook)); };
    while (answer.wait_for(wait()) == std::future_status::timeout) {
      is_late = clock.Now() >= deadline;
      if (is_late || (given_up && given_up())) {
        context.TryCancel();
        break;
      }
    }
    const grpc::Status status = answer.get();
    if (is_late) {
      return absl::DeadlineExceededError("no answer in time");
    }
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) {
      return ToStatus(status);
    }
    Dial();
    if (began || tries == kTries || clock.Now() + pause >= deadline) {
      return ToStatus(status);
    }
    absl::SleepFor(pause);
  }
}

}  // namespace tandem::cli
