#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/demo.sh --real needs beside tandem: a user's text, tokenizer and Hugging Face model at its beginning, and
at its end what `transformers` makes of the exported model.

  demo_real.py make TEXT FOLDER     corpus.jsonl of the text files below TEXT, a byte-level BPE trained on it and a small
                                    random Llama, as published ones are, in FOLDER/model
  demo_real.py show FOLDER          a sample of the exported model's text, and its loss beside Tandem's
"""
import json
import math
import pathlib
import sys

VOCABULARY = 4096
SEED = 1
PROMPT = "/** @brief "
FRACTION, SEQUENCES, LENGTH = 0.02, 8 * 8, 256  # as examples/real.yaml: what a validation reads


def documents(text):
    for path in sorted(text.rglob("*")):
        if path.is_file() and not path.is_symlink():
            content = path.read_text(encoding="utf-8", errors="ignore")
            if content:
                yield content


def make(text, folder):
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    texts = list(documents(text))
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as file:
        for content in texts:
            file.write(json.dumps({"text": content}) + "\n")
    print(f"demo: {len(texts)} documents, {(folder / 'corpus.jsonl').stat().st_size / 1e6:.1f} MB: {folder}/corpus.jsonl")

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>").save_pretrained(folder / "model")
    torch.manual_seed(SEED)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, eos_token_id=0, bos_token_id=None))
    model.save_pretrained(folder / "model")
    print(f"demo: a tokenizer of {VOCABULARY} tokens and a random Llama of {model.num_parameters() / 1e6:.1f}M parameters: {folder}/model")


def held_out(folder, fraction):
    """The tokens that Tandem holds out: documents from the first one on that begins in the last `fraction` of all tokens."""
    import numpy
    description = json.loads((folder / "tokens/dataset.json").read_text())
    (shard,) = description["shards"]
    index = numpy.fromfile(folder / f"tokens/{shard['name']}.idx", dtype=numpy.uint8)
    begins = index[34 + 4 * shard["documents"]:34 + 12 * shard["documents"]].copy().view(numpy.int64) // 2
    tokens = numpy.fromfile(folder / f"tokens/{shard['name']}.bin", dtype=numpy.uint16)
    first = begins[begins >= len(tokens) - math.floor(len(tokens) * fraction + 0.5)][0]
    return tokens[first:].astype(numpy.int64)


def loss(model, windows):
    import torch
    with torch.no_grad():
        return sum(model(windows[i:i + 4, :-1], labels=None).logits.flatten(0, 1).log_softmax(-1).gather(
            1, windows[i:i + 4, 1:].reshape(-1, 1)).neg().sum().item() for i in range(0, len(windows), 4)) / windows[:, 1:].numel()


def show(folder):
    import torch
    import transformers
    tokens = held_out(folder, FRACTION)
    count = min(SEQUENCES, len(tokens) // (LENGTH + 1))
    windows = torch.tensor(tokens[:count * (LENGTH + 1)]).view(count, -1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "export", dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "export")
    steps = [json.loads(line) for line in (folder / "checkpoints/metrics.jsonl").read_text().splitlines()]
    validations = [step["validation_loss"] for step in steps if step.get("validation_loss")]
    torch.manual_seed(SEED)
    prompt = tokenizer(PROMPT, return_tensors="pt").input_ids
    text = model.generate(prompt, max_new_tokens=80, do_sample=True, top_k=20, pad_token_id=0)[0]
    print("demo: transformers loads the exported model and writes:\n")
    print("\n".join(f"    {line}" for line in tokenizer.decode(text, skip_special_tokens=True).splitlines()))
    theirs = loss(model, windows)
    print(f"\ndemo: loss of held-out text: {validations[0]:.4f} at the start, {validations[-1]:.4f} at the end, says Tandem; "
          f"transformers says {theirs:.4f} of the exported model")
    return 0 if abs(theirs - validations[-1]) < 1e-3 else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 4:
        make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    elif sys.argv[1:2] == ["show"] and len(sys.argv) == 3:
        sys.exit(show(pathlib.Path(sys.argv[2])))
    else:
        sys.exit(__doc__)
