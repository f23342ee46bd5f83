// SPDX-License-Identifier: Apache-2.0
// Writes docs/job_reference.md, the page that says what a job file may contain, from the proto (fields and
// their comments), Resolve (defaults) and the tables of field_rules.h (limits), or compares the page with
// them.
//
//   job_reference DESCRIPTOR PAGE [--update]     (DESCRIPTOR: job.proto with source info, as protoc writes
//   it)
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.pb.h"
#include "jobspec/field_rules.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"

namespace tandem::jobspec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::SourceCodeInfo;

constexpr char kPreamble[] =
    R"(# What a job file may contain

<!-- tests/docs/job_reference.cc writes this page from proto/tandem/v1/job.proto, its defaults and its limits, and a
     test compares them. After a change, `cmake --build build/release --target update_job_reference` writes it again. -->

A job file is YAML or JSON, and holds one message `JobSpec` of [job.proto](../proto/tandem/v1/job.proto). A key is the
name of a field; a block is a message. `tandem validate`, `tandem submit` and the controller refuse unknown keys, values
out of bounds and combinations that do not work: all of them at once, and all three in the same words.
[examples/headers.yaml](../examples/headers.yaml) is a small job with comments.

* **Default**: the value of a key that the file does not give. "required" marks a key that every job must give, and
  "required in this block" one that every job with that block must give; "none" marks a key that has no default value.
* **Allowed**: the values that the key itself may have. `tandem validate` also checks the values against each other: for
  example, micro_batch_size × ranks must divide global_batch_size, and a sequence must not be longer than the model
  allows.
* "Not built yet" marks keys and values that are reserved: they are refused today.
* A relative path in a file is resolved in the working directory of the command that reads the file; over the API, paths
  must be absolute. The paths of data and checkpoints must lead to the same files on every worker.
* **Your text**: files of tokens are read as such ([data.md](data.md)); of any other file every byte is a token. Files are not
  unpacked or parsed.
* **Your model**: `model: {hugging_face: DIR/config.json}` takes the sizes from that file, and
  `checkpoint: {start_from: DIR}` the weights beside it; without the second, training starts from random ones. [formats.md](formats.md#hugging-face-folders) lists the families.
* Every field has been there since 0.1.0, unless its description names a later version.
)";

// A job with every block that has defaults of its own.
v1::JobSpec Probe(int64_t steps, int64_t num_heads, int32_t tensor, v1::Strategy strategy) {
  v1::JobSpec spec;
  spec.mutable_model()->set_hidden_size(64);
  spec.mutable_model()->set_intermediate_size(64 * num_heads);
  spec.mutable_model()->set_num_hidden_layers(2);
  spec.mutable_model()->set_num_attention_heads(num_heads);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_model()->mutable_moe()->set_num_experts(8);
  spec.mutable_model()->mutable_moe()->set_num_experts_per_tok(2);
  spec.mutable_data()->set_train("/data");
  spec.mutable_training()->set_steps(steps);
  spec.mutable_training()->set_sequence_length(16);
  spec.mutable_training()->set_micro_batch_size(1);
  spec.mutable_training()->set_global_batch_size(1);
  spec.mutable_parallelism()->set_tensor(tensor);
  if (tensor > 1) {
    spec.mutable_precision()->set_compute(v1::COMPUTE_TYPE_BF16);
  }
  spec.mutable_parallelism()->mutable_fsdp()->set_strategy(strategy);
  spec.mutable_checkpoint()->set_directory("/checkpoints");
  return spec;
}

// Defaults that follow from other fields. A default that differs between two jobs has a line here, and only
// such a one.
const std::map<std::string, std::string>& DerivedDefaults() {
  static const auto& texts = *new std::map<std::string, std::string>{
      {"model.num_key_value_heads", "`num_attention_heads`"},
      {"model.head_dim", "`hidden_size` / `num_attention_heads`"},
      {"model.moe.moe_intermediate_size", "`intermediate_size`"},
      {"training.validate_every_steps", "a tenth of `steps`, rounded up; 0 where no text is held out"},
      {"parallelism.expert_tensor", "`tensor`"},
      {"precision.transport", "`compute`"},
      {"precision.embedding.compute", "`precision.compute`"},
      {"precision.embedding.transport", "`precision.transport`, or fp32 where the unit computes in fp32"},
      {"precision.head.compute", "`precision.compute`"},
      {"precision.head.transport", "`precision.transport`, or fp32 where the unit computes in fp32"},
      {"parallelism.replicas", "2 with `hsdp` and `hfsdp`, otherwise 1"},
  };
  return texts;
}

// Defaults that follow from the model type, or from a window or a decay that no job here has.
const std::map<std::string, std::string>& DefaultsOfOtherJobs() {
  static const auto& texts = *new std::map<std::string, std::string>{
      {"model.attention_bias", "`qkv` with `qwen2`, otherwise `none`"},
      {"model.qk_norm",
       "`head` with `qwen3`, `qwen3_moe` and `qwen3_next`, `whole` with `olmo2`, otherwise `none`"},
      {"model.norms", "`after` with `olmo2`, otherwise `before`"},
      {"model.attention_gate", "`true` with `qwen3_next`, otherwise `false`"},
      {"model.norms_add_one", "`true` with `qwen3_next`, otherwise `false`"},
      {"model.moe.shared_expert_gate", "`true` with `qwen3_next`, otherwise `false`"},
      {"model.window_layers", "`all` with a `sliding_window`"},
      {"model.partial_rotary_factor", "`1` with `hybrid` and `qwen3_next`, `0.5` with `bamba`"},
      {"model.rotary_embedding", "`true` with `hybrid` and `granitemoehybrid`"},
      {"model.embedding_multiplier", "`1` with `granite` and `granitemoehybrid`"},
      {"model.attention_multiplier", "1 / sqrt(`head_dim`) with `granite` and `granitemoehybrid`"},
      {"model.residual_multiplier", "`1` with `granite` and `granitemoehybrid`"},
      {"model.logits_scaling", "`1` with `granite` and `granitemoehybrid`"},
      {"model.hybrid_pattern", "an M for each layer with `mamba2`"},
      {"model.mamba.num_heads", "2 × `hidden_size` / `mamba.head_dim`"},
      {"model.mamba.head_dim", "`64`"},
      {"model.mamba.state_size", "`128`"},
      {"model.mamba.n_groups", "`1`"},
      {"model.mamba.conv_kernel", "`4`"},
      {"model.mamba.chunk_size", "`256`"},
      {"model.gated_delta_net.num_key_heads", "`hidden_size` / `gated_delta_net.key_head_dim`"},
      {"model.gated_delta_net.num_value_heads", "2 × `gated_delta_net.num_key_heads`"},
      {"model.gated_delta_net.key_head_dim", "`128`"},
      {"model.gated_delta_net.value_head_dim", "`128`"},
      {"model.gated_delta_net.conv_kernel", "`4`"},
      {"model.gated_delta_net.chunk_size", "`64`"},
      {"training.mtp_loss_weight", "`0.1` with depths of multi-token prediction"},
      {"training.mtp_detach", "`false` with depths of multi-token prediction"},
      {"training.optimizer.no_weight_decay",
       "`*norm.weight,*.bias`; of layers by a pattern also `*norm_f.weight`, `*.A_log`, "
       "`*.D` and "
       "`*.dt_bias`"},
      {"training.schedule.decay_steps",
       "with `wsd` a tenth of `steps`, rounded up, or the steps behind the warm-up if there are fewer"},
      {"training.schedule.decay_shape", "`linear` with `wsd`"},
      {"model.moe.norm_topk_prob", "`false` with `deepseek_v2`, otherwise `true`"},
      {"model.moe.score", "`sigmoid` with `deepseek_v3`, otherwise `softmax`"},
      {"model.moe.shared_expert_intermediate_size",
       "`0` with `hybrid`; required with `granitemoehybrid` and `qwen3_next`"},
      {"model.moe.first_k_dense_replace", "`0` with `deepseek_v2` and `deepseek_v3`"},
      {"model.moe.n_group", "`1` with `deepseek_v2` and `deepseek_v3`"},
      {"model.moe.topk_group", "`1` with `deepseek_v2` and `deepseek_v3`"},
      {"model.moe.n_shared_experts", "`1` with `deepseek_v2` and `deepseek_v3`"},
      {"model.moe.routed_scaling_factor", "`1` with `deepseek_v2` and `deepseek_v3`"},
  };
  return texts;
}

class Page {
 public:
  explicit Page(const google::protobuf::FileDescriptorProto& file) : text_(kPreamble) {
    for (const SourceCodeInfo::Location& location : file.source_code_info().location()) {
      comments_[{location.path().begin(), location.path().end()}] = &location;
    }
  }

  // The page; `problems` are what it cannot say.
  std::string Write(std::vector<std::string>& problems) {
    AddBlock(*v1::JobSpec::descriptor(), "", "The job");
    for (const auto& [path, text] : DerivedDefaults()) {
      if (!derived_seen_.contains(path)) {
        problems_.push_back(absl::StrCat(path, " has a text for a derived default, but is not derived"));
      }
    }
    problems = problems_;
    return text_;
  }

 private:
  // The comment of a message or of a field as one line.
  std::string Comment(const std::vector<int>& path) const {
    const auto found = comments_.find(path);
    if (found == comments_.end()) {
      return "";
    }
    const SourceCodeInfo::Location& location = *found->second;
    const std::string& text =
        location.trailing_comments().empty() ? location.leading_comments() : location.trailing_comments();
    std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    return absl::StrReplaceAll(absl::StrJoin(words, " "), {{"|", "\\|"}, {"<", "&lt;"}});
  }

  static std::string TypeText(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return field.is_repeated() ? "list of blocks" : "block";
      case FieldDescriptor::CPPTYPE_BOOL:
        return "true or false";
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return "number";
      case FieldDescriptor::CPPTYPE_ENUM:
        return "word";
      case FieldDescriptor::CPPTYPE_STRING:
        return "text";
      default:
        return "integer";
    }
  }

  // The same path in the first entry of the list that it goes through.
  static std::string InFirstEntry(const std::string& path) {
    for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
      const FieldDescriptor* const field = FindField(path.substr(0, dot));
      if (field != nullptr && field->is_repeated()) {
        return absl::StrCat(EntryPath(path.substr(0, dot), 0), path.substr(dot));
      }
    }
    return path;
  }

  std::string DefaultText(const std::string& path) {
    const v1::JobSpec one = Resolve(Probe(10, 4, 1, v1::STRATEGY_ZERO3));
    const v1::JobSpec other = Resolve(Probe(100, 8, 2, v1::STRATEGY_HSDP));
    for (const RequiredRule& rule : RequiredRules()) {
      if (path == rule.path) {
        return InFirstEntry(path) == path ? "required" : "required in an entry";
      }
    }
    if (const auto found = DefaultsOfOtherJobs().find(path); found != DefaultsOfOtherJobs().end()) {
      return found->second;
    }
    // Given in both jobs, or absent from them.
    const v1::JobSpec given = Probe(10, 4, 1, v1::STRATEGY_ZERO3);
    const bool has_default =
        path == "parallelism.tensor" || path == "parallelism.fsdp.strategy" || path == "precision.compute";
    if (FindValue(given, path).message != nullptr && !has_default) {
      return absl::StartsWith(path, "model.moe.") ? "required in this block"  // no preset has experts
             : absl::StartsWith(path, "model.")   ? "the preset's; required without a preset"
                                                  : "none";
    }
    const FieldValue value = FindValue(one, path);
    if (value.message == nullptr) {
      v1::JobSpec shared = given;  // which alone has blocks, or a model, for it
      shared.mutable_model()->set_model_type("deepseek_v3");
      shared.mutable_parallelism()->set_schedule(v1::SCHEDULE_OVERLAP);
      shared.mutable_parallelism()->set_expert(2);
      shared.mutable_data()->add_sources();
      shared.mutable_data()->add_validation_sets();
      shared.mutable_checkpoint()->mutable_export_();
      for (const v1::Violation& violation : Validate(shared)) {
        if (WithoutIndices(violation.path()) == path && violation.value().empty()) {
          return "required in this block";  // Validate says that it is missing
        }
      }
      const v1::JobSpec resolved = Resolve(shared);
      const FieldValue of_shared = FindValue(resolved, InFirstEntry(path));
      return of_shared.message == nullptr
                 ? "none"
                 : absl::StrCat("`", ValueText(of_shared), "`",
                                absl::StartsWith(path, "model.") ? " with `deepseek_v3`" : "");
    }
    const std::string text = ValueText(value);
    const bool differs = text != ValueText(FindValue(other, path)) && !has_default;
    const auto derived = DerivedDefaults().find(path);
    if (differs != (derived != DerivedDefaults().end())) {
      problems_.push_back(
          absl::StrCat(path, ": its default ", differs ? "follows" : "does not follow",
                       " from other fields; see DerivedDefaults in tests/docs/job_reference.cc"));
    }
    if (differs && derived != DerivedDefaults().end()) {
      derived_seen_[path] = true;
      return derived->second;
    }
    return absl::StrCat("`", text, "`");
  }

  static std::string AllowedCell(const FieldDescriptor& field, const std::string& path) {
    for (const AbsentRule& rule : AbsentRules()) {
      if (path == rule.path) {
        return rule.remedy;
      }
    }
    for (const BuiltRule& rule : BuiltRules()) {
      if (path == rule.path) {
        const bool partly = absl::StartsWith(rule.remedy, "not built yet");
        return absl::StrCat(AllowedText(path), partly ? absl::StrCat("; ", rule.remedy) : "");
      }
    }
    return field.message_type() != nullptr ? "see below" : AllowedText(path);
  }

  // The path of a block with the same keys and rules that the page has described; empty: there is none.
  // Blocks with defaults may differ in them.
  std::string SameBlock(const Descriptor& type, const std::string& path) {
    const auto found = described_.find(&type);
    const v1::JobSpec resolved = Resolve(Probe(10, 4, 1, v1::STRATEGY_ZERO3));
    if (found == described_.end() || FindValue(resolved, path).message != nullptr) {
      return "";
    }
    return found->second;
  }

  static bool IsRefused(const std::string& path) {
    for (const AbsentRule& rule : AbsentRules()) {
      if (path == rule.path) {
        return true;
      }
    }
    return false;
  }

  void AddBlock(const Descriptor& type, const std::string& path, const std::string& title) {
    absl::StrAppend(&text_, "\n## ", title, "\n\n");
    if (const std::string about = Comment({4, type.index()}); !about.empty() && !path.empty()) {
      absl::StrAppend(&text_, about, "\n\n");
    }
    absl::StrAppend(&text_, "| key | type | default | allowed | what it is |\n|---|---|---|---|---|\n");
    std::vector<const FieldDescriptor*> blocks;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string field_path = JoinPath(path, field.name());
      const bool block = field.message_type() != nullptr;
      const std::string about = Comment({4, type.index(), 2, i});
      if (about.empty() && !block) {
        problems_.push_back(absl::StrCat(field_path, " has no comment in job.proto"));
      }
      const std::string same = block ? SameBlock(*field.message_type(), field_path) : "";
      absl::StrAppend(&text_, "| `", field.name(), "` | ", TypeText(field), " | ",
                      block ? "" : DefaultText(field_path), " | ",
                      same.empty() ? AllowedCell(field, field_path) : absl::StrCat("as `", same, "`"), " | ",
                      about, " |\n");
      if (block && same.empty() && !IsRefused(field_path)) {
        blocks.push_back(&field);
        described_[field.message_type()] = field_path;
      }
    }
    for (const FieldDescriptor* field : blocks) {
      const std::string field_path = JoinPath(path, field->name());
      AddBlock(*field->message_type(), field_path, absl::StrCat("`", field_path, "`"));
    }
  }

  std::map<std::vector<int>, const SourceCodeInfo::Location*> comments_;
  std::map<std::string, bool> derived_seen_;
  std::map<const Descriptor*, std::string> described_;  // blocks, by their first path
  std::vector<std::string> problems_;
  std::string text_;
};

int Main(int argc, char** argv) {
  const bool update = argc == 4 && std::string(argv[3]) == "--update";
  google::protobuf::FileDescriptorSet set;
  std::ifstream descriptor(argc >= 3 ? argv[1] : "", std::ios::binary);
  if ((argc != 3 && !update) || !set.ParseFromIstream(&descriptor) || set.file_size() != 1) {
    std::cerr << "usage: job_reference DESCRIPTOR PAGE [--update]\n";
    return 2;
  }
  std::vector<std::string> problems;
  const std::string page = Page(set.file(0)).Write(problems);
  for (const std::string& problem : problems) {
    std::cerr << problem << "\n";
  }
  if (update) {
    std::ofstream(argv[2]) << page;
    return problems.empty() ? 0 : 1;
  }
  std::ifstream stream(argv[2]);
  const std::string written((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const std::vector<std::string> now = absl::StrSplit(page, '\n');
  const std::vector<std::string> then = absl::StrSplit(written, '\n');
  for (size_t i = 0; i < std::max(now.size(), then.size()) && written != page; ++i) {
    const std::string expected = i < now.size() ? now[i] : "(the end)";
    const std::string found = i < then.size() ? then[i] : "(the end)";
    if (expected != found) {
      std::cerr << argv[2] << ":" << i + 1
                << " is not what the schema says; run this with --update\n  page:   " << found
                << "\n  schema: " << expected << "\n";
      return 1;
    }
  }
  return problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tandem::jobspec

int main(int argc, char** argv) { return tandem::jobspec::Main(argc, argv); }
