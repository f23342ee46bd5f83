// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/text.h"
#include "platform/clock.h"
#include "tests/parity/autograd_model.h"
#include "tests/parity/job.h"
#include "tests/parity/run.h"

namespace tandem::parity {
namespace {

// Parity with an independent implementation, in fp64: Adam amplifies rounding, and fp64 separates bugs from
// noise by decades.

using Tensors = std::map<std::string, std::vector<double>>;

// The parameters of the arrays "<unit><suffix>", by Hugging Face name.
Tensors ByName(const plan::JobPlan& plan, const JobRun& run, const std::string& suffix) {
  Tensors tensors;
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    for (const fsdp::Parameter& item : plan.layouts[unit][0].parameters) {
      std::vector<double>& tensor = tensors[item.name];
      tensor.resize(item.range.size());
      std::memcpy(tensor.data(),
                  run.arrays.at(plan.units[unit].name + suffix).data() + item.range.begin * sizeof(double),
                  tensor.size() * sizeof(double));
    }
  }
  return tensors;
}

double Norm(const std::vector<double>& tensor) {
  double squares = 0;
  for (const double element : tensor) {
    squares += element * element;
  }
  return std::sqrt(squares);
}

// ‖a - b‖ / ‖b‖; ‖a‖ where b is zeros: experts without tokens have no gradient.
double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  double length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(squares / (length > 0 ? length : 1));
}

void ExpectNear(const Tensors& ours, const Tensors& theirs, const char* what) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    EXPECT_LE(Distance(ours.at(name), tensor), 1e-11) << what << " of " << name;
  }
}

// The same job, cut off after `steps` steps: its learning rates stay those of the whole job.
JobRun RunFirst(plan::JobPlan plan, int64_t steps) {
  plan.train.steps = steps;
  plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
  return RunJob(plan);
}

void CompareWithAutograd(JobOptions options) {
  options.fp64 = true;
  plan::JobPlan plan = MakeJob(options);
  plan.train.optimizer.schedule.decay = v1::DECAY_CONSTANT;
  const int rounds = plan.train.microbatches_per_rank * plan.topology.world;
  const auto by_name = [&](const JobRun& run, const std::string& suffix) {
    return ByName(plan, run, suffix);
  };

  AutogradModel reference(plan, by_name(RunFirst(plan, 0), "/weights"));
  data::TextOptions text{.train = {{"data.train", plan.train.data.train[0].path}},
                         .validation_fraction = plan.train.data.validation_fraction,
                         .sequence_length = plan.batch.sequence_length};
  if (plan.batch.packs_documents || !plan.train.data.counts_first_tokens) {
    text.documents = data::Documents{plan.train.data.end_of_document};
  }
  const data::Loader loader({{.source = data::OpenText(text, platform::SteadyClock()).train[0]}},
                            data::Split::kTrain, plan.train.seed, plan.batch.sequence_length,
                            {.packs_documents = plan.batch.packs_documents,
                             .has_targets = plan.batch.has_targets,
                             .counts_first_tokens = plan.train.data.counts_first_tokens});

  const JobRun whole = RunJob(plan);
  ASSERT_EQ(static_cast<int64_t>(whole.steps.size()), plan.train.steps);
  for (const v1::StepReport& step : whole.steps) {
    SCOPED_TRACE(testing::Message() << "step " << step.step());
    std::vector<std::vector<int64_t>> tokens(rounds);
    for (int i = 0; i < rounds; ++i) {
      tokens[i].resize(plan.batch.sequences * plan.batch.columns());
      loader.Fill(step.step(), i, rounds, plan.batch.sequences, tokens[i].data());
    }
    const double learning_rate =
        plan::LearningRate(plan.train.optimizer.schedule, step.step(), plan.train.steps);
    const AutogradModel::Step expected = reference.TrainStep(tokens, learning_rate);
    const Tensors expected_weights = reference.weights();

    EXPECT_NEAR(step.loss(), expected.loss, 1e-12 * expected.loss);
    for (size_t i = 0; i < expected.depth_losses.size(); ++i) {
      EXPECT_NEAR(step.scalars().at("mtp_loss/" + std::to_string(i + 1)), expected.depth_losses[i],
                  1e-12 * expected.depth_losses[i]);
    }
    EXPECT_NEAR(step.grad_norm(), expected.grad_norm, 1e-11 * expected.grad_norm);
    size_t item = 0;
    for (size_t unit = 0; unit < plan.layouts.size(); ++unit) {
      for (const fsdp::Parameter& named : plan.layouts[unit][0].parameters) {
        const double gradient = Norm(expected.gradients.at(named.name));
        EXPECT_NEAR(step.norms().gradient(item), gradient, 1e-11 * gradient)
            << "gradient norm of " << named.name;
        const double weight = Norm(expected_weights.at(named.name));
        EXPECT_NEAR(step.norms().weight(item), weight, 1e-11 * weight) << "weight norm of " << named.name;
        EXPECT_NEAR(step.norms().rms(item), weight / std::sqrt(named.range.size()), 1e-11 * weight);
        const auto largest = [&](const Tensors& tensors) {
          double most = 0;
          for (const double element : tensors.at(named.name)) {
            most = std::max(most, std::abs(element));
          }
          return most;
        };
        EXPECT_NEAR(step.norms().max_abs(item), largest(expected_weights), 1e-11 * weight);
        EXPECT_NEAR(step.norms().gradient_max_abs(item), largest(expected.gradients), 1e-11 * gradient);
        ++item;
      }
    }

    const JobRun until_here = RunFirst(plan, step.step());
    ExpectNear(by_name(until_here, "/weights"), expected_weights, "weight");
    if (step.step() == 1) {
      // Adam's first moment is then (1 - beta1) times the clipped gradient: the gradient itself, element by
      // element.
      const double clip = std::min(1.0, plan.train.optimizer.clip_grad_norm / (expected.grad_norm + 1e-6));
      Tensors gradients = by_name(until_here, "/exp_avg");
      for (auto& [name, tensor] : gradients) {
        for (double& element : tensor) {
          element /= (1 - plan.train.optimizer.beta1) * clip;
        }
      }
      ExpectNear(gradients, expected.gradients, "gradient");
    }
  }
}

TEST(AutogradTest, OneRankMatches) {
  CompareWithAutograd({.ranks = 1, .microbatches_per_rank = 4, .steps = 5});
}

TEST(AutogradTest, LayersByAPatternMatch) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 3, .model_type = "hybrid"};
  options.pattern = "[M*-]G*";
  CompareWithAutograd(options);
  options.end_of_document = ' ';
  CompareWithAutograd(options);
  options.model_type = "nemotron_h";
  options.pattern = "M-*-";
  CompareWithAutograd(options);
}

// Gates of attentions and of shared experts, norms that multiply by 1 + weight, and experts that ranks share.
TEST(AutogradTest, LayersOfQwen3NextMatch) {
  JobOptions options{.ranks = 2,
                     .microbatches_per_rank = 2,
                     .steps = 3,
                     .model_type = "qwen3_next",
                     .pattern = "[GE][*-][*E]",
                     .num_experts = 4};
  CompareWithAutograd(options);
  options.recompute = "layer";
  options.end_of_document = ' ';
  CompareWithAutograd(options);
}

// One depth and two, of one letter, several, and two of a kind; without main layers; detached; tied; logits
// in chunks.
TEST(AutogradTest, DepthsOfMultiTokenPredictionMatch) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 3, .model_type = "hybrid"};
  for (const char* const pattern : {"M*/M", "[*-]/*-/*-", "M/MM", "/M*", "*-/-M/-M", "[*E]M/*E"}) {
    options.pattern = pattern;
    options.num_experts = options.pattern.find('E') == std::string::npos ? 0 : 4;
    SCOPED_TRACE(pattern);
    CompareWithAutograd(options);
  }
  options.pattern = "M*/*-/*-";
  options.num_experts = 0;
  options.mtp_loss_weight = 1.5;
  for (const bool tied : {false, true}) {
    options.tied = tied;
    CompareWithAutograd(options);
    options.most_logit_bytes = 5 * 256 * 8;
    CompareWithAutograd(options);
    options.mtp_detach = true;
    CompareWithAutograd(options);
    options.most_logit_bytes = 0;
    CompareWithAutograd(options);
    options.mtp_detach = false;
  }
}

// A third of the targets, and in a text of blanks that a few words interrupt, most of them: of some
// microbatches all.
TEST(AutogradTest, TargetsThatDoNotCountMatch) {
  JobOptions options{.ranks = 2, .microbatches_per_rank = 2, .steps = 3, .count_first_token = false};
  options.end_of_document = ' ';
  CompareWithAutograd(options);
  const TemporaryFolder folder;
  options.text = folder.path() + "/text";
  std::string text(8000, ' ');
  for (size_t i = 0; i < text.size(); i += 100) {
    text.replace(i, 25, "abcdefghijklmnopqrstuvwxy");
  }
  std::ofstream(options.text) << text;
  CompareWithAutograd(options);
}

// Biases, norms of queries and keys by head or together, norms behind attention and MLP, windows: dense
// layers of each kind, with all of a layer recomputed too.
TEST(AutogradTest, OtherDenseFamiliesMatch) {
  for (const auto& [model_type, has_biases] :
       {std::pair("qwen2", false), std::pair("qwen3", false), std::pair("olmo2", false),
        std::pair("mistral", false), std::pair("llama", true), std::pair("qwen3", true),
        std::pair("olmo2", true)}) {
    for (const char* const recompute : {"off", "layer"}) {
      SCOPED_TRACE(testing::Message()
                   << model_type << ", biases " << has_biases << ", recompute " << recompute);
      JobOptions options{.ranks = 2,
                         .microbatches_per_rank = 2,
                         .steps = 3,
                         .recompute = recompute,
                         .model_type = model_type,
                         .has_biases = has_biases};
      if (options.model_type == "mistral") {
        options.sliding_window = 5;
      }
      CompareWithAutograd(options);
    }
  }
}

TEST(AutogradTest, BiasesBeginAsZerosWithoutASign) {
  plan::JobPlan plan = MakeJob({.model_type = "qwen2", .fp64 = true});
  int biases = 0;
  for (const auto& [name, values] : ByName(plan, RunFirst(plan, 0), "/weights")) {
    if (name.ends_with(".bias")) {
      ++biases;
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double value) {
        return value == 0 && !std::signbit(value);
      })) << name;
    }
  }
  EXPECT_EQ(biases, 2 * 3);
}

// The routers' own losses are of the targets that count, as the loss is.
TEST(AutogradTest, RoutersLossesOfTargetsThatCountMatch) {
  for (const char* scope : {"microbatch", "sequence", "global"}) {
    SCOPED_TRACE(scope);
    JobOptions options = SparseJob();
    options.ranks = 2;
    options.microbatches_per_rank = 2;
    options.steps = 2;
    options.router_aux_loss = 0.5;
    options.router_z_loss = 0.1;
    options.balance_scope = scope;
    options.count_first_token = false;
    options.end_of_document = ' ';
    CompareWithAutograd(options);
  }
}

// 5 tokens at a time, of 32.
TEST(AutogradTest, HeadsWhoseLogitsComeInChunksMatch) {
  for (const bool tied : {false, true}) {
    CompareWithAutograd(
        {.ranks = 2, .microbatches_per_rank = 2, .steps = 3, .tied = tied, .most_logit_bytes = 5 * 256 * 8});
  }
}

// The balance of each sequence, and that of all ranks and of the microbatches so far.
TEST(AutogradTest, ScopesOfTheRoutersBalanceMatch) {
  for (const char* model_type : {"qwen3_moe", "deepseek_v3"}) {
    for (const char* scope : {"sequence", "global"}) {
      SCOPED_TRACE(testing::Message() << model_type << ", " << scope);
      CompareWithAutograd({.ranks = 2,
                           .microbatches_per_rank = 3,
                           .steps = 2,
                           .model_type = model_type,
                           .num_experts = 8,
                           .experts_per_token = 4,
                           .router_aux_loss = 0.5,
                           .balance_scope = scope});
    }
  }
}

// Of two ranks, which take two microbatches each where a case does not say it.
struct Case {
  std::string name;
  JobOptions options;
};

std::vector<Case> Cases() {
  return {
      {"TwoRanks", {.steps = 5}},
      {"ClippedGradients", {.clip = 0.05}},
      {"TiedEmbeddings", {.tied = true}},
      // Words: a sequence has several, and most are cut by the end of some sequence sooner or later.
      {"PackedDocuments", {.end_of_document = ' '}},
      {"WindowsOfSomeLayersWithinDocuments",
       {.model_type = "qwen2", .sliding_window = 4, .window_layers = "1", .end_of_document = ' '}},
      // Nothing is a multiple of anything, and some shards are empty.
      {"OddSizes",
       {.ranks = 5,
        .layers = 1,
        .hidden = 30,
        .inner = 7,
        .heads = 3,
        .kv_heads = 1,
        .sequence_length = 13,
        .micro_batch_size = 1,
        .prefetch = 2}},
      {"MixtralWithItsRoutersLosses", {.model_type = "mixtral", .num_experts = 4}},
      // By position: sequences that begin alike have tokens of equal probabilities but for a rounding.
      {"AMixtureThatDropsTokens",
       {.model_type = "mixtral", .num_experts = 4, .capacity_factor = 0.8, .drop_by_position = true}},
      // A dense layer, then sparse ones with groups of experts and shared experts; latent attention in all.
      {"DeepseekV3", {.layers = 3, .model_type = "deepseek_v3", .num_experts = 8, .experts_per_token = 4}},
      // Softmax scores, of groups that are compared by their best expert.
      {"DeepseekV2OfGroups",
       {.layers = 3, .model_type = "deepseek_v2", .num_experts = 8, .experts_per_token = 4}},
      // Biases that move so far that they decide from the second step on.
      {"DeepseekV3WithBiasesOfExperts",
       {.steps = 4,
        .model_type = "deepseek_v3",
        .num_experts = 8,
        .experts_per_token = 4,
        .bias_update_rate = 0.2}},
      // A dense layer on both sides of the sparse one, most experts without a token, heads normalised.
      {"Qwen3MoeBetweenDenseLayers",
       {.ranks = 3,
        .layers = 3,
        .sequence_length = 5,
        .micro_batch_size = 1,
        .model_type = "qwen3_moe",
        .num_experts = 24,
        .experts_per_token = 3,
        .sparse_step = 2}},
  };
}

class AutogradCaseTest : public testing::TestWithParam<Case> {};

TEST_P(AutogradCaseTest, Matches) {
  JobOptions options = GetParam().options;
  if (options.ranks == 1) {
    options.ranks = options.microbatches_per_rank = 2;
  }
  CompareWithAutograd(options);
}

INSTANTIATE_TEST_SUITE_P(Jobs, AutogradCaseTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::parity
