// SPDX-License-Identifier: Apache-2.0
#include "worker/controller_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/steady_condition.h"
#include "platform/thread.h"
#include "tandem/v1/workers.grpc.pb.h"
#include "tls/client_tls.h"
#include "worker/cut_texts.h"
#include "worker/mailbox.h"

namespace tandem::worker {
namespace {

constexpr size_t kMostTextBytes = 8 << 10;  // half of what the controller accepts
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(200);
constexpr absl::Duration kLongestBackoff = absl::Seconds(2);
// Each attempt writes a line into two logs. A controller whose certificates have been mended is still found
// well before it gives up the worker's jobs.
constexpr absl::Duration kLongestOfRefused = absl::Seconds(5);
constexpr absl::Duration kLogAway = absl::Seconds(2);  // then twice as long, and so on
constexpr absl::Duration kLongestDial = absl::Seconds(20);

// Makes a connection of its own, which is dialled at the first call. It is not used again after it broke:
// gRPC's timer for the next dial stands still after the wall clock was set back, until the clock is where it
// was. (If gRPC is built on Abseil's mutexes, as Debian's is, it sleeps until a time of that clock.)
std::shared_ptr<grpc::Channel> Dial(const ControllerAddress& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
              static_cast<int>(absl::ToInt64Milliseconds(address.keepalive_time)));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
              static_cast<int>(absl::ToInt64Milliseconds(address.keepalive_timeout)));
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(kLongestDial)));
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(64 << 20);
  if (address.tls == nullptr) {
    return grpc::CreateCustomChannel(address.target, grpc::InsecureChannelCredentials(), args);
  }
  const tls::TlsTexts texts = address.tls->Current();
  if (const std::string& name = address.tls->files().server_name; !name.empty()) {
    args.SetSslTargetNameOverride(name);
  }
  return grpc::CreateCustomChannel(address.target,
                                   grpc::SslCredentials({texts.ca, texts.key, texts.certificate}), args);
}

// The pauses between attempts grow with each failure. Each is random, so that workers do not return all at
// once.
class Backoff {
 public:
  explicit Backoff(platform::Random& random) : random_(random) {}
  void Reset() { next_ = kFirstBackoff; }
  absl::Duration Next(absl::Duration longest = kLongestBackoff) {
    const double part = static_cast<double>(random_.Next64() >> 11) / static_cast<double>(uint64_t{1} << 53);
    const absl::Duration pause = std::min(next_, longest) * part;
    next_ = std::min(next_ * 2, longest);
    return pause;
  }

 private:
  platform::Random& random_;
  absl::Duration next_ = kFirstBackoff;
};

}  // namespace

// A Session stream over a connection of its own. The thread that opens it reads, and another one writes.
class ControllerClient::Session {
 public:
  explicit Session(const ControllerAddress& address)
      : channel_(Dial(address)), stub_(v1::Workers::NewStub(channel_)) {}

  ~Session() {
    context_.TryCancel();
    outbox_.Close();
    Opened();
    if (writer_.joinable()) {
      writer_.join();
    }
  }

  // Dials. Returns false if no controller answers within kLongestDial, if it was cancelled, or if no thread
  // can be started for writing; then only Finish may follow.
  bool Open() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::StatusOr<std::thread> writer = platform::StartThread([this] { Write(); });
    if (!writer.ok()) {
      no_writer_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(writer.status().message()));
      return false;
    }
    writer_ = *std::move(writer);
    stream_ = stub_->Session(&context_);
    Opened();
    return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  }

  // A message before the hello is dropped: it belongs to the session before, of whose end the sender does
  // not know yet.
  void Send(v1::WorkerMessage message) {
    greeted_ = greeted_ || message.has_hello();
    if (greeted_) {
      outbox_.Put(std::move(message));
    }
  }
  bool Receive(v1::ControllerMessage& message) { return stream_->Read(&message); }
  void Cancel() { context_.TryCancel(); }

  // Ends sending after the messages that were put. Waits, for `limit` at most, until the controller has read
  // them all and ended the stream.
  void Flush(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_) {
    outbox_.Close();
    const absl::MutexLock lock(&mu_);
    changed_.AwaitFor(mu_, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ended_; });
  }

  // Call after Receive has returned false.
  grpc::Status Finish() ABSL_LOCKS_EXCLUDED(mu_) {
    outbox_.Close();
    if (stream_ == nullptr) {
      return no_writer_;
    }
    const grpc::Status status = stream_->Finish();
    const absl::MutexLock lock(&mu_);
    ended_ = true;
    changed_.NotifyAll();
    return status;
  }

 private:
  void Opened() ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::MutexLock lock(&mu_);
    opened_ = true;
    changed_.NotifyAll();
  }

  void Write() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      const auto opened = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return opened_; };
      const absl::MutexLock lock(&mu_);
      if (!changed_.AwaitFor(mu_, kLongestDial, opened)) {
        context_.TryCancel();
      }
      changed_.AwaitFor(mu_, absl::InfiniteDuration(), opened);
    }
    if (stream_ == nullptr) {
      return;  // the session was ended before it was opened
    }
    while (const std::optional<v1::WorkerMessage> message = outbox_.Take(absl::InfiniteDuration())) {
      if (!stream_->Write(*message)) {
        return;
      }
    }
    stream_->WritesDone();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Workers::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::ControllerMessage>> stream_;  // by Open
  Mailbox<v1::WorkerMessage> outbox_;
  grpc::Status no_writer_;  // why Open made no stream
  bool greeted_ = false;    // used by the thread that sends
  absl::Mutex mu_;
  platform::SteadyCondition changed_;         // of what follows
  bool opened_ ABSL_GUARDED_BY(mu_) = false;  // Open is over
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread writer_;
};

// A Reports stream: the calling thread sends batches, another one receives acknowledgements.
class ControllerClient::ReportStream {
 public:
  ReportStream(const std::shared_ptr<grpc::Channel>& channel, ReportQueue& reports)
      : reports_(reports), stub_(v1::Workers::NewStub(channel)) {}

  // Returns when the stream breaks or is cancelled.
  grpc::Status Run() {
    const auto stream = stub_->Reports(&context_);
    reports_.Restart();
    absl::StatusOr<std::thread> reader = platform::StartThread([&] {
      v1::ReportAck ack;
      while (stream->Read(&ack)) {
        reports_.Acked(ack);
      }
      reports_.Wake();  // the writer may be waiting for reports
    });
    if (!reader.ok()) {
      context_.TryCancel();
      stream->Finish();
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(reader.status().message()));
    }
    while (const std::optional<v1::ReportBatch> batch = reports_.Next()) {
      if (!stream->Write(*batch)) {
        break;
      }
    }
    context_.TryCancel();
    reader->join();
    return stream->Finish();
  }

  void Cancel() { context_.TryCancel(); }

 private:
  ReportQueue& reports_;
  const std::unique_ptr<v1::Workers::Stub> stub_;
  grpc::ClientContext context_;
};

ControllerClient::ControllerClient(const ControllerAddress& address, platform::Random& random,
                                   ReportQueue& reports, Sink sink)
    : random_(random),
      reports_(reports),
      sink_(std::move(sink)),
      address_(address),
      bulk_channel_(Dial(address)) {
  sessions_thread_ = std::thread([this] { RunSessions(); });
  reports_thread_ = std::thread([this] { RunReports(); });
}

ControllerClient::~ControllerClient() { Stop(absl::ZeroDuration()); }

void ControllerClient::Send(v1::WorkerMessage message) {
  CutTexts(message, kMostTextBytes);
  const absl::MutexLock lock(&mu_);
  if (session_) {
    session_->Send(std::move(message));
  }
}

void ControllerClient::Drop() {
  const absl::MutexLock lock(&mu_);
  if (session_) {
    session_->Cancel();
  }
}

void ControllerClient::Stop(absl::Duration limit) {
  std::shared_ptr<Session> session;
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
    if (connected_) {
      session = session_;
    }
    changed_.NotifyAll();
  }
  if (session && limit > absl::ZeroDuration()) {
    session->Flush(limit);
  }
  session.reset();
  {
    const absl::MutexLock lock(&mu_);
    if (session_) {
      session_->Cancel();
    }
    if (report_stream_) {
      report_stream_->Cancel();
    }
  }
  reports_.Wake();
  if (sessions_thread_.joinable()) {
    sessions_thread_.join();
  }
  if (reports_thread_.joinable()) {
    reports_thread_.join();
  }
}

std::shared_ptr<grpc::Channel> ControllerClient::bulk_channel() const {
  const absl::MutexLock lock(&mu_);
  return bulk_channel_;
}

bool ControllerClient::stopping() const {
  const absl::MutexLock lock(&mu_);
  return stopping_;
}

bool ControllerClient::Pause(absl::Duration pause) {
  const absl::MutexLock lock(&mu_);
  return !changed_.AwaitFor(mu_, pause, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; });
}

std::shared_ptr<ControllerClient::Session> ControllerClient::OpenSession(Away& away) {
  // Found for each session, because the route may have changed, as a laptop's does; and before the session
  // is opened, because a name service may take longer than the controller waits for the hello.
  const absl::StatusOr<std::string> data_address =
      address_.data_address.empty() ? address_.local_address(address_.target) : address_.data_address;
  auto session = std::make_shared<Session>(address_);
  {
    const absl::MutexLock lock(&mu_);
    if (stopping_) {
      return nullptr;
    }
    session_ = session;
  }
  const bool there = session->Open();
  if (there && data_address.ok()) {
    {
      const absl::MutexLock lock(&mu_);
      connected_ = true;
      changed_.NotifyAll();
    }
    sink_(Connected{*data_address});
    return session;
  }
  {
    const absl::MutexLock lock(&mu_);
    session_.reset();
  }
  session->Cancel();
  const grpc::Status status = session->Finish();
  if (there) {
    platform::Log(platform::LogLevel::kWarning,
                  "cannot say at which address other workers reach this one; name it with --data-address",
                  {{"error", std::string(data_address.status().message())}});
  } else if (platform::SteadyClock().Now() - away.since >= away.log_after) {
    platform::Log(platform::LogLevel::kWarning, "the controller cannot be reached; retrying",
                  {{"address", address_.target},
                   {"for", absl::FormatDuration(away.log_after)},
                   {"error", status.error_message()}});
    away.log_after = away.log_after * 2;
  }
  return nullptr;
}

grpc::Status ControllerClient::ReadSession(Session& session) {
  v1::ControllerMessage message;
  while (session.Receive(message)) {
    sink_(FromController{message});
  }
  {
    const absl::MutexLock lock(&mu_);
    session_.reset();
    connected_ = false;
    if (report_stream_) {
      report_stream_->Cancel();
    }
  }
  return session.Finish();
}

void ControllerClient::RunSessions() {
  Backoff backoff(random_);
  Away away{.since = platform::SteadyClock().Now(), .log_after = kLogAway};
  while (!stopping()) {
    std::shared_ptr<Session> session = OpenSession(away);
    if (session == nullptr) {
      if (!Pause(backoff.Next())) {
        return;
      }
      continue;
    }
    const absl::Time begin = platform::SteadyClock().Now();
    const grpc::Status status = ReadSession(*session);
    session.reset();
    away = {.since = platform::SteadyClock().Now(), .log_after = kLogAway};
    // The pause keeps growing if the controller refuses this worker at once.
    if (away.since - begin > kLongestBackoff) {
      backoff.Reset();
    }
    sink_(Disconnected{});
    // The certificate that was refused, of either side, may be replaced while this daemon runs.
    const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
                         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
    const absl::Duration pause = backoff.Next(refused ? kLongestOfRefused : kLongestBackoff);
    if (!stopping()) {
      platform::Log(platform::LogLevel::kWarning, "the session with the controller ended; reconnecting",
                    {{"error", status.error_message()}});
    }
    if (!Pause(pause)) {
      return;
    }
  }
}

void ControllerClient::RunReports() {
  Backoff backoff(random_);
  while (true) {
    std::shared_ptr<ReportStream> stream;
    {
      const absl::MutexLock lock(&mu_);
      changed_.AwaitFor(mu_, absl::InfiniteDuration(),
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || connected_; });
      if (stopping_) {
        return;
      }
      bulk_channel_ = Dial(address_);
      stream = std::make_shared<ReportStream>(bulk_channel_, reports_);
      report_stream_ = stream;
    }
    const absl::Time begin = platform::SteadyClock().Now();
    const grpc::Status status = stream->Run();
    bool alone = false;  // the report stream alone; the session goes on
    {
      const absl::MutexLock lock(&mu_);
      report_stream_.reset();
      alone = connected_ && !stopping_;
    }
    if (alone) {
      platform::Log(platform::LogLevel::kWarning,
                    "the stream of reports ended; unacknowledged reports are resent",
                    {{"error", status.error_message()}});
    }
    if (platform::SteadyClock().Now() - begin > kLongestBackoff) {
      backoff.Reset();
    }
    if (!Pause(backoff.Next())) {
      return;
    }
  }
}

}  // namespace tandem::worker
