// SPDX-License-Identifier: Apache-2.0
#include "jobspec/check_files.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/start_files.h"
#include "data/file_kind.h"
#include "data/held_out.h"
#include "data/token_files.h"
#include "jobspec/data_texts.h"
#include "jobspec/jobspec.h"
#include "jobspec/resume.h"
#include "jobspec/schema.h"
#include "jobspec/start_weights.h"
#include "jobspec/text.h"
#include "platform/counted_text.h"
#include "platform/file_list.h"
#include "platform/files.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

// The elements of the matrices of one layer's attention.
int64_t AttentionElements(const v1::Model& model) {
  const int64_t hidden = model.hidden_size();
  const int64_t heads = model.num_attention_heads();
  const int64_t query = heads * model.head_dim();
  if (!model.has_latent_attention()) {
    return hidden * model.head_dim() * 2 * (heads + model.num_key_value_heads());
  }
  const v1::LatentAttention& latent = model.latent_attention();
  const int64_t rank = latent.q_lora_rank();
  return (rank > 0 ? rank * (hidden + query) : hidden * query) +
         hidden * (latent.kv_lora_rank() + latent.qk_rope_head_dim()) +
         latent.kv_lora_rank() * heads * (latent.qk_nope_head_dim() + latent.v_head_dim()) +
         heads * latent.v_head_dim() * hidden;
}

// The first name in the folder that says that it is in use; none where it is as good as empty.
std::optional<std::string> FirstHeld(const std::string& folder, std::error_code& error) {
  namespace fs = std::filesystem;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!checkpoint::CountsAsNothing(name)) {
      return name;
    }
  }
  return std::nullopt;
}

// Whether the files of `pattern` would include those of checkpoints that are saved in `folder`.
bool WouldFind(const std::string& pattern, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool literal = fs::exists(pattern, error);
  const std::string glob = pattern.substr(0, pattern.find_last_not_of('/') + 1);
  const fs::path root = fs::weakly_canonical(pattern, error);
  const fs::path inner = fs::path(folder).lexically_normal() / "step-1" / "tensors";
  const fs::path deepest = literal ? fs::weakly_canonical(inner, error) : inner;
  for (fs::path path = deepest; path.has_relative_path(); path = path.parent_path()) {
    if (literal ? path == root : fnmatch(glob.c_str(), path.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) {
      return true;
    }
  }
  return false;
}

class FileChecker {
 public:
  FileChecker(const v1::JobSpec& spec, const BeforePath& before) : spec_(spec), before_(before) {}

  std::vector<v1::Violation> Run() {
    CheckText();
    if (spec_.checkpoint().has_directory() &&
        before_("checkpoint.directory", spec_.checkpoint().directory())) {
      CheckDirectory(spec_.checkpoint().directory());
    }
    if (spec_.checkpoint().has_start_from() && before_(kStartFrom, spec_.checkpoint().start_from())) {
      for (v1::Violation& violation : CheckStartFrom(platform::SystemFiles(), spec_)) {
        violations_.push_back(std::move(violation));
      }
    }
    if (IsResumePath(spec_.checkpoint().resume()) &&
        before_("checkpoint.resume", spec_.checkpoint().resume())) {
      CheckResume(spec_.checkpoint().resume());
    }
    return std::move(violations_);
  }

 private:
  using FileId = std::pair<dev_t, ino_t>;

  void CheckText() {
    const v1::Data& data = spec_.data();
    std::vector<DataText> train = TrainingTexts(data);
    std::vector<DataText> held_out = ValidationTexts(data);
    for (std::vector<DataText>* texts : {&train, &held_out}) {
      std::erase_if(*texts, [&](const DataText& text) { return !before_(text.field, text.path); });
    }
    if (train.empty()) {
      for (const DataText& text : held_out) {
        if (!IsTokens(text)) {
          CheckData(text);
        }
      }
      return;
    }
    const DataText first = train[0];
    const bool tokens = IsTokens(first);
    for (std::vector<DataText>* texts : {&train, &held_out}) {
      std::erase_if(*texts, [&](const DataText& text) {
        const bool other = IsTokens(text) != tokens;
        if (other) {
          Refuse(text.field, text.path,
                 absl::StrCat(tokens ? "tokens, as " : "text, as ", first.field, " is"),
                 tokens ? "prepare it with the same tokenizer"
                        : absl::StrCat("prepare ", first.field, " too, or use text for both"));
        }
        return other;
      });
    }
    if (tokens) {
      CheckTokens(train, held_out);
      return;
    }
    if (data.end_of_document() > 255) {
      Refuse("data.end_of_document", absl::StrCat(data.end_of_document()), "0 to 255 where bytes are tokens",
             "write the byte's number: 10 for a newline, 0 for NUL");
    }
    if (data.tokenizer() != "bytes" && spec_.model().has_vocab_size() && spec_.model().vocab_size() < 256) {
      Refuse("model.vocab_size", absl::StrCat(spec_.model().vocab_size()),
             "at least 256 where bytes are tokens", "a byte has 256 values: use 256");
    }
    std::vector<std::pair<DataText, std::map<FileId, std::string>>> trained;
    for (const DataText& text : train) {
      if (const std::optional<Text> found = CheckData(text); found.has_value()) {
        CheckParts(text, found->files);
        trained.push_back({text, {found->paths.begin(), found->paths.end()}});
      }
    }
    for (const DataText& text : held_out) {
      const auto validation = CheckData(text);
      for (size_t i = 0; validation.has_value() && i < trained.size(); ++i) {
        if (!CheckApart(trained[i].second, trained[i].first.field, text, validation->paths)) {
          break;
        }
      }
    }
  }

  static bool IsTokens(const DataText& text) {
    return data::FormatOf(text.path, FormatOf(text)) != data::TextFormat::kBytes;
  }

  void CheckTokens(const std::vector<DataText>& train, const std::vector<DataText>& held_out) {
    const v1::Data& data = spec_.data();
    if (data.tokenizer() == "bytes") {
      Refuse("data.tokenizer", "bytes", absl::StrCat("auto where ", train[0].field, " is tokens"),
             "they have a tokenizer of their own: omit the key");
    }
    std::optional<data::TokenText> known;  // the first that says its tokenizer
    std::string known_field;
    std::string indexed;  // the first field whose text has an index
    std::vector<std::pair<std::string, std::map<FileId, std::string>>> trained;  // by field
    for (const std::vector<DataText>* texts : {&train, &held_out}) {
      for (const DataText& text : *texts) {
        const std::optional<data::TokenText> read = CheckTokenText(text);
        if (!read.has_value()) {
          continue;
        }
        if (indexed.empty() && data::HasIndex(read->format)) {
          indexed = text.field;
        }
        if (!held_out.empty()) {
          const std::vector<std::pair<FileId, std::string>> files = FilesOf(*read);
          if (texts == &train) {
            trained.push_back({text.field, {files.begin(), files.end()}});
          }
          for (size_t i = 0; texts == &held_out && i < trained.size(); ++i) {
            if (!CheckApart(trained[i].second, trained[i].first, text, files)) {
              break;
            }
          }
        }
        if (known.has_value() && !data::HaveSameTokenizer(*known, *read)) {
          Refuse(
              text.field, text.path, absl::StrCat("a folder prepared with the tokenizer of ", known_field),
              absl::StrCat("it was prepared with ", platform::Shown(read->dataset->tokenizer_path, 200),
                           ", and ", known_field, " with ",
                           platform::Shown(known->dataset->tokenizer_path, 200), ": prepare both with one"));
        }
        if (!known.has_value() && read->dataset.has_value()) {
          known = read;
          known_field = text.field;
        }
      }
    }
    if (data.has_end_of_document() && !indexed.empty()) {
      Refuse("data.end_of_document", absl::StrCat(data.end_of_document()),
             absl::StrCat("absent where ", indexed, " has an index"),
             "the index says where documents begin: omit the key");
    }
  }

  // The files of tokens that are there: of one that is not, what reads it says so.
  static std::vector<std::pair<FileId, std::string>> FilesOf(const data::TokenText& text) {
    std::vector<std::pair<FileId, std::string>> files;
    for (const data::TokenFile& file : text.files) {
      struct stat info;
      if (stat(file.path.c_str(), &info) == 0) {
        files.emplace_back(FileId(info.st_dev, info.st_ino), file.path);
      }
    }
    return files;
  }

  // Nothing where it has been refused.
  std::optional<data::TokenText> CheckTokenText(const DataText& named) {
    const std::string& path = named.field;
    const std::string& folder = named.path;
    const data::TextFormat format = data::FormatOf(folder, FormatOf(named));
    absl::StatusOr<data::TokenText> text = data::ReadTokenText(folder, format, TokenTypeOf(named));
    if (!text.ok()) {
      const bool prepared = format == data::TextFormat::kPrepared;
      Refuse(path, folder,
             prepared ? "a folder as tandem data prepare makes it" : "files of tokens that are whole",
             absl::StrCat(text.status().message(),
                          prepared ? ": prepare it again" : ": tandem data check says more"));
      return std::nullopt;
    }
    if (text->tokens < Window()) {
      Refuse(path, folder, absl::StrCat("at least ", Window(), " tokens (sequence_length + 1)"),
             absl::StrCat("it holds ", platform::CountedText(text->tokens, "token"),
                          ": use more text, or shorter sequences"));
      return std::nullopt;
    }
    const int64_t vocabulary = spec_.model().vocab_size();
    if (text->dataset.has_value() && spec_.model().has_vocab_size() &&
        text->dataset->vocabulary > vocabulary) {
      Refuse("model.vocab_size", absl::StrCat(vocabulary),
             absl::StrCat("at least ", text->dataset->vocabulary, " with the tokenizer of ", path),
             absl::StrCat("the tokenizer ", platform::Shown(text->dataset->tokenizer_path, 200),
                          " has ids up to ", text->dataset->vocabulary - 1, ": use ",
                          text->dataset->vocabulary, ", or prepare the text with the model's own tokenizer"));
      return std::nullopt;
    }
    return *std::move(text);
  }

  // The files that hold something, each once; their paths where two texts are compared.
  struct Text {
    std::vector<data::NamedSize> files;
    std::vector<std::pair<FileId, std::string>> paths;
  };

  void Refuse(const std::string& path, const std::string& value, const std::string& allowed,
              const std::string& remedy) {
    violations_.push_back(MakeViolation(path, value, allowed, remedy));
  }

  int64_t Window() const { return spec_.training().sequence_length() + 1; }

  std::string WindowText() const {
    return absl::StrCat("at least ", Window(), " bytes (sequence_length + 1)");
  }

  // Nothing where they have been refused.
  std::optional<Text> CheckData(const DataText& named) {
    const std::string& path = named.field;
    const std::string& pattern = named.path;
    constexpr char kAllowed[] = "an existing file, folder or glob";
    const absl::StatusOr<std::vector<std::string>> paths = platform::ListFiles(pattern);
    if (!paths.ok()) {
      Refuse(path, pattern, kAllowed, std::string(paths.status().message()));
      return std::nullopt;
    }
    const std::string root = data::RootOf(pattern);
    Text text;
    int64_t bytes = 0;
    std::set<FileId> seen;  // a file of several names is one
    for (const std::string& file : *paths) {
      struct stat info;
      if (access(file.c_str(), R_OK) != 0 || stat(file.c_str(), &info) != 0) {
        Refuse(path, pattern, "files that can be read",
               absl::StrCat("cannot read ", platform::Shown(file, 200), ": ", strerror(errno)));
        return std::nullopt;
      }
      if (const std::string kind = data::KindOfNoText(file, "");
          !kind.empty() && info.st_size > 0 && FormatOf(named) != data::TextFormat::kBytes) {
        Refuse(path, pattern, "files of tokens, or of text",
               absl::StrCat(platform::Shown(file, 200), " is ", kind, ": ", data::kPrepareIt));
        return std::nullopt;
      }
      const FileId id(info.st_dev, info.st_ino);
      if (info.st_size > 0 && seen.insert(id).second) {
        text.files.push_back({.name = data::NameBelow(root, file), .size = info.st_size});
        if (!ValidationTexts(spec_.data()).empty()) {
          text.paths.emplace_back(id, file);
        }
        bytes += info.st_size;
      }
    }
    if (bytes < Window()) {
      Refuse(path, pattern, WindowText(),
             absl::StrCat("it holds ", platform::CountedText(bytes, "byte"), " in ",
                          platform::CountedText(paths->size(), "file"),
                          ": use more text, or shorter sequences"));
      return std::nullopt;
    }
    const std::string& directory = spec_.checkpoint().directory();
    if (!directory.empty() && WouldFind(pattern, directory)) {
      Refuse("checkpoint.directory", directory,
             absl::StrCat("a folder that is not among the files of ", path),
             absl::StrCat(platform::Shown(pattern, 200),
                          " would take the checkpoints for text: use a folder beside it, not in it"));
    }
    return text;
  }

  // The trainer refuses the same when it starts. False where it has been refused.
  bool CheckApart(const std::map<FileId, std::string>& trained, const std::string& of, const DataText& named,
                  const std::vector<std::pair<FileId, std::string>>& validation) {
    for (const auto& [id, path] : validation) {
      if (const auto found = trained.find(id); found != trained.end()) {
        Refuse(
            named.field, named.path, "files that are not among those of " + of,
            absl::StrCat(platform::Shown(path, 200), " is also a training file",
                         found->second == path ? "" : ", " + platform::Shown(found->second, 200),
                         ": name other files, or hold out a part of ", of, " with data.validation_fraction"));
        return false;
      }
    }
    return true;
  }

  // "README, 12 bytes", of the files of which a part is taken.
  static std::string Part(const std::vector<data::NamedSize>& files, const std::vector<int64_t>& bytes) {
    std::string name;
    int64_t number = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      if (bytes[i] > 0) {
        name = files[i].name;
        ++number;
      }
    }
    const int64_t sum = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    return absl::StrCat(number == 1 ? platform::Shown(name, 200) : platform::CountedText(number, "file"),
                        ", ", platform::CountedText(sum, "byte"));
  }

  // What is trained on and what is held out, as the trainer will divide the files.
  void CheckParts(const DataText& text, const std::vector<data::NamedSize>& files) {
    const v1::Data& data = spec_.data();
    const bool is_named = !ValidationTexts(data).empty();
    const double fraction = is_named ? 0 : data.validation_fraction();
    const std::vector<int64_t> held = data::HeldOutBytes(files, fraction);
    std::vector<int64_t> trained;
    for (size_t i = 0; i < files.size(); ++i) {
      trained.push_back(files[i].size - held[i]);
    }
    const auto sum = [](const std::vector<int64_t>& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    };
    if (sum(trained) < Window()) {
      Refuse(text.field, text.path, absl::StrCat(WindowText(), " to train on"),
             absl::StrCat("beside what validation_fraction ", NumberText(fraction), " holds out there is ",
                          Part(files, trained),
                          ": use more text, or name the held-out text with "
                          "data.validation"));
    } else if (spec_.training().validate_every_steps() > 0 && !is_named && fraction > 0 &&
               sum(held) < Window()) {
      Refuse(text.field, text.path, absl::StrCat(WindowText(), " to hold out"),
             absl::StrCat("validation_fraction ", NumberText(fraction), " holds out ", Part(files, held),
                          files.size() == 1 ? "" : ", as whole files",
                          ": name other text with data.validation, hold out a larger fraction, or use "
                          "training.validate_every_steps: 0"));
    }
    const auto is_trained = [](int64_t bytes) { return bytes > 0; };
    if (data.documents() == v1::DOCUMENTS_PACKED && data.sources().empty() && !data.has_end_of_document() &&
        std::count_if(trained.begin(), trained.end(), is_trained) == 1) {
      const size_t only = std::find_if(trained.begin(), trained.end(), is_trained) - trained.begin();
      Refuse("data.documents", "packed", "stream, or packed where two files or more are trained on",
             absl::StrCat("a file is a document, and only ", platform::Shown(files[only].name, 200),
                          " is trained on, of ", platform::CountedText(files.size(), "file"),
                          " with text in ", platform::Shown(text.path, 200),
                          ": name the token that ends a document with data.end_of_document, or use stream"));
    }
  }

  void CheckDirectory(const std::string& directory) {
    namespace fs = std::filesystem;
    constexpr char kPath[] = "checkpoint.directory";
    constexpr char kAllowed[] = "a folder that can be made, or written to";
    std::error_code error;
    fs::path existing = fs::path(directory).lexically_normal();
    if (!existing.has_filename()) {
      existing = existing.parent_path();  // without the slash at its end, which follows a link
    }
    while (!fs::exists(existing, error) && !error && existing.has_relative_path()) {
      if (fs::is_symlink(fs::symlink_status(existing, error))) {
        Refuse(
            kPath, directory, kAllowed,
            absl::StrCat(platform::Shown(existing.string(), 200), " is a symbolic link to ",
                         platform::Shown(fs::read_symlink(existing, error).string(), 200),
                         ", where nothing is: make that folder, mount its file system, or remove the link"));
        return;
      }
      existing = existing.parent_path();
    }
    if (error) {
      Refuse(kPath, directory, kAllowed,
             absl::StrCat("cannot look at ", platform::Shown(existing.string(), 200), ": ", error.message()));
      return;
    }
    if (!fs::is_directory(existing, error)) {
      Refuse(kPath, directory, kAllowed,
             absl::StrCat(platform::Shown(existing.string(), 200), " is not a folder"));
      return;
    }
    if (access(existing.c_str(), W_OK | X_OK) != 0) {
      Refuse(
          kPath, directory, kAllowed,
          absl::StrCat("cannot write to ", platform::Shown(existing.string(), 200), ": ", strerror(errno)));
      return;
    }
    if (!spec_.checkpoint().has_resume() && fs::is_directory(directory, error)) {
      const std::optional<std::string> held = FirstHeld(directory, error);
      if (error) {
        Refuse(kPath, directory, kAllowed, absl::StrCat("cannot be listed: ", error.message()));
        return;
      }
      if (held) {
        Refuse(kPath, directory, "a new or empty folder, unless checkpoint.resume says how to go on",
               absl::StrCat("it holds ", platform::Shown(*held, 100),
                            ": use checkpoint: {resume: newest} to go on from there, or another folder"));
        return;
      }
    }
    CheckSpace(directory, existing.string());
  }

  // Room for one checkpoint: the weights and AdamW's two moments.
  void CheckSpace(const std::string& directory, const std::string& existing) {
    const v1::Model& model = spec_.model();
    const int64_t hidden = model.hidden_size();
    const v1::MixtureOfExperts& moe = model.moe();
    const int64_t attention = AttentionElements(model);
    const int64_t dense = attention + 3 * hidden * model.intermediate_size() + 2 * hidden;
    const int64_t experts = moe.num_experts() + moe.n_shared_experts();
    const int64_t sparse = attention + experts * 3 * hidden * moe.moe_intermediate_size() +
                           moe.num_experts() * hidden + 2 * hidden;
    double layers = 0;
    for (int64_t layer = 0; layer < model.num_hidden_layers(); ++layer) {
      const bool is_sparse = moe.decoder_sparse_step() > 0 && (layer + 1) % moe.decoder_sparse_step() == 0 &&
                             layer >= moe.first_k_dense_replace();
      layers += static_cast<double>(is_sparse ? sparse : dense);
    }
    const int64_t ends = model.vocab_size() * hidden * (model.tie_word_embeddings() ? 1 : 2) + hidden;
    const double element = spec_.precision().compute() == v1::COMPUTE_TYPE_FP64 ? 8 : 4;
    const double needed = 3 * element * (layers + ends);
    struct statvfs space;
    if (statvfs(existing.c_str(), &space) != 0) {
      Refuse("checkpoint.directory", directory, "a folder whose free space is known",
             absl::StrCat("statvfs: ", strerror(errno)));
      return;
    }
    const double free = static_cast<double>(space.f_bavail) * space.f_frsize;
    if (free < needed) {
      Refuse("checkpoint.directory", directory,
             absl::StrCat("a folder with room for one checkpoint, ", Megabytes(needed)),
             absl::StrCat("free are ", Megabytes(free), ": make room, or use another folder"));
    }
  }

  static std::string Megabytes(double bytes) {
    return absl::StrCat(static_cast<int64_t>(bytes / 1e6), " MB");
  }

  void CheckResume(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      const bool exists = std::filesystem::exists(path, error);
      Refuse("checkpoint.resume", path, "newest, none, or the folder of one checkpoint",
             exists  ? "it is not a folder"
             : error ? error.message()
                     : "no such folder");
    }
  }

  const v1::JobSpec& spec_;
  const BeforePath& before_;
  std::vector<v1::Violation> violations_;
};

}  // namespace

std::vector<std::string> DataPaths(const std::string& path) { return data::PathsReadFor(path); }

std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved, const BeforePath& before) {
  return FileChecker(resolved, before).Run();
}

std::vector<v1::Violation> CheckFiles(const v1::JobSpec& resolved) {
  return CheckFiles(resolved, [](const std::string&, const std::string&) { return true; });
}

}  // namespace tandem::jobspec
