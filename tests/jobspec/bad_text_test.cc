// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobspec/jobspec.h"
#include "tests/jobspec/bad_spec.h"

namespace tandem::jobspec {
namespace {

// The text, its blocks and keys.
const BadSpec kStructure[] = {
    {"empty text", "*", "", "job.yaml: the text is empty; write a job spec in YAML or JSON\n"},
    {"only a comment", "*", "# nothing\n", "job.yaml: the text is empty; write a job spec in YAML or JSON\n"},
    {"a list", "*", "- a\n",
     "job.yaml:1:1: the text is not a block of keys; allowed: {root}; write a job spec in YAML or "
     "JSON\n"},
    {"a word", "*", "hello\n",
     "job.yaml:1:1: the text is not a block of keys; allowed: {root}; write a job spec in YAML or "
     "JSON\n"},
    {"broken flow", "*", "model: {preset: llama-tiny\n",
     "job.yaml:2:1: not YAML: end of map flow not found; correct the text; JSON is accepted too\n"},
    {"a pair of escapes in YAML", "", "name: \"\\ud83d\\ude00\"",
     "job.yaml:4:14: "
     "an escape that is no character by itself; write the character itself, or \\U0001f600, as YAML escapes "
     "it; JSON's pair \\ud83d\\ude00 is not read (json.dumps writes none with ensure_ascii=False)\n"},
    {"a pair of escapes in JSON", "*", "{\"name\": \"\\ud83d\\ude00\"}",
     "job.yaml:1:17: "
     "an escape that is no character by itself; write the character itself, or \\U0001f600, as YAML escapes "
     "it; JSON's pair \\ud83d\\ude00 is not read (json.dumps writes none with ensure_ascii=False)\n"},
    {"two documents", "",
     "--- \n"
     "name: b",
     "job.yaml:5:1: a second document starts; put one job spec in a file\n"},
    {"tab indentation", "*",
     "model:\n"
     "\tpreset: llama-tiny\n",
     "job.yaml:2:1: a tab in the indentation; use spaces\n"},
    {"tab indentation below", "*",
     "training:\n"
     "  steps: 1\n"
     " \tseed: 2\n",
     "job.yaml:3:2: a tab in the indentation; use spaces\n"},
    {"a colon is missing", "*",
     "training:\n"
     "  steps 20\n"
     "  seed: 2\n",
     "job.yaml:3:7: not YAML: illegal map value; the indentation does not fit the lines above, or a colon is "
     "missing here or a line above\n"},
    {"yaml-cpp's end of file character", "", "name: a\004b",
     "job.yaml:4:8: the control character 0x04; remove it\n"},
    {"unknown key", "steps: 10", "stpes: 10",
     "job.yaml:3:12: training.stpes: the unknown key stpes is not allowed; allowed: {training}; did "
     "you mean steps?\n"},
    {"unknown key of another tool", "steps: 10", "steps: 10, lr: 1e-3",
     "job.yaml:3:23: training.lr: the unknown key lr is not allowed; allowed: {training}; did you "
     "mean training.optimizer.learning_rate?\n"},
    {"key in the wrong block", "steps: 10", "steps: 10, learning_rate: 1e-3",
     "job.yaml:3:23: training.learning_rate: the unknown key learning_rate is not allowed; allowed: "
     "{training}; did you mean training.optimizer.learning_rate?\n"},
    {"dotted key", "", "training.seed: 3",
     "job.yaml:4:1: training.seed: the unknown key training.seed is not allowed; allowed: {root}; a "
     "dot does not open a block: nest the keys\n"},
    {"unknown key like nothing", "", "zzzzzzzz: 3",
     "job.yaml:4:1: zzzzzzzz: the unknown key zzzzzzzz is not allowed; allowed: {root}; use one of "
     "these\n"},
    {"hyphens", "steps: 10", "steps: 10, validate-every-steps: 5",
     "job.yaml:3:23: training.validate-every-steps: the unknown key validate-every-steps is not "
     "allowed; allowed: {training}; did you mean validate_every_steps?\n"},
    {"control character in a key", "", "\"na\\nme\": 3",
     "job.yaml:4:1: na\\nme: the unknown key na\\nme is not allowed; allowed: {root}; did you mean "
     "name?\n"},
    {"duplicate key", "steps: 10", "steps: 10, steps: 20",
     "job.yaml:3:23: training.steps: a second steps is not allowed; allowed: each key once; the "
     "first is on line 3: keep one of the two\n"},
    {"duplicate block", "", "data: {tokenizer: bytes}",
     "job.yaml:4:1: data: a second data is not allowed; allowed: each key once; the first is on line "
     "2: keep one of the two\n"},
    {"key that is a list", "", "[a]: 3",
     "job.yaml:4:1: a key that is not plain text; allowed: {root}; write every key as a word\n"},
    {"merge key", "", "report: {<<: 3}",
     "job.yaml:4:10: report.<<: a merge key is not allowed; allowed: every key written out; copy "
     "what it would merge\n"},
    {"anchor", "", "name: &n job",
     "job.yaml:4:1: name: an anchor (&name) is not allowed; allowed: {name}; write the value without "
     "it\n"},
    {"anchor of a block", "model: {", "model: &m {",
     "job.yaml:1:1: model: an anchor (&name) is not allowed; allowed: a block with the keys {model}; "
     "write the value without it\n"},
    {"alias", "",
     "name: &n job\n"
     "report: {parameter_norms: *n}",
     "job.yaml:4:1: name: an anchor (&name) is not allowed; allowed: {name}; write the value without "
     "it\n"
     "job.yaml:5:10: report.parameter_norms: an alias (*name) is not allowed; allowed: true, false; "
     "write the value out\n"},
    {"alias bomb", "*",
     "a: &a [x,x]\n"
     "b: &b [*a,*a]\n"
     "c: &c [*b,*b]\n",
     "job.yaml:1:1: a: the unknown key a is not allowed; allowed: {root}; use one of these\n"
     "job.yaml:2:1: b: the unknown key b is not allowed; allowed: {root}; use one of these\n"
     "job.yaml:3:1: c: the unknown key c is not allowed; allowed: {root}; use one of these\n"
     "job.yaml: model: missing; allowed: a preset (llama-3-8b, llama-tiny), hugging_face, or the "
     "fields; for instance model: {preset: llama-tiny}\n"
     "job.yaml: data.train: missing; allowed: {path}; name the text to train on, for instance data: "
     "{train: /usr/include}\n"
     "job.yaml: training.steps: missing; allowed: 1 to 1000000000; say how many optimizer steps to "
     "run\n"
     "job.yaml: training.sequence_length: missing; allowed: 1 to 1048576; say how many tokens a "
     "sequence has, for instance 256\n"
     "job.yaml: training.micro_batch_size: missing; allowed: 1 to 65536; say how many sequences a "
     "rank works on at once, for instance 4\n"
     "job.yaml: training.global_batch_size: missing; allowed: 1 to 16777216; say how many sequences "
     "all ranks together see in a step: a multiple of micro_batch_size × ranks\n"},
    {"tag", "", "name: !!str job",
     "job.yaml:4:1: name: the tag tag:yaml.org,2002:str is not allowed; allowed: {name}; write the "
     "value without it\n"},
    {"null block", "data: {train: /data}", "data:",
     "job.yaml:2:1: data: null is not allowed; allowed: a block with the keys train, validation, "
     "validation_fraction, tokenizer, documents, end_of_document, count_first_token, sources, "
     "validation_sets, shuffle; give a value\n"},
    {"null scalar", "steps: 10", "steps: ~",
     "job.yaml:3:12: training.steps: null is not allowed; allowed: 1 to 1000000000; give a value\n"},
    {"null word", "steps: 10", "steps: null",
     "job.yaml:3:12: training.steps: null is not allowed; allowed: 1 to 1000000000; give a value\n"},
    {"a list for a number", "steps: 10", "steps: [10]",
     "job.yaml:3:12: training.steps: a list is not allowed; allowed: 1 to 1000000000; write one "
     "value\n"},
    {"a block for a number", "steps: 10", "steps: {value: 10}",
     "job.yaml:3:12: training.steps: a block is not allowed; allowed: 1 to 1000000000; write one "
     "value\n"},
    {"a number for a block", "data: {train: /data}", "data: 5",
     "job.yaml:2:1: data: 5 is not allowed; allowed: a block with the keys train, validation, "
     "validation_fraction, tokenizer, documents, end_of_document, count_first_token, sources, "
     "validation_sets, shuffle; write a block of "
     "keys\n"},
    {"a list for a block", "data: {train: /data}", "data: [/data]",
     "job.yaml:2:1: data: a list is not allowed; allowed: a block with the keys train, validation, "
     "validation_fraction, tokenizer, documents, end_of_document, count_first_token, sources, "
     "validation_sets, shuffle; write a block of "
     "keys\n"},
};

// Values of the wrong type, or that YAML readers disagree about.
const BadSpec kScalars[] = {
    {"text for a number", "steps: 10", "steps: ten",
     "job.yaml:3:12: training.steps: ten is not allowed; allowed: 1 to 1000000000; write an integer "
     "in decimal digits\n"},
    {"quoted number", "steps: 10", "steps: \"10\"",
     "job.yaml:3:12: training.steps: \"10\" is not allowed; allowed: 1 to 1000000000; text is not "
     "expected: remove the quotes\n"},
    {"fraction for an integer", "steps: 10", "steps: 10.5",
     "job.yaml:3:12: training.steps: 10.5 is not allowed; allowed: 1 to 1000000000; write an integer, "
     "without point or exponent\n"},
    {"exponent for an integer", "steps: 10", "steps: 1e3",
     "job.yaml:3:12: training.steps: 1e3 is not allowed; allowed: 1 to 1000000000; write an integer, "
     "without point or exponent\n"},
    {"octal", "steps: 10", "steps: 010",
     "job.yaml:3:12: training.steps: 010 is not allowed; allowed: 1 to 1000000000; a leading zero "
     "means octal to some readers: write it without\n"},
    {"hexadecimal", "steps: 10", "steps: 0x10",
     "job.yaml:3:12: training.steps: 0x10 is not allowed; allowed: 1 to 1000000000; write an integer "
     "in decimal digits\n"},
    {"underscores", "steps: 10", "steps: 1_000",
     "job.yaml:3:12: training.steps: 1_000 is not allowed; allowed: 1 to 1000000000; write an integer "
     "in decimal digits\n"},
    {"overflow", "steps: 10", "steps: 9223372036854775808",
     "job.yaml:3:12: training.steps: 9223372036854775808 is not allowed; allowed: 1 to 1000000000; "
     "use a smaller number\n"},
    {"overflow of 32 bits", "", "parallelism: {ranks: 4294967297}",
     "job.yaml:4:15: parallelism.ranks: 4294967297 is not allowed; allowed: 1 to 16384; use a "
     "smaller number\n"},
    {"negative seed", "steps: 10", "steps: 10, seed: -1",
     "job.yaml:3:23: training.seed: -1 is not allowed; allowed: 0 to 18446744073709551615; use a "
     "larger number\n"},
    {"huge seed", "steps: 10", "steps: 10, seed: 18446744073709551616",
     "job.yaml:3:23: training.seed: 18446744073709551616 is not allowed; allowed: 0 to "
     "18446744073709551615; use a smaller number\n"},
    {"NaN", "steps: 10", "steps: 10, clip_grad_norm: .nan",
     "job.yaml:3:23: training.clip_grad_norm: .nan is not allowed; allowed: 0 to 1e9; use a finite "
     "number\n"},
    {"infinity", "steps: 10", "steps: 10, clip_grad_norm: .inf",
     "job.yaml:3:23: training.clip_grad_norm: .inf is not allowed; allowed: 0 to 1e9; use a finite "
     "number\n"},
    {"overflow of a double", "steps: 10", "steps: 10, clip_grad_norm: 1e999",
     "job.yaml:3:23: training.clip_grad_norm: 1e999 is not allowed; allowed: 0 to 1e9; a double "
     "cannot hold it\n"},
    {"underflow of a double", "steps: 10", "steps: 10, clip_grad_norm: 1e-999",
     "job.yaml:3:23: training.clip_grad_norm: 1e-999 is not allowed; allowed: 0 to 1e9; a double "
     "cannot hold it\n"},
    {"text for a double", "steps: 10", "steps: 10, clip_grad_norm: much",
     "job.yaml:3:23: training.clip_grad_norm: much is not allowed; allowed: 0 to 1e9; write a "
     "number, for instance 0.001 or 1e-3\n"},
    {"leading zero of a double", "steps: 10", "steps: 10, clip_grad_norm: 01.5",
     "job.yaml:3:23: training.clip_grad_norm: 01.5 is not allowed; allowed: 0 to 1e9; a leading zero "
     "means octal to some readers: write it without\n"},
    {"yes", "", "report: {parameter_norms: yes}",
     "job.yaml:4:10: report.parameter_norms: yes is not allowed; allowed: true, false; write true\n"},
    {"off", "", "report: {parameter_norms: off}",
     "job.yaml:4:10: report.parameter_norms: off is not allowed; allowed: true, false; write false\n"},
    {"1 for a truth value", "", "report: {parameter_norms: 1}",
     "job.yaml:4:10: report.parameter_norms: 1 is not allowed; allowed: true, false; write true\n"},
    {"quoted truth value", "", "report: {parameter_norms: \"true\"}",
     "job.yaml:4:10: report.parameter_norms: \"true\" is not allowed; allowed: true, false; text is "
     "not expected: remove the quotes\n"},
    {"truth value of nothing", "", "report: {parameter_norms: \"\"}",
     "job.yaml:4:10: report.parameter_norms: \"\" is not allowed; allowed: true, false; give a value\n"},
    {"number for text", "", "name: 2024",
     "job.yaml:4:1: name: 2024 is not allowed; allowed: {name}; text is expected: put it in quotes "
     "if it is meant\n"},
    {"truth value for text", "", "name: true",
     "job.yaml:4:1: name: true is not allowed; allowed: {name}; text is expected: put it in quotes "
     "if it is meant\n"},
    {"unknown enum value", "", "precision: {compute: int4}",
     "job.yaml:4:13: precision.compute: int4 is not allowed; allowed: fp32, fp64, bf16; use one of "
     "these\n"},
    {"other name of an enum value", "", "precision: {compute: float32}",
     "job.yaml:4:13: precision.compute: float32 is not allowed; allowed: fp32, fp64, bf16; did you mean "
     "fp32?\n"},
    {"other name of a device", "", "resources: {device: gpu}",
     "job.yaml:4:13: resources.device: gpu is not allowed; allowed: auto, cpu, cuda; did you mean cuda?\n"},
    {"enum value with its prefix", "", "precision: {compute: COMPUTE_TYPE_FP32}",
     "job.yaml:4:13: precision.compute: COMPUTE_TYPE_FP32 is not allowed; allowed: fp32, fp64, bf16; use "
     "one of these\n"},
    {"close enum value", "", "parallelism: {fsdp: {strategy: zero-3}}",
     "job.yaml:4:22: parallelism.fsdp.strategy: zero-3 is not allowed; allowed: replicate, zero1, zero2, "
     "zero3, hsdp, hfsdp; did you mean "
     "zero3?\n"},
    {"unknown schedule", "", "parallelism: {schedule: magic}",
     "job.yaml:4:15: parallelism.schedule: magic is not allowed; allowed: sequential, overlap; use one of "
     "these\n"},
    {"unreadable size of a field that no job may have", "", "resources: {memory_bytes: 64Mib}",
     "job.yaml:4:13: resources.memory_bytes: 64Mib is not allowed; not built yet: placement by memory; omit "
     "the key and compare tandem plan with the machine\n"},
};

TEST(BadSpecTest, StructureIsRefusedWithPlaceAndRemedy) { ExpectMessages(kStructure); }

TEST(BadSpecTest, ScalarsAreRefusedWithPlaceAndRemedy) { ExpectMessages(kScalars); }

}  // namespace
}  // namespace tandem::jobspec
