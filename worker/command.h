#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "worker/state.h"

namespace tandem::worker {

// What the shell does for the core, in this order. Nothing of it blocks the core: answers come as inputs.

struct SendToController {  // lost where the stream just broke; the next inventory says it again
  v1::WorkerMessage message;
};
struct DropSession {  // close the stream and dial again
  std::string why;
};
struct Prepare {  // check the files, name the program, record on disk that ranks will run → Prepared
  v1::Assignment assignment;
  std::string store_id;  // of the controller that assigned it
};
struct Spawn {  // → RankSpawned or SpawnFailed
  RankKey rank;
  v1::Start start;
};
struct SendToRank {
  RankKey rank;
  v1::ToTrainer message;
};
struct Kill {  // SIGKILL to the process group of the rank
  RankKey rank;
};
struct RecordEnd {  // durable → EndRecorded
  v1::AttemptStatus status;
};
struct Forget {  // remove its record
  AttemptKey attempt;
};
struct RenewDeadline {  // of every page: now plus this; infinite: never
  absl::Duration after;
};
struct StartUpload {
  v1::UploadRequest request;
};
struct ExitProcess {
  std::string problem;  // empty: it was asked to
};

using Command = std::variant<SendToController, DropSession, Prepare, Spawn, SendToRank, Kill, RecordEnd,
                             Forget, RenewDeadline, StartUpload, ExitProcess>;

}  // namespace tandem::worker
