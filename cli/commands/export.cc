// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/export_weights.h"
#include "checkpoint/folder.h"
#include "checkpoint/hugging_face_folder.h"
#include "checkpoint/saved_step.h"
#include "checkpoint/source_files.h"
#include "checkpoint/start_files.h"
#include "cli/commands/checkpoint_folder.h"
#include "cli/commands/commands.h"
#include "cli/terminal/display_text.h"
#include "cli/terminal/error.h"
#include "jobspec/decoder_config.h"
#include "jobspec/hugging_face_export.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_function.h"
#include "platform/files.h"
#include "platform/random.h"
#include "platform/status_macros.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;
using ExportJson = nlohmann::ordered_json;

constexpr char kGenerationConfig[] = "generation_config.json";
constexpr int64_t kMostTextBytes = int64_t{256} << 20;  // of a copied file

// Parses "5GB" or "500MB" into bytes; 0: it is neither.
int64_t SizeOf(const std::string& text) {
  int64_t number = 0;
  for (const auto& [unit, bytes] : {std::pair("GB", 1'000'000'000), std::pair("MB", 1'000'000)}) {
    if (text.ends_with(unit) && absl::SimpleAtoi(text.substr(0, text.size() - 2), &number) && number > 0 &&
        number <= 1'000'000) {
      return number * bytes;
    }
  }
  return 0;
}

// Returns the loss of a step from the `metrics.jsonl` beside the checkpoints.
std::optional<double> LossOf(const std::string& directory, int64_t step) {
  std::ifstream file(absl::StrCat(directory, "/metrics.jsonl"));
  std::optional<double> loss;
  for (std::string line; std::getline(file, line);) {
    const ExportJson report = ExportJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (report.is_object() && report.value("step", ExportJson()) == step &&
        report.value("loss", ExportJson()).is_number()) {
      loss = report["loss"].get<double>();
    }
  }
  return loss;
}

std::string ModelCard(const checkpoint::Info& info, const std::optional<double>& loss,
                      const std::string& dtype) {
  std::string text = absl::StrCat(
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n",
      "Trained with Tandem, and exported from one of its checkpoints.\n\n| | |\n|---|---|\n| job | ",
      info.job, " |\n| digest of its specification | ", info.spec_digest, " |\n| step | ", info.step, " |\n");
  if (info.global_batch_size > 0 && info.sequence_length > 0) {
    absl::StrAppend(&text, "| tokens | ", info.step * info.global_batch_size * info.sequence_length, " |\n");
  }
  if (loss.has_value()) {
    absl::StrAppend(&text, "| loss of that step | ", absl::StrFormat("%.4f", *loss), " |\n");
  }
  if (info.origin.has_value()) {
    absl::StrAppend(&text, "| started from | ", fs::path(info.origin->path).filename().string(), " |\n");
  }
  absl::StrAppend(&text, "| type of the weights | ", dtype, " |\n");
  return text;
}

// Writes one export, in a temporary folder, which gets its name when it is complete.
class Exporter {
 public:
  Exporter(Context& context, const ExportCommandOptions& options, int64_t most_file_bytes)
      : context_(context), options_(options), most_file_bytes_(most_file_bytes) {}

  absl::Status Run(const std::string& step_folder) {
    TANDEM_ASSIGN_OR_RETURN(const checkpoint::SavedStep step,
                            checkpoint::SavedStep::Open(files_, step_folder));
    const checkpoint::Info& info = step.manifest().info;
    if (info.model.empty()) {
      return absl::InvalidArgumentError(
          "its manifest does not say its model: resume from it once, and export the checkpoint that this "
          "saves");
    }
    TANDEM_ASSIGN_OR_RETURN(const v1::Model model, jobspec::ReadModelFunction(info.model));

    const std::string folder =
        fs::path(fs::absolute(step_folder).lexically_normal() / "..").lexically_normal().string();
    source_ = absl::StrCat(folder, "/", checkpoint::kSourceName);
    TANDEM_ASSIGN_OR_RETURN(const std::string source, SourceText(checkpoint::kConfigName));
    TANDEM_ASSIGN_OR_RETURN(const std::string dataset, SourceText(checkpoint::kDatasetName));
    TANDEM_ASSIGN_OR_RETURN(const std::string config,
                            jobspec::ExportedConfig(source, info.origin.has_value(), dataset, model, IsBf16(),
                                                    info.sequence_length));
    temporary_ = absl::StrCat(Target(), checkpoint::kUnfinishedExport, platform::SystemRandom().HexId(12));
    TANDEM_RETURN_IF_ERROR(files_.CreateFolders(temporary_));
    absl::Cleanup remove = [&] { files_.RemoveAll(temporary_).IgnoreError(); };
    TANDEM_RETURN_IF_ERROR(Write(checkpoint::kConfigName, config));
    TANDEM_RETURN_IF_ERROR(WriteGenerationConfig(config, info.origin.has_value()));
    TANDEM_RETURN_IF_ERROR(CopyTokenizer());
    TANDEM_RETURN_IF_ERROR(Write("README.md", ModelCard(info, LossOf(folder, info.step), options_.dtype)));
    TANDEM_RETURN_IF_ERROR(
        checkpoint::ExportWeights(files_, step, jobspec::ExportedTensors(jobspec::ModelConfigOf(model)),
                                  {.bf16 = IsBf16(), .most_file_bytes = most_file_bytes_}, temporary_)
            .status());
    TANDEM_RETURN_IF_ERROR(files_.SyncFolder(temporary_));
    TANDEM_RETURN_IF_ERROR(files_.Publish(temporary_, Target()));
    std::move(remove).Cancel();
    return files_.SyncFolder(fs::path(Target()).parent_path().string());
  }

 private:
  bool IsBf16() const { return options_.dtype == "bf16"; }
  std::string Target() const {
    const fs::path path = fs::absolute(options_.to).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).string();
  }
  absl::Status Write(const std::string& name, const std::string& text) {
    return files_.Write(absl::StrCat(temporary_, "/", name), text);
  }

  // Reads a file of the folder source_; empty if it is not there.
  absl::StatusOr<std::string> SourceText(const std::string& name) {
    absl::StatusOr<std::string> text =
        platform::ReadAtMost(files_, absl::StrCat(source_, "/", name), kMostTextBytes);
    return absl::IsNotFound(text.status()) ? std::string() : std::move(text);
  }

  // is_origin: the weights came from source_. Earlier builds copied the file also from the folder of the
  // tokenizer, although the weights were random.
  absl::Status WriteGenerationConfig(const std::string& config_text, bool is_origin) {
    TANDEM_ASSIGN_OR_RETURN(const std::string source, SourceText(kGenerationConfig));
    if (is_origin && !source.empty()) {
      return Write(kGenerationConfig, source);
    }
    const ExportJson config = ExportJson::parse(config_text);
    ExportJson generation = {{"_from_model_config", true}};
    for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (config.contains(key) && !config[key].is_null()) {
        generation[key] = config[key];
      }
    }
    return Write(kGenerationConfig, generation.dump(2) + "\n");
  }

  absl::Status CopyTokenizer() {
    const std::string& from = options_.tokenizer.empty() ? source_ : options_.tokenizer;
    const std::vector<std::string> names = checkpoint::TokenizerFiles(files_, from);
    if (names.empty() && !options_.tokenizer.empty()) {
      return absl::NotFoundError(absl::StrCat("--tokenizer: there is no file of a tokenizer in ", from));
    }
    if (names.empty()) {
      Note(context_.console,
           "no tokenizer is exported: the job did not start from one; vLLM and lm-eval need it: "
           "name its folder with --tokenizer");
    }
    for (const std::string& name : names) {
      TANDEM_ASSIGN_OR_RETURN(const std::string text,
                              platform::ReadAtMost(files_, absl::StrCat(from, "/", name), kMostTextBytes));
      TANDEM_RETURN_IF_ERROR(Write(name, text));
    }
    return absl::OkStatus();
  }

  Context& context_;
  const ExportCommandOptions& options_;
  const int64_t most_file_bytes_;
  platform::Files& files_ = platform::SystemFiles();
  std::string source_;
  std::string temporary_;
};

}  // namespace

Outcome Export(Context& context, const ExportCommandOptions& options) {
  const int64_t most_file_bytes = SizeOf(options.max_shard);
  if (most_file_bytes == 0) {
    return Failure(kUsage, absl::StrCat("--max-shard: ", Escape(options.max_shard),
                                        " is not a size; write 500MB or 5GB"));
  }
  std::error_code error;
  if (fs::exists(fs::symlink_status(options.to, error))) {
    return Failure(kFailed, absl::StrCat("--to: ", Escape(options.to),
                                         " is there already, and nothing is replaced: name another folder"));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string folder, CheckpointFolder(context, options.job));
  TANDEM_ASSIGN_OR_RETURN(const std::string step, StepFolderIn(context, folder, options.step));
  if (const absl::Status exported = Exporter(context, options, most_file_bytes).Run(step); !exported.ok()) {
    return Failure(kFailed, absl::StrCat("export ", Escape(step), ": ", exported.message()));
  }
  context.Print(absl::StrCat(options.to, "\n"));
  return kOk;
}

}  // namespace tandem::cli
