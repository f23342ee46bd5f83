# SPDX-License-Identifier: Apache-2.0
"""Loads folders with the transformers of this Python and saves their logits: a line of input is FOLDER INPUTS OUT, separated by
tabs, and is answered by a line."""
import sys

import torch
import transformers

for line in sys.stdin:
    folder, inputs, out = line.rstrip("\n").split("\t")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                      output_loading_info=True, torch_dtype=torch.float32)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode("the weights"), skip_special_tokens=True) == "the weights"
    with torch.no_grad():
        torch.save(model(**torch.load(inputs)).logits, out)
    print("saved", flush=True)
