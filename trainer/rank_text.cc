// SPDX-License-Identifier: Apache-2.0
#include "trainer/rank_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "trainer/batch_reader.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

data::TextPath PathOf(const jobspec::DataText& text) {
  return {.field = text.field,
          .path = text.path,
          .format = jobspec::FormatOf(text),
          .token_type = jobspec::TokenTypeOf(text)};
}

data::SplitText TextOf(const plan::JobPlan& plan) {
  const plan::DataConfig& data = plan.train.data;
  data::TextOptions options{.validation_fraction = data.validation_fraction,
                            .validates = plan.train.validate_every_steps > 0,
                            .sequence_length = plan.batch.sequence_length};
  for (const jobspec::DataText& text : data.train) {
    options.train.push_back(PathOf(text));
  }
  for (const jobspec::DataText& text : data.validation) {
    options.validation.push_back(PathOf(text));
  }
  if (plan.batch.packs_documents || !data.counts_first_tokens) {
    options.documents = data::Documents{.end_of_document = data.end_of_document};
  }
  return data::OpenText(options, platform::SteadyClock());
}

data::RowOptions RowsOf(const plan::JobPlan& plan) {
  return {.packs_documents = plan.batch.packs_documents,
          .has_targets = plan.batch.has_targets,
          .counts_first_tokens = plan.train.data.counts_first_tokens,
          .shuffles = plan.train.data.shuffles};
}

std::vector<data::LoaderText> TrainingTextsOf(const plan::JobPlan& plan, const data::SplitText& opened) {
  std::vector<data::LoaderText> texts;
  for (size_t i = 0; i < opened.train.size(); ++i) {
    const jobspec::DataText& named = plan.train.data.train[i];
    if (plan.model.depths.number > 0 && opened.train[i]->has_masks()) {
      throw UserError(absl::StrCat(named.field,
                                   ": it says which tokens count as targets, and this model predicts "
                                   "several tokens, of which all must: use other text"));
    }
    texts.push_back(
        {.source = opened.train[i], .field = named.field, .name = named.name, .weight = named.weight});
  }
  return texts;
}

// Of the held-out end of a training text, where no text to validate on is named.
jobspec::DataText HeldOutOf(const std::vector<jobspec::DataText>& train, size_t text) {
  constexpr char kHeldOut[] = "held-out";
  const jobspec::DataText& of = train[text];
  return {.field = of.name.empty() ? "" : of.field,
          .name = of.name.empty()     ? ""
                  : train.size() == 1 ? kHeldOut
                                      : absl::StrCat(kHeldOut, "/", of.name)};
}

}  // namespace

RankText::RankText(const plan::JobPlan& plan, int rank)
    : plan_(plan),
      topology_(plan::TopologyOf(plan, rank)),
      text_(TextOf(plan)),
      train_(TrainingTextsOf(plan, text_), data::Split::kTrain, plan.train.seed, plan.batch.sequence_length,
             RowsOf(plan)) {
  if (Validates(plan.train)) {
    const std::vector<jobspec::DataText>& named = plan.train.data.validation;
    for (size_t i = 0; i < text_.validation.size(); ++i) {
      AddValidation(text_.validation[i], named.empty() ? HeldOutOf(plan.train.data.train, i) : named[i],
                    rank);
    }
  }
}

// Each window of the held-out text at most once; a mean over the targets that count.
void RankText::AddValidation(const std::shared_ptr<const data::TokenSource>& source,
                             const jobspec::DataText& named, int rank) {
  const data::Loader& loader =
      validations_
          .emplace_back(ValidationText{
              .loader = data::Loader(std::vector<data::LoaderText>{{.source = source, .field = named.field}},
                                     data::Split::kValidation, plan_.train.seed, plan_.batch.sequence_length,
                                     RowsOf(plan_))})
          .loader;
  const int64_t sequences = plan_.batch.sequences;
  const int64_t wanted = plan_.train.validation_batches * sequences;
  const int64_t windows = std::min(wanted, loader.num_windows());
  validations_.back().extent = {
      .name = named.name,
      .batches = (windows + sequences - 1) / sequences,
      .divisor = static_cast<double>(windows * plan_.batch.sequence_length - loader.NumUncounted(windows)) /
                 static_cast<double>(plan_.batch.tokens())};
  if (validations_.back().extent.divisor == 0) {
    throw UserError(absl::StrCat(named.field.empty() ? "data.validation_fraction" : named.field,
                                 ": none of the tokens that a validation reads counts as a target; name "
                                 "other text, or set training.validate_every_steps to 0"));
  }
  if (windows < wanted && rank == 0) {
    platform::Log(platform::LogLevel::kInfo, "a validation takes each window of the held-out text once",
                  {{"text", named.name.empty() ? source->identity().description : named.name},
                   {"windows", absl::StrCat(windows)},
                   {"wanted", absl::StrCat(wanted)}});
  }
}

std::vector<int64_t> RankText::TakenAfter(int64_t step) const {
  return train_.Taken(step, plan::TokensPerStep(plan_) / plan_.batch.sequence_length);
}

std::vector<std::pair<std::string, double>> RankText::EpochsAfter(int64_t step) const {
  constexpr size_t kMost = 100;
  const std::vector<data::Draws::Source>& sources = train_.sources();
  std::vector<std::pair<std::string, double>> epochs;
  if (sources[0].name.empty() || sources.size() > kMost) {
    return epochs;
  }
  const std::vector<int64_t> taken = TakenAfter(step);
  for (size_t i = 0; i < sources.size(); ++i) {
    epochs.emplace_back(sources[i].name,
                        static_cast<double>(taken[i]) / static_cast<double>(sources[i].windows));
  }
  return epochs;
}

std::vector<int64_t> RankText::validation_rounds() const {
  std::vector<int64_t> rounds;
  for (const ValidationText& text : validations_) {
    rounds.push_back(topology_.RoundsOf(text.extent.batches));
  }
  return rounds;
}

void RankText::LoadStep(int64_t step, int64_t round, int64_t* tokens) const {
  const int64_t rounds = plan_.train.microbatches_per_rank;
  const int64_t microbatches = topology_.MicrobatchesOf(rounds);
  const bool ends_step = round + 1 == rounds;
  if (!ends_step || step < plan_.train.steps) {
    train_.WillFill(ends_step ? step + 1 : step, topology_.MicrobatchOf(ends_step ? 0 : round + 1),
                    microbatches, plan_.batch.sequences);
  }
  Load(train_, step, topology_.MicrobatchOf(round), microbatches, tokens);
}

void RankText::LoadValidation(size_t text, int64_t step, int64_t round, int64_t* tokens) const {
  const int64_t batches = extent(text).batches;
  Load(validations_[text].loader, step, topology_.MicrobatchOf(round) % batches, batches, tokens);
}

void RankText::Load(const data::Loader& loader, int64_t step, int64_t microbatch, int64_t microbatches,
                    int64_t* tokens) const {
  const int64_t sequences = plan_.batch.sequences;
  loader.Fill(step, microbatch, microbatches, sequences, tokens);
  CheckTokens(plan_.batch, plan_.model.vocab_size, tokens, [&](int64_t sequence, int64_t token) {
    return loader.Where(step, microbatch, microbatches, sequences, sequence, token);
  });
}

}  // namespace tandem::trainer
