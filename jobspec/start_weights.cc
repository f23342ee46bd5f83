// SPDX-License-Identifier: Apache-2.0
#include "jobspec/start_weights.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "jobspec/decoder_config.h"
#include "jobspec/hugging_face_config.h"
#include "jobspec/jobspec.h"
#include "jobspec/model_function.h"
#include "jobspec/text.h"
#include "model/node_kinds.h"
#include "model/unit_parameters.h"

namespace tandem::jobspec {
namespace {

constexpr char kStartAllowed[] = "the folder of a Hugging Face model, or of one step of a checkpoint";

// Where a gate or the rows of up behind it lie in one tensor of both.
checkpoint::TensorSlice HalfOf(const std::string& name, const checkpoint::WantedTensor& half, bool second) {
  return {.name = name,
          .shape = {2 * half.shape[0], half.shape[1]},
          .begin = second ? half.shape[0] * half.shape[1] : 0};
}

// Where files have in one tensor what parameters are of their own. Of experts: gate and up [E, 2I, H], an
// expert's rows of gate before its rows of up, and down [E, H, I]; so has transformers 5 all experts if it
// saves them as it holds them, and granitemoehybrid its own always, beside the halves of its other MLP.
void AddFused(const model::DecoderConfig& config, checkpoint::WantedTensor& tensor) {
  const bool mixtral = config.names == model::ParameterNames::kMixtral;
  const bool granite = config.names == model::ParameterNames::kGranite;
  const std::string experts = mixtral || granite ? ".block_sparse_moe.experts." : ".mlp.experts.";
  const size_t at = tensor.name.find(experts);
  if (at == tensor.name.npos) {
    const auto add = [&](const char* ours, const char* theirs) {
      if (absl::EndsWith(tensor.name, ours)) {
        tensor.instead.push_back(
            {.name = absl::StrCat(absl::StripSuffix(tensor.name, ours), theirs), .shape = tensor.shape});
      }
    };
    if (mixtral) {
      add(".block_sparse_moe.gate.weight", ".mlp.gate.weight");
    } else if (granite) {
      add(".block_sparse_moe.router.layer.weight", ".block_sparse_moe.router.weight");
      for (const std::string ours : {".shared_mlp.gate_proj.weight", ".shared_mlp.up_proj.weight"}) {
        if (absl::EndsWith(tensor.name, ours)) {
          tensor.instead = {
              HalfOf(absl::StrCat(absl::StripSuffix(tensor.name, ours), ".shared_mlp.input_linear.weight"),
                     tensor, ours == ".shared_mlp.up_proj.weight")};
          tensor.fused = true;
        }
      }
    }
    return;
  }
  const std::string layer = tensor.name.substr(0, at);
  const std::string rest = tensor.name.substr(at + experts.size());  // "5.gate_proj.weight"
  const int64_t expert = std::stoll(rest);
  const auto is = [&](const char* hub, const char* of_mixtral) {
    return absl::EndsWith(
        rest, mixtral ? absl::StrCat(".", of_mixtral, ".weight") : absl::StrCat(".", hub, ".weight"));
  };
  const int64_t elements = tensor.shape[0] * tensor.shape[1];
  const int64_t all = config.moe.router.experts;
  const bool down = is("down_proj", "w2");
  checkpoint::TensorSlice slice{
      .name = absl::StrCat(layer, granite ? ".block_sparse_moe" : ".mlp", ".experts.",
                           down ? "down_proj" : "gate_up_proj"),
      .shape = {all, (down ? 1 : 2) * tensor.shape[0], tensor.shape[1]},
      .begin = down ? expert * elements : (2 * expert + (is("up_proj", "w3") ? 1 : 0)) * elements};
  tensor.instead = {slice};
  if (granite) {
    slice.name =
        absl::StrCat(layer, ".block_sparse_moe.", down ? "output_linear" : "input_linear", ".weight");
    tensor.instead.insert(tensor.instead.begin(), slice);
    tensor.fused = true;
  }
}

// What differs, as a violation: the weights are those of another function.
void AddModelDifferences(const std::string& path, const std::vector<std::string>& differences,
                         const std::string& remedy, std::vector<v1::Violation>& violations) {
  if (!differences.empty()) {
    violations.push_back(MakeViolation(kStartFrom, path, "weights of this job's model",
                                       absl::StrCat(absl::StrJoin(differences, "; "), ": ", remedy)));
  }
}

void CheckStep(platform::Files& files, const std::string& path, const v1::JobSpec& resolved,
               std::vector<v1::Violation>& violations) {
  const auto refuse = [&](const std::string& remedy) {
    violations.push_back(MakeViolation(kStartFrom, path, kStartAllowed, remedy));
  };
  const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ReadFolderManifest(files, path);
  if (!manifest.ok()) {
    refuse(std::string(manifest.status().message()));
    return;
  }
  if (manifest->info.model.empty()) {
    return;  // of a build that did not write it
  }
  const absl::StatusOr<std::vector<std::string>> differences =
      ModelDifferences(manifest->info.model, resolved.model());
  if (!differences.ok()) {
    refuse(std::string(differences.status().message()));
    return;
  }
  AddModelDifferences(path, *differences, "use the model that the checkpoint is of", violations);
}

void CheckConfig(const std::string& path, const v1::JobSpec& resolved,
                 std::vector<v1::Violation>& violations) {
  v1::JobSpec theirs;
  theirs.mutable_model()->set_hugging_face(path);
  std::vector<v1::Violation> wrong = ReadHuggingFace(*theirs.mutable_model());
  if (wrong.empty()) {
    const absl::StatusOr<std::vector<std::string>> differences =
        ModelDifferences(ModelFunctionText(Resolve(theirs).model()), resolved.model());
    if (differences.ok()) {
      AddModelDifferences(path, *differences,
                          absl::StrCat("use model: {hugging_face: ", path,
                                       "}, or change config.json there if the job means it"),
                          violations);
    }
  }
  for (v1::Violation& violation : wrong) {
    violation.set_path(kStartFrom);
    violations.push_back(std::move(violation));
  }
}

}  // namespace

checkpoint::WantedWeights WantedWeightsOf(const model::DecoderConfig& one_rank) {
  const model::DecoderConfig config = model::WithAllExperts(one_rank);
  checkpoint::WantedWeights wanted;
  for (const model::UnitParameters& unit : model::DecoderUnits(config)) {
    for (const model::Parameter& parameter : unit.parameters) {
      checkpoint::WantedTensor tensor{.name = parameter.name, .shape = parameter.shape, .instead = {}};
      AddFused(config, tensor);
      wanted.tensors.push_back(std::move(tensor));
    }
  }
  const auto name_of = [&](const model::NodeKind& kind, const char* parameter, int layer) {
    return model::HuggingFaceName(config.names, kind, parameter, layer);
  };
  if (config.tie_word_embeddings) {
    wanted.copies.push_back({{.name = name_of(model::kHead, "weight", -1),
                              .shape = {config.vocab_size, config.hidden_size},
                              .instead = {}},
                             name_of(model::kEmbedding, "table", -1)});
  }
  if (config.names == model::ParameterNames::kQwen3Next) {
    wanted.prefix_left_out = "mtp.";
  }
  if (config.moe.router.experts > 0 &&
      config.moe.router.score == ops::RouterScore::kSigmoid) {  // deepseek_v3
    wanted.first_layer_left_out = config.num_hidden_layers;
    const bool has_biases = config.moe.router_bias_update_rate > 0;
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
      if (config.IsSparse(layer)) {
        (has_biases ? wanted.tensors : wanted.zeros)
            .push_back({.name = name_of(model::kRoute, "bias", layer),
                        .shape = {config.moe.router.experts},
                        .instead = {}});
      }
    }
  }
  return wanted;
}

bool IsCheckpointFolder(platform::Files& files, const std::string& path) {
  return files.Size(absl::StrCat(path, "/", checkpoint::kManifestName)).ok();
}

std::vector<v1::Violation> CheckStartFrom(platform::Files& files, const v1::JobSpec& resolved) {
  const std::string& path = resolved.checkpoint().start_from();
  std::vector<v1::Violation> violations;
  for (const v1::Violation& violation : Validate(resolved)) {
    if (absl::StartsWith(violation.path(), "model")) {
      return violations;  // nothing can be compared with such a model
    }
  }
  const auto refuse = [&](const std::string& remedy) {
    violations.push_back(MakeViolation(kStartFrom, path, kStartAllowed, remedy));
  };
  const absl::StatusOr<std::vector<std::string>> names = files.List(path);
  if (!names.ok()) {
    refuse(absl::IsNotFound(names.status())          ? "no such folder"
           : absl::IsInvalidArgument(names.status()) ? "it is not a folder"
                                                     : std::string(names.status().message()));
    return violations;
  }
  if (IsCheckpointFolder(files, path)) {
    CheckStep(files, path, resolved, violations);
    return violations;
  }
  const absl::StatusOr<std::vector<int64_t>> steps = checkpoint::ListSteps(files, path);
  if (steps.ok() && !steps->empty()) {
    refuse(absl::StrCat("it holds steps of a checkpoint: name one of them, as ", path, "/",
                        checkpoint::StepName(steps->front())));
    return violations;
  }
  const absl::StatusOr<checkpoint::HuggingFaceFolder> folder = checkpoint::ReadHuggingFaceFolder(files, path);
  if (!folder.ok()) {
    refuse(std::string(folder.status().message()));
    return violations;
  }
  CheckConfig(path, resolved, violations);
  if (violations.empty()) {
    const checkpoint::StoredWeights weights =
        checkpoint::FindStoredWeights(*folder, WantedWeightsOf(ModelConfigOf(resolved.model())));
    if (!weights.ok()) {
      refuse(checkpoint::ProblemText(weights));
    }
  }
  return violations;
}

}  // namespace tandem::jobspec
