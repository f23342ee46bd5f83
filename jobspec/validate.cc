// SPDX-License-Identifier: Apache-2.0
#include "jobspec/validate.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "jobspec/field_rules.h"
#include "jobspec/model_checker.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "parallel/grid_sizes.h"
#include "parallel/spec_grid.h"

namespace tandem::jobspec {
namespace {

constexpr int64_t kMaxTokensPerMicrobatch = int64_t{1} << 22;
constexpr int64_t kMaxTokensPerJob = int64_t{1} << 62;
constexpr int64_t kMaxLayerPasses = 65536;  // layers × microbatches of a rank: what a program can hold
constexpr size_t kMaxPathBytes = 4000;      // below PATH_MAX, with room for the names that are put below it

// What fields must be to each other.
class Validator : private ModelChecker {
 public:
  Validator(const v1::JobSpec& submitted, const std::vector<std::string>& unusable)
      : ModelChecker(submitted, unusable) {}

  std::vector<v1::Violation> Run() {
    CheckFields();
    CheckIdentity();
    CheckModel();
    CheckData();
    CheckTraining();
    CheckLists();
    CheckReplicas();
    CheckSchedule();
    CheckGrid();
    CheckBatch();
    CheckPrecision();
    CheckCheckpoint();
    return TakeViolations();
  }

 private:
  void CheckIdentity() {
    if (spec().api_version() != "tandem/v1") {
      Refuse("api_version", "omit the key, or use a version of Tandem that knows it");
    }
    const std::string& name = spec().name();
    const bool characters = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (name.empty() || name.size() > 63 || !characters || name.front() == '-' || name.back() == '-') {
      Refuse("name", name.size() > 63 ? absl::StrCat("it has ", name.size(), " characters: use a shorter one")
                                      : "use a name like my-job-1");
    }
  }

  void CheckPath(std::string_view path, const std::string& value) {
    if (value.empty()) {
      Refuse(path, "\"\"", AllowedText(path), "give a path, or omit the key");
    } else if (value.size() > kMaxPathBytes) {
      Refuse(path, value, absl::StrCat("a path of at most ", kMaxPathBytes, " bytes"),
             absl::StrCat("it has ", value.size()));
    } else if (value.front() != '/') {
      Refuse(path, absl::StrCat("the relative path ", value), AllowedText(path),
             "other machines have another working directory: write the whole path (tandem submit and tandem "
             "run do so)");
    }
  }

  void CheckData() {
    const v1::Data& data = spec().data();
    if (data.has_train()) {
      CheckPath("data.train", data.train());
    }
    if (data.has_validation()) {
      CheckPath("data.validation", data.validation());
      if (data.has_validation_fraction()) {
        Refuse("data.validation_fraction", NumberText(data.validation_fraction()),
               "nothing beside data.validation", "omit one of the two");
      }
    }
    if (data.tokenizer() != "bytes") {
      Refuse("data.tokenizer", "not built yet: other tokenizers; use bytes");
    }
  }

  void CheckTraining() {
    const v1::Training& training = spec().training();
    const v1::LearningRateSchedule& schedule = training.schedule();
    if (Usable({"training.sequence_length", "model.max_position_embeddings"}) &&
        training.sequence_length() > spec().model().max_position_embeddings()) {
      Refuse("training.sequence_length", absl::StrCat(training.sequence_length()),
             absl::StrCat("at most model.max_position_embeddings ", spec().model().max_position_embeddings(),
                          Origin("model.max_position_embeddings")),
             "use shorter sequences");
    }
    if (Usable({"training.steps", "training.schedule.warmup_steps"}) &&
        schedule.warmup_steps() > training.steps()) {
      Refuse("training.schedule.warmup_steps", absl::StrCat(schedule.warmup_steps()),
             absl::StrCat("0 to training.steps ", training.steps()), "use fewer, or more steps");
    }
    if (Usable({"training.schedule.min_learning_rate", "training.optimizer.learning_rate"})) {
      if (schedule.min_learning_rate() > training.optimizer().learning_rate()) {
        Refuse("training.schedule.min_learning_rate", NumberText(schedule.min_learning_rate()),
               absl::StrCat("0 to training.optimizer.learning_rate ",
                            NumberText(training.optimizer().learning_rate()),
                            Origin("training.optimizer.learning_rate")),
               "use a smaller number");
      } else if (schedule.min_learning_rate() > 0 && schedule.decay() == v1::DECAY_CONSTANT &&
                 IsOk({"training.schedule.decay"})) {
        Refuse("training.schedule.min_learning_rate", NumberText(schedule.min_learning_rate()),
               absl::StrCat("0 with decay: constant", Origin("training.schedule.decay")),
               "use decay: cosine, or leave it out");
      }
    }
    if (Usable({"training.validate_every_steps", "data.validation_fraction"}) &&
        training.validate_every_steps() > 0 && !spec().data().has_validation() &&
        spec().data().validation_fraction() == 0) {
      Refuse("training.validate_every_steps", absl::StrCat(training.validate_every_steps()),
             "0 where no data is held out", "give data.validation, or a validation_fraction above 0");
    }
  }

  // The rank grid, as parallel/ judges it. Where a size is refused already, only the names in the order mean
  // something.
  void CheckGrid() {
    const bool sizes =
        IsOk({"parallelism.ranks", "parallelism.tensor", "parallelism.context", "parallelism.pipeline",
              "parallelism.expert", "parallelism.expert_tensor", "parallelism.replicas"});
    parallel::GridSizes grid;
    if (sizes) {
      grid = parallel::GridOf(spec().parallelism());
    } else {
      grid.order = spec().parallelism().order();
    }
    if (!IsOk({"parallelism.order"})) {
      return;
    }
    for (const parallel::GridViolation& violation : parallel::CheckGrid(grid)) {
      const std::string path =
          absl::StrCat("parallelism.", violation.field == "world" ? "ranks" : violation.field);
      if (violation.field == "replicas" && !IsWritten(path)) {
        continue;  // CheckReplicas has named the strategy that brought them
      }
      Refuse(path, absl::StrCat(violation.value, Origin(path)), violation.allowed,
             Shown(violation.remedy, 300));
    }
  }

  // Fields that are lists with commas.
  void CheckLists() {
    const auto words = [](const std::string& list) {
      std::vector<std::string> stripped = absl::StrSplit(list, ',');
      for (std::string& word : stripped) {
        absl::StripAsciiWhitespace(&word);
      }
      return stripped;
    };
    if (Usable({"training.optimizer.no_weight_decay"})) {
      for (const std::string& word : words(spec().training().optimizer().no_weight_decay())) {
        if (word.empty()) {
          Refuse("training.optimizer.no_weight_decay", "a name between the commas is empty");
        } else if (word.find_first_of("?[]\\") != std::string::npos) {
          Refuse("training.optimizer.no_weight_decay",
                 absl::StrCat(Shown(word), " has a wildcard other than *"));
        }
      }
    }
    CheckRecompute(words(spec().training().recompute()));
    CheckKeepGathered(words(spec().parallelism().fsdp().keep_gathered()));
    CheckFrozen(words(spec().training().frozen()));
  }

  void CheckRecompute(const std::vector<std::string>& words) {
    constexpr char kPath[] = "training.recompute";
    if (!Usable({kPath}) || words == std::vector<std::string>{"off"} ||
        words == std::vector<std::string>{"layer"}) {
      return;
    }
    std::set<std::string> kinds = {"attention", "mlp"};
    for (const std::string& word : words) {
      if (kinds.erase(word) > 0) {
        continue;
      }
      Refuse(kPath, word == "off" || word == "layer"
                        ? absl::StrCat(word, " stands alone: leave the others out")
                        : absl::StrCat(Shown(word), " is not a kind of node of a layer, or is there twice"));
      return;
    }
    if (kinds.count("mlp") == 0 && Usable({"model.moe.decoder_sparse_step"}) && spec().model().has_moe() &&
        spec().model().moe().decoder_sparse_step() == 1 &&
        spec().model().moe().first_k_dense_replace() == 0) {
      Refuse(kPath, "mlp: every layer of this model is sparse and has none; use layer or attention");
    }
  }

  void CheckKeepGathered(const std::vector<std::string>& words) {
    constexpr char kPath[] = "parallelism.fsdp.keep_gathered";
    if (!Usable({kPath, "parallelism.fsdp.strategy"}) || words == std::vector<std::string>{"none"}) {
      return;
    }
    const v1::Strategy strategy = spec().parallelism().fsdp().strategy();
    if (strategy != v1::STRATEGY_ZERO3 && !HasReplicas(strategy)) {
      Refuse(kPath, ValueText(FindValue(spec(), kPath)),
             absl::StrCat("none with fsdp.strategy ",
                          EnumText(*v1::Strategy_descriptor()->FindValueByNumber(strategy))),
             "it keeps weights through the step anyway: omit the key, or use zero3, hsdp or hfsdp");
    } else if (words != std::vector<std::string>{"all"}) {
      UnitsWithout(kPath, words);
    }
  }

  // The units of the model that are none of `words`. Refuses the value that stands at `path` where a word is
  // no unit; returns then nothing, as where the model is not known.
  std::optional<std::set<std::string>> UnitsWithout(std::string_view path,
                                                    const std::vector<std::string>& words) {
    if (!Usable({path, "model.num_hidden_layers"})) {
      return std::nullopt;
    }
    std::set<std::string> units = {"embedding", "head"};
    for (int64_t layer = 0; layer < spec().model().num_hidden_layers(); ++layer) {
      units.insert(absl::StrCat("layers.", layer));
      if (IsSparse(spec().model(), layer)) {
        units.insert(absl::StrCat("layers.", layer, ".experts"));
      }
    }
    for (const std::string& word : words) {
      if (units.erase(word) == 0) {
        Refuse(path,
               absl::StrCat(Shown(word), " is no unit of this model, or is there twice; its layers are 0 to ",
                            spec().model().num_hidden_layers() - 1));
        return std::nullopt;
      }
    }
    return units;
  }

  void CheckFrozen(const std::vector<std::string>& words) {
    if (words == std::vector<std::string>{"none"}) {
      return;
    }
    const std::optional<std::set<std::string>> trained = UnitsWithout("training.frozen", words);
    if (trained.has_value() && trained->empty()) {
      Refuse("training.frozen", "nothing is left to train: take a unit out");
    }
  }

  // What is said of the overlap needs one.
  void CheckSchedule() {
    if (spec().parallelism().has_overlap() && Usable({"parallelism.schedule"}) &&
        spec().parallelism().schedule() != v1::SCHEDULE_OVERLAP) {
      Refuse("parallelism.overlap", "{...}",
             absl::StrCat("nothing with schedule: sequential", Origin("parallelism.schedule")),
             "omit the block, or use schedule: overlap");
    }
  }

  // An outer axis of ranks is there if and only if the strategy places something on it.
  void CheckReplicas() {
    const v1::Parallelism& parallelism = spec().parallelism();
    if (!Usable({"parallelism.replicas", "parallelism.fsdp.strategy"})) {
      return;
    }
    const v1::Strategy strategy = parallelism.fsdp().strategy();
    const std::string name = EnumText(*v1::Strategy_descriptor()->FindValueByNumber(strategy));
    const int64_t replicas = parallelism.replicas();
    const auto refuse = [&](const std::string& allowed, const std::string& remedy) {
      Refuse("parallelism.replicas", absl::StrCat(replicas), allowed, remedy);
    };
    if (HasReplicas(strategy) && replicas < 2) {
      refuse(absl::StrCat("2 or more with fsdp.strategy ", name),
             "omit the key for 2, or use strategy: zero3");
    } else if (!HasReplicas(strategy) && replicas > 1) {
      refuse(absl::StrCat("1 with fsdp.strategy ", name), "omit the key, or use strategy: hsdp, or hfsdp");
    } else if (Usable({"parallelism.ranks"}) && parallelism.ranks() % replicas != 0) {
      if (IsWritten("parallelism.replicas")) {
        refuse(absl::StrCat("a divisor of ranks ", parallelism.ranks()),
               "every copy is sharded over as many ranks");
      } else {
        Refuse("parallelism.fsdp.strategy", name,
               absl::StrCat("replicate, zero1, zero2, zero3 with ranks ", parallelism.ranks(), ", which ",
                            replicas, " replicas (the default) do not divide"),
               "give replicas, or use another number of ranks");
      }
    }
  }

  // Ranks that hold one copy of the model's computation; 0 where the sizes mean nothing.
  int64_t ModelRanks() const {
    if (!IsOk({"parallelism.tensor", "parallelism.context", "parallelism.pipeline"})) {
      return 0;
    }
    const v1::Parallelism& parallelism = spec().parallelism();
    int64_t product = 1;
    for (const int64_t size : {parallelism.tensor(), parallelism.context(), parallelism.pipeline()}) {
      if (size < 1 || size > 16384) {
        return 0;
      }
      product *= size;
    }
    return product;
  }

  void CheckBatch() {
    const v1::Training& training = spec().training();
    const int64_t micro = training.micro_batch_size();
    const int64_t global = training.global_batch_size();
    const int64_t length = training.sequence_length();
    if (Usable({"training.micro_batch_size", "training.sequence_length"}) &&
        micro * length > kMaxTokensPerMicrobatch) {
      Refuse("training.micro_batch_size", absl::StrCat(micro),
             absl::StrCat("at most ", kMaxTokensPerMicrobatch / length, " with sequence_length ", length,
                          " (", kMaxTokensPerMicrobatch, " tokens a microbatch)"),
             "use a smaller number: global_batch_size says how much a step sees");
    }
    const int64_t layers = spec().model().num_hidden_layers();
    if (Usable({"model.num_hidden_layers", "training.validation_batches", "training.validate_every_steps",
                "parallelism.ranks"}) &&
        training.validate_every_steps() > 0) {
      const int64_t rounds = kMaxLayerPasses / layers;
      const int64_t most = rounds * spec().parallelism().ranks();
      if (training.validation_batches() > most) {
        Refuse("training.validation_batches", absl::StrCat(training.validation_batches()),
               absl::StrCat("at most ", most, " (", rounds, " microbatches of a rank, with ", layers,
                            " layers)"),
               "use fewer, or a larger micro_batch_size");
      }
    }
    const int64_t model_ranks = ModelRanks();
    if (!Usable({"training.micro_batch_size", "training.global_batch_size", "parallelism.ranks"}) ||
        model_ranks == 0) {
      return;
    }
    const int64_t data_ranks = spec().parallelism().ranks() / model_ranks;
    const int64_t unit = micro * data_ranks;
    if (global % unit != 0) {
      Refuse("training.global_batch_size", absl::StrCat(global),
             absl::StrCat("a multiple of ", unit, " (micro_batch_size ", micro, " × ", data_ranks,
                          data_ranks == 1 ? " rank)" : " ranks)"),
             NearestMultiples(global, unit, 1 << 24));
      return;
    }
    if (Usable({"model.num_hidden_layers"}) && global / unit > kMaxLayerPasses / layers) {
      Refuse("training.global_batch_size", absl::StrCat(global),
             absl::StrCat("at most ", kMaxLayerPasses / layers * unit, " (", kMaxLayerPasses / layers,
                          " microbatches of a rank, with ", layers, " layers)"),
             "use a larger micro_batch_size, or more ranks");
      return;
    }
    if (Usable({"training.steps", "training.sequence_length"}) &&
        training.steps() > kMaxTokensPerJob / (global * length)) {
      Refuse("training.steps", absl::StrCat(training.steps()),
             absl::StrCat("at most ", kMaxTokensPerJob / (global * length), " with ", global * length,
                          " tokens a step"),
             "use fewer");
    }
  }

  void CheckPrecision() {
    const v1::Precision& precision = spec().precision();
    CheckTransport("precision", precision.compute(), precision.transport());
    CheckUnitCompute("precision.embedding", precision.embedding().compute());
    CheckTransport("precision.embedding", precision.embedding().compute(), precision.embedding().transport());
    CheckUnitCompute("precision.head", precision.head().compute());
    CheckTransport("precision.head", precision.head().compute(), precision.head().transport());
    if (spec().model().tie_word_embeddings() &&
        Usable({"precision.embedding.compute", "precision.head.compute"}) &&
        precision.embedding().compute() != precision.head().compute()) {
      const char* const path =
          IsWritten("precision.head.compute") ? "precision.head.compute" : "precision.embedding.compute";
      Refuse(path, ValueText(FindValue(spec(), path)),
             "one type for embedding and head, which share a matrix",
             "give both the same, or model: {tie_word_embeddings: false}");
    }
  }

  // Hidden states are of precision.compute; a unit converts them. Of a type that it takes from there nothing
  // is said here, nor below.
  void CheckUnitCompute(const std::string& unit, v1::ComputeType compute) {
    const std::string path = absl::StrCat(unit, ".compute");
    const bool fp64 = spec().precision().compute() == v1::COMPUTE_TYPE_FP64;
    if (IsWritten(path) && Usable({"precision.compute", path}) &&
        fp64 != (compute == v1::COMPUTE_TYPE_FP64)) {
      Refuse(path, ValueText(FindValue(spec(), path)), fp64 ? "fp64" : "fp32, bf16",
             "fp64 is for whole models: use one of these, or leave the key out");
    }
  }

  void CheckTransport(const std::string& unit, v1::ComputeType compute, v1::ComputeType transport) {
    const std::string path = absl::StrCat(unit, ".transport");
    const std::string source = absl::StrCat(unit, ".compute");
    if (!IsWritten(path) || !Usable({path, source}) || compute == transport ||
        (compute == v1::COMPUTE_TYPE_BF16 && transport == v1::COMPUTE_TYPE_FP32)) {
      return;
    }
    const std::string computed = ValueText(FindValue(spec(), source));
    Refuse(path, ValueText(FindValue(spec(), path)),
           compute == v1::COMPUTE_TYPE_BF16 ? "bf16, fp32" : computed,
           absl::StrCat("gradients are computed in ", computed, ": use one of these, or leave the key out"));
  }

  void CheckCheckpoint() {
    const v1::Checkpoint& checkpoint = spec().checkpoint();
    if (checkpoint.has_directory()) {
      CheckPath("checkpoint.directory", checkpoint.directory());
    } else if (spec().has_checkpoint() &&
               (checkpoint.has_every_steps() || checkpoint.has_keep() || checkpoint.has_resume())) {
      Refuse("checkpoint.directory", "", AllowedText("checkpoint.directory"),
             "name the folder of the checkpoints, or omit the block");
    }
    if (checkpoint.has_resume() && checkpoint.resume() != kResumeNewest &&
        checkpoint.resume() != kResumeNone) {
      CheckPath("checkpoint.resume", checkpoint.resume());
    }
  }
};

}  // namespace

std::vector<v1::Violation> ValidateExcept(const v1::JobSpec& spec, const std::vector<std::string>& unusable) {
  return Validator(spec, unusable).Run();
}

std::vector<v1::Violation> Validate(const v1::JobSpec& spec) { return ValidateExcept(spec, {}); }

}  // namespace tandem::jobspec
