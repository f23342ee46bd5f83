// SPDX-License-Identifier: Apache-2.0
#include "trainer/start_weights.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config_json.h"
#include "checkpoint/folder.h"
#include "checkpoint/load_hugging_face.h"
#include "checkpoint/work_together.h"
#include "data/dataset_json.h"
#include "jobspec/start_weights.h"
#include "platform/sha256.h"
#include "platform/status_macros.h"
#include "proto/reasons.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMostBytes = int64_t{256} << 20;
constexpr char kBytes[] = "bytes";  // in place of a digest, where tokens are bytes

// eos_token_id of a config.json: one id, or several.
std::vector<int64_t> EndsOfText(const std::string& config) {
  const absl::StatusOr<nlohmann::json> json = checkpoint::ParseConfig<nlohmann::json>(config);
  const nlohmann::json ids = json.ok() ? json->value("eos_token_id", nlohmann::json()) : nlohmann::json();
  std::vector<int64_t> ends;
  for (const nlohmann::json& id : ids.is_array() ? ids : nlohmann::json::array({ids})) {
    if (id.is_number_integer()) {
      ends.push_back(id.get<int64_t>());
    }
  }
  return ends;
}

}  // namespace

std::string TokenizerDifference(platform::Files& files, const jobspec::DataText& text,
                                const std::string& weights) {
  if (!data::IsDataset(text.path)) {
    return "";
  }
  const absl::StatusOr<data::Dataset> dataset = data::ReadDataset(text.path);
  if (!dataset.ok() || dataset->tokenizer_digest == kBytes) {
    return "";
  }
  const absl::StatusOr<std::string> tokenizer =
      platform::ReadAtMost(files, absl::StrCat(weights, "/tokenizer.json"), kMostBytes);
  if (tokenizer.ok() && platform::Sha256Of(*tokenizer) != dataset->tokenizer_digest) {
    return absl::StrCat(
        text.field, " was prepared with ", dataset->tokenizer_path,
        ", whose tokenizer.json is not that of checkpoint.start_from: ids may stand for other "
        "tokens than those that the weights have learned");
  }
  const absl::StatusOr<std::string> config =
      platform::ReadAtMost(files, absl::StrCat(weights, "/config.json"), kMostBytes);
  const std::vector<int64_t> ends = EndsOfText(config.value_or(""));
  if (dataset->eos.has_value() && !ends.empty() &&
      std::find(ends.begin(), ends.end(), *dataset->eos) == ends.end()) {
    return absl::StrCat("documents of ", text.field, " end with id ", *dataset->eos,
                        ", and eos_token_id of checkpoint.start_from is ", absl::StrJoin(ends, ", "),
                        ": the model learns another end of text");
  }
  return "";
}

namespace {

[[noreturn]] void FailUnusable(const std::string& path, const std::string& reason) {
  throw UserError(absl::StrCat(jobspec::kStartFrom, ": ", path, ": ", reason),
                  proto::ReasonCode("StartWeightsUnusable"));
}

// Collective.
checkpoint::Found FindStep(platform::Files& files, comm::Communicator& comm, const ResumeOptions& options) {
  const std::string& path = options.start_from;
  checkpoint::Found found;
  try {
    OnRankZero(comm, [&] {
      checkpoint::Inspect(files, path);
      return "";
    });
    found = checkpoint::InspectTogether(files, comm, path);
  } catch (const checkpoint::CheckpointUnreadable&) {
    throw;
  } catch (const checkpoint::CheckpointError& error) {
    FailUnusable(path, error.what());
  }
  OnRankZero(comm, [&] {
    CheckStartable(options, found);
    return "";
  });
  return found;
}

// Collective: the folder as every rank sees it.
checkpoint::HuggingFaceFolder FindFolder(platform::Files& files, comm::Communicator& comm,
                                         const std::string& path) {
  checkpoint::HuggingFaceFolder folder;
  const absl::Status read = checkpoint::StatusOfPart([&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(folder, checkpoint::ReadHuggingFaceFolder(files, path));
    return absl::OkStatus();
  });
  // Permissions do not come by waiting.
  const bool unusable = checkpoint::IsDamage(read) || absl::IsPermissionDenied(read);
  const std::string text = comm.rank() == 0 ? std::string(read.message())
                                            : absl::StrCat("rank ", comm.rank(), ": ", read.message());
  const absl::Status agreed =
      checkpoint::AgreeOnReading(comm, unusable ? absl::InvalidArgumentError(text) : read);
  if (checkpoint::IsDamage(agreed)) {
    FailUnusable(path, std::string(agreed.message()));
  }
  if (!agreed.ok()) {
    throw checkpoint::CheckpointError(absl::StrCat("weights ", path, ": ", agreed.message()));
  }
  const std::vector<std::string> digests = checkpoint::ExchangeTexts(comm, folder.digest);
  for (size_t rank = 1; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      FailUnusable(path, absl::StrCat("rank ", rank,
                                      " sees other files there than rank 0: use a folder that all workers "
                                      "share, or the same download on each"));
    }
  }
  return folder;
}

}  // namespace

StartWeights FindStartWeights(platform::Files& files, comm::Communicator& comm,
                              const ResumeOptions& options) {
  const std::string& path = options.start_from;
  StartWeights start{.origin = {.path = path, .digest = ""}};
  start.is_step =
      OnRankZero(comm, [&] { return jobspec::IsCheckpointFolder(files, path) ? "step" : ""; }) == "step";
  if (start.is_step) {
    start.origin.digest = FindStep(files, comm, options).digest;
    return start;
  }
  start.folder = FindFolder(files, comm, path);
  start.origin.digest = start.folder.digest;
  start.weights = checkpoint::FindStoredWeights(start.folder, options.weights);
  if (!start.weights.ok()) {
    FailUnusable(path, checkpoint::ProblemText(start.weights));
  }
  return start;
}

void LoadStartWeights(platform::Files& files, comm::Communicator& comm, const StartWeights& start,
                      const std::vector<checkpoint::Shard>& shards,
                      const checkpoint::OnWorkProgress& on_progress) {
  std::vector<checkpoint::Shard> wanted;
  for (const checkpoint::Shard& shard : shards) {
    if (shard.kind == checkpoint::kWeight || shard.kind == checkpoint::kState) {
      wanted.push_back(shard);
    }
  }
  if (start.is_step) {
    checkpoint::Load(files, comm, start.origin.path, wanted, on_progress);
    return;
  }
  const std::string problems =
      checkpoint::LoadHuggingFace(files, comm, start.folder, start.weights, wanted, on_progress);
  if (!problems.empty()) {
    FailUnusable(start.origin.path, problems);
  }
}

}  // namespace tandem::trainer
