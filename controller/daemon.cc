// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "controller/engine.h"
#include "controller/http/http_server.h"
#include "controller/http/session_api.h"
#include "controller/http/site.h"
#include "controller/metrics/metrics.h"
#include "controller/metrics/progress_board.h"
#include "controller/rpc/access.h"
#include "controller/rpc/audit.h"
#include "controller/rpc/call_limits.h"
#include "controller/rpc/callers.h"
#include "controller/rpc/front_door.h"
#include "controller/rpc/jobs_service.h"
#include "controller/rpc/listener.h"
#include "controller/rpc/open_connections.h"
#include "controller/rpc/sessions.h"
#include "controller/rpc/sign_ins.h"
#include "controller/rpc/upload_relay.h"
#include "controller/rpc/watch_stream.h"
#include "controller/rpc/workers_service.h"
#include "controller/store/history.h"
#include "controller/store/store.h"
#include "platform/host.h"
#include "platform/log.h"
#include "platform/net_address.h"
#include "platform/rare_log.h"
#include "platform/status_macros.h"
#include "platform/steady_condition.h"
#include "proto/names.h"
#include "proto/reasons.h"
#include "proto/time.h"
#include "tls/server_tls.h"

namespace tandem::controller {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// The most that users' connections and messages may hold if workers have a server of their own.
constexpr size_t kMostBytesOfUsers = 256 << 20;
constexpr auto kShutdownGrace = std::chrono::milliseconds(300);

// The norms of one step of a large model, with the table of its parameters, are beyond gRPC's 4 MiB.
grpc::ChannelArguments ArgumentsOfPage() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return arguments;
}

// Also logs events that could not be stored for lack of room, so that the log has the reason of a loss.
void LogWorkersGone(const std::vector<v1::Event>& events) {
  for (const v1::Event& event : events) {
    if (event.has_worker() && !event.worker().connected()) {
      const bool left = event.reason() == proto::ReasonCode("WorkerLeft");
      platform::Log(left ? platform::LogLevel::kInfo : platform::LogLevel::kWarning,
                    left ? "worker left, as it was asked to" : "worker disconnected",
                    {{"worker", event.worker().worker_id()}, {"message", event.message()}});
    }
  }
}

void LogBadTlsFiles(const absl::Status& status) {
  platform::Log(platform::LogLevel::kError, "changed TLS files cannot be used; the previous ones stay in use",
                {{"error", std::string(status.message())}});
}

}  // namespace

struct Daemon::Parts {
  Parts(const platform::Clock& clock_in, platform::Random& random_in) : clock(clock_in), random(random_in) {}

  // The steps of a start, in their order. They fail only for reasons of this machine.
  absl::Status Start(const ServerOptions& options);
  // Opens the TLS files and the databases.
  absl::Status OpenState(const ServerOptions& options);
  // Makes all parts between the store and the network, and connects them. Nothing runs yet.
  void Assemble(const ServerOptions& options, State state);
  // Binds the addresses. Connections wait until Accept.
  absl::Status Listen(const ServerOptions& options);
  // A gRPC server for each door.
  absl::Status StartGrpc();
  // Serves metrics, and the page beside them.
  absl::Status ServeHttp(const ServerOptions& options);
  void Accept();

  // Four threads, by the disks for which they may wait. The ticks wait for none, so that heartbeats reach
  // workers while a disk stands still. The watch reads the list of revoked certificates and nothing else, so
  // that revoked callers and silent connections end in time. The certificates wait for their own files' disk
  // and for the store's, where they are published; the upkeep waits for the store's alone.
  void StartThreads(absl::Duration sweep_every);
  // Calls `act` in a thread of its own, again after each `every`, until the server stops.
  void Repeat(absl::Duration every, std::function<void()> act) ABSL_LOCKS_EXCLUDED(mu);
  // Sleeps. Returns false once the server stops.
  bool Sleep(absl::Duration time) ABSL_LOCKS_EXCLUDED(mu);
  void TickEngine();
  void KeepUp();
  void RefreshCertificate();
  // Reads a changed list of revoked certificates; ends their connections, and those without a call for too
  // long.
  void SweepConnections();
  void OnEvents(const std::vector<v1::Event>& events, const State& state);
  void OnNoRoom(const absl::Status& status);
  void OnRoomAgain();

  const platform::Clock& clock;
  platform::Random& random;
  // Declared in the order of construction. Each part uses only those before it, unless a comment says
  // otherwise.
  std::shared_ptr<tls::ServerTls> tls;  // null: TLS is off
  SignIns sign_ins{random, clock};
  Callers callers{random, sign_ins};
  Tally open_calls;  // bounds the memory that calls of one user may hold
  OpenConnections connections{{.most_of_worker = OpenConnections::MostOfAWorker(platform::DescriptorLimit())},
                              clock};
  Access access{callers, open_calls, connections, clock};
  AuditLog audit{clock};
  std::unique_ptr<Store> store;
  std::unique_ptr<History> history;
  std::shared_ptr<Metrics> metrics;
  std::unique_ptr<Sessions> sessions;
  std::unique_ptr<UploadRelay> uploads;
  std::unique_ptr<Watches> watches;
  std::unique_ptr<Engine> engine;  // its outbox leads to sessions, watches, metrics
  std::unique_ptr<JobsService> jobs;
  std::unique_ptr<WorkersService> workers;
  std::shared_ptr<platform::RareLog> turned_away = std::make_shared<platform::RareLog>();
  // One at --listen and, if that is given, one at --worker-listen.
  std::vector<std::unique_ptr<FrontDoor>> doors;
  std::unique_ptr<Site> site;
  std::unique_ptr<HttpServer> http;  // requests go to the site
  std::vector<std::string> worker_addresses;
  std::string metrics_address;

  platform::RareLog no_room;
  absl::Mutex mu;
  platform::SteadyCondition changed;  // of `stopping`
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::atomic<bool> tick_pending = false;             // in the engine's queue, where ticks do not add up
  absl::Time last_heartbeat = absl::InfinitePast();   // used by the ticks
  absl::Time looked_in_place = absl::InfinitePast();  // used by the upkeep
  std::vector<std::thread> threads;
};

void Daemon::Parts::StartThreads(absl::Duration sweep_every) {
  Repeat(std::min(kTick, sessions->heartbeat_interval()), [this] { TickEngine(); });
  Repeat(sweep_every, [this] {
    SweepConnections();
    uploads->Tick();
  });
  if (tls != nullptr) {
    Repeat(sweep_every, [this] { RefreshCertificate(); });
  }
  Repeat(kTick, [this] { KeepUp(); });
}

void Daemon::Parts::Repeat(absl::Duration every, std::function<void()> act) {
  threads.emplace_back([this, every, act = std::move(act)] {
    while (Sleep(every)) {
      act();
    }
  });
}

bool Daemon::Parts::Sleep(absl::Duration time) {
  const absl::MutexLock lock(&mu);
  changed.AwaitFor(mu, time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return stopping; });
  return !stopping;
}

void Daemon::Parts::TickEngine() {
  const absl::Time awake_since = sessions->AwakeSince();
  if (!tick_pending.exchange(true)) {
    engine->Post(Tick{.awake_since = awake_since});
    engine->Query([this](const State& state) {
      metrics->Look(state);
      tick_pending = false;
    });
  }
  const absl::Time now = clock.Now();
  if (now - last_heartbeat >= sessions->heartbeat_interval()) {
    last_heartbeat = now;
    sessions->SendHeartbeats();
  }
}

void Daemon::Parts::KeepUp() {
  const absl::Time now = clock.Now();
  history->Tick(now);
  if (now - looked_in_place < absl::Seconds(1)) {
    return;
  }
  looked_in_place = now;
  for (const absl::Status& status : {store->CheckInPlace(), history->CheckInPlace(), store->TidyIfQuiet()}) {
    if (!status.ok()) {
      engine->Fail(status);
    }
  }
}

void Daemon::Parts::RefreshCertificate() {
  const std::string before = tls->certificates();
  if (const absl::Status status = tls->RefreshCertificate(); !status.ok()) {
    LogBadTlsFiles(status);
  } else if (tls->certificates() != before) {
    platform::Log(platform::LogLevel::kInfo, "new TLS files are used from now on",
                  {{"valid_until", absl::FormatTime(tls->not_after(), absl::UTCTimeZone())}});
  }
  metrics->CertificateEnds(tls->not_after());
}

void Daemon::Parts::SweepConnections() {
  if (tls == nullptr) {
    return;
  }
  const std::shared_ptr<const tls::RevokedList> revoked = tls->revoked();
  if (const absl::Status status = tls->RefreshRevoked(); !status.ok()) {
    LogBadTlsFiles(status);
  } else if (tls->revoked() != revoked) {
    platform::Log(platform::LogLevel::kInfo, "a changed list of revoked certificates is used from now on",
                  {});
    if (const std::vector<std::string> out = revoked->NotIn(*tls->revoked()); !out.empty()) {
      platform::Log(platform::LogLevel::kWarning,
                    "identities removed from the list of revoked certificates are accepted again",
                    {{"count", absl::StrCat(out.size())}, {"who", absl::StrJoin(out, ", ")}});
    }
    sign_ins.EndRevoked(*tls->revoked());
  }
  connections.Sweep(*tls->revoked());
}

void Daemon::Parts::OnEvents(const std::vector<v1::Event>& events, const State& state) {
  LogWorkersGone(events);
  for (const v1::Event& event : events) {
    if (event.has_checkpoint_warning() || event.has_training_warning()) {
      platform::Log(
          event.training_warning().is_data() ? platform::LogLevel::kInfo : platform::LogLevel::kWarning,
          event.reason(), {{"job", event.job_id()}, {"message", event.message()}});
    } else if (!event.job_id().empty() && !event.has_checkpoint()) {
      platform::Log(platform::LogLevel::kInfo, proto::ValueName(event.to()),
                    {{"job", event.job_id()}, {"reason", event.reason()}, {"message", event.message()}});
    }
    const auto entry = state.jobs.find(event.job_id());
    if (entry == state.jobs.end()) {
      continue;
    }
    const v1::Job& job = entry->second.job;
    if (event.from() == v1::JOB_STATE_QUEUED && event.to() == v1::JOB_STATE_ADMITTED) {
      metrics->queue_wait_seconds.Observe(
          absl::ToDoubleSeconds(proto::FromProto(event.time()) - proto::FromProto(job.created())));
    } else if (IsTerminal(event.to()) && !event.has_checkpoint()) {
      metrics->JobEnded(job);
    }
  }
  watches->Poke();
}

void Daemon::Parts::OnNoRoom(const absl::Status& status) {
  metrics->refused_commits.Increment();
  if (no_room.Count(clock.Now()) > 0) {
    platform::Log(platform::LogLevel::kError,
                  "the store's disk is full: until there is room, no job is accepted or changes its state; "
                  "running jobs continue, and what is stored can be read",
                  {{"error", std::string(status.message())}});
  }
}

void Daemon::Parts::OnRoomAgain() {
  no_room.Reset();
  platform::Log(platform::LogLevel::kInfo, "the store can be written again", {});
}

absl::Status Daemon::Parts::OpenState(const ServerOptions& options) {
  if (options.tls.given()) {
    TANDEM_ASSIGN_OR_RETURN(tls, tls::ServerTls::Open(options.tls, options.tls_domain));
  }
  TANDEM_ASSIGN_OR_RETURN(store, Store::Open(options.state_directory, random));
  if (tls != nullptr) {
    TANDEM_RETURN_IF_ERROR(tls->PublishIn(options.state_directory + "/tls"));
    callers.Believe(tls);
  }
  TANDEM_ASSIGN_OR_RETURN(history, History::Open(options.state_directory, {}));
  return absl::OkStatus();
}

void Daemon::Parts::Assemble(const ServerOptions& options, State state) {
  metrics = std::make_shared<Metrics>(clock);
  metrics->SetTotals([this](const std::string& job) {
    return history->Totals(job).value_or(StepTotals{});  // none if the history is damaged
  });
  Sessions::Options of_sessions{
      .store_id = store->store_id(), .term = store->term(), .orphan_timeout = options.orphan_timeout};
  of_sessions.FitTo(options.limits.worker_timeout);
  sessions = std::make_unique<Sessions>(of_sessions, clock, random);
  metrics->SetLastSeen([this](const std::string& worker) { return sessions->LastSeen(worker); });
  const ProgressBoard& progress = metrics->progress();
  uploads = std::make_unique<UploadRelay>(
      [this](const std::string& worker, const v1::UploadRequest& request) {
        return sessions->RequestUpload(worker, request);
      },
      progress, clock, random, UploadRelay::Limits{});
  watches = std::make_unique<Watches>(*store, *history, progress, clock);
  sessions->OnGone([this](const std::string& worker) { uploads->WorkerGone(worker); });
  engine = std::make_unique<Engine>(
      *store, clock, std::move(state),
      Engine::Outbox{
          .reported = [this](const State& state,
                             const AttemptKey& attempt) { metrics->Reported(state, attempt); },
          .assignments =
              [this](const std::string& worker, const std::string& session,
                     const v1::Assignments& assignments) { sessions->Push(worker, session, assignments); },
          .value = [this](const std::string& worker,
                          const v1::KvValue& value) { sessions->Send(worker, value); },
          .events = [this](const std::vector<v1::Event>& events,
                           const State& state) { OnEvents(events, state); },
          .commit_seconds = [this](double seconds) { metrics->commit_seconds.Observe(seconds); },
          .no_room = [this](const absl::Status& status) { OnNoRoom(status); },
          .room_again = [this] { OnRoomAgain(); },
          .not_stored = LogWorkersGone,
          .fatal = options.fatal,
      });
  jobs = std::make_unique<JobsService>(JobsService::Parts{
      *engine, *store, *history, *sessions, *watches, *uploads, progress, clock, random, access, sign_ins});
  workers = std::make_unique<WorkersService>(WorkersService::Parts{
      *engine, *store, *history, *sessions, *uploads, *metrics, clock, [this] { watches->Poke(); }, access});
}

absl::Status Daemon::Parts::Listen(const ServerOptions& options) {
  const bool apart = !options.worker_listen.empty();
  TANDEM_ASSIGN_OR_RETURN(doors.emplace_back(), FrontDoor::Open({.listen = options.listen,
                                                                 .tls = tls,
                                                                 .admits = {.workers = !apart},
                                                                 .most_bytes = apart ? kMostBytesOfUsers : 0},
                                                                connections, turned_away));
  if (apart) {
    TANDEM_ASSIGN_OR_RETURN(doors.emplace_back(), FrontDoor::Open({.listen = options.worker_listen,
                                                                   .flag = "--worker-listen",
                                                                   .tls = tls,
                                                                   .admits = {.users = false}},
                                                                  connections, turned_away));
    worker_addresses = doors[1]->addresses();
  }
  return absl::OkStatus();
}

absl::Status Daemon::Parts::StartGrpc() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  for (const std::unique_ptr<FrontDoor>& door : doors) {
    TANDEM_RETURN_IF_ERROR(
        door->Start({jobs.get(), workers.get()}, {callers, open_calls, connections, *metrics, audit, clock}));
    grpc::HealthCheckServiceInterface* health = door->server().GetHealthCheckService();
    for (const char* service : {"tandem.v1.Jobs", "tandem.v1.Workers", "tandem.v1.Controller"}) {
      health->SetServingStatus(service, true);
    }
  }
  return absl::OkStatus();
}

absl::Status Daemon::Parts::ServeHttp(const ServerOptions& options) {
  if (options.metrics_listen == "off") {
    return absl::OkStatus();
  }
  const bool local = platform::IsLocalAddress(options.metrics_listen);
  const bool page = options.page == PageMode::kOn || (options.page == PageMode::kAuto && local);
  site = std::make_unique<Site>(
      Site::Options{.page = page, .local_names_only = local}, metrics,
      doors[0]->server().InProcessChannel(ArgumentsOfPage()),
      [this](const std::string& session, const std::string& browser, grpc::ClientContext& context) {
        callers.MarkAsPage(session, browser, context);
      },
      SessionApi(sign_ins, audit));
  TANDEM_ASSIGN_OR_RETURN(http, HttpServer::Start(options.metrics_listen, [this](const HttpRequest& request) {
                            return site->Answer(request);
                          }));
  metrics_address = http->address();
  if (page) {
    sign_ins.SetPage(PageForSignIn(metrics_address));
  }
  return absl::OkStatus();
}

void Daemon::Parts::Accept() {
  for (const std::unique_ptr<FrontDoor>& door : doors) {
    door->Accept();
  }
}

absl::Status Daemon::Parts::Start(const ServerOptions& options) {
  // Listen checks this again. The check comes first here, because opening a large store in vain takes a
  // while.
  for (const std::string& address : options.listen) {
    TANDEM_RETURN_IF_ERROR(CheckNotInUse(address));
  }
  for (const std::string& address : options.worker_listen) {
    TANDEM_RETURN_IF_ERROR(CheckNotInUse(address, "--worker-listen"));
  }
  TANDEM_RETURN_IF_ERROR(OpenState(options));
  TANDEM_ASSIGN_OR_RETURN(State state, store->Load());
  state.limits = options.limits;
  const size_t live_jobs = state.jobs.size();
  Assemble(options, std::move(state));
  engine->Start();  // inputs are decided from here on
  TANDEM_RETURN_IF_ERROR(Listen(options));
  TANDEM_RETURN_IF_ERROR(StartGrpc());
  TANDEM_RETURN_IF_ERROR(ServeHttp(options));
  if (tls == nullptr) {
    platform::Log(platform::LogLevel::kWarning,
                  "TLS is off: every process on this machine that can open these addresses can run jobs as "
                  "this user and end any job",
                  {{"listen", absl::StrJoin(doors[0]->addresses(), ",")}});
  }
  Accept();
  StartThreads(options.sweep_every);
  platform::Log(platform::LogLevel::kInfo, "serving",
                {{"listen", absl::StrJoin(doors[0]->addresses(), ",")},
                 {"worker_listen", absl::StrJoin(worker_addresses, ",")},
                 {"tls", tls == nullptr ? "off" : "on"},
                 {"metrics", metrics_address.empty() ? "off" : metrics_address},
                 {"state", options.state_directory},
                 {"store", store->store_id()},
                 {"term", absl::StrCat(store->term())},
                 {"live_jobs", absl::StrCat(live_jobs)}});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const ServerOptions& options,
                                                      const platform::Clock& clock,
                                                      platform::Random& random) {
  TANDEM_RETURN_IF_ERROR(CheckOptions(options));
  platform::RaiseDescriptorLimit();  // every connection, watch and log that is read costs one
  auto parts = std::make_unique<Parts>(clock, random);
  if (const absl::Status started = parts->Start(options); !started.ok()) {
    // A flag that this machine does not allow may be right on another one.
    return absl::IsInvalidArgument(started) ? absl::FailedPreconditionError(started.message()) : started;
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(parts)));
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() {
  {
    const absl::MutexLock lock(&parts_->mu);
    parts_->stopping = true;
    parts_->changed.NotifyAll();
  }
  for (std::thread& thread : parts_->threads) {
    thread.join();
  }
  for (const std::unique_ptr<FrontDoor>& door : parts_->doors) {
    door->StopAccepting();
  }
  // Streams are ended first, because gRPC would wait for those that have no end.
  parts_->watches->Close();
  parts_->sessions->Close();
  parts_->jobs->Close();
  const auto deadline = std::chrono::system_clock::now() + kShutdownGrace;
  for (const std::unique_ptr<FrontDoor>& door : parts_->doors) {
    door->Shutdown(deadline);
  }
  parts_->http.reset();  // its own calls have just been ended
  // Acknowledgements for streams that are still open are dropped; their workers send the reports again.
  parts_->history->Commit();
  parts_->engine->Stop();
}

const std::vector<std::string>& Daemon::addresses() const { return parts_->doors[0]->addresses(); }

const std::vector<std::string>& Daemon::worker_addresses() const { return parts_->worker_addresses; }

const std::string& Daemon::metrics_address() const { return parts_->metrics_address; }

}  // namespace tandem::controller
