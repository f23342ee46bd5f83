# SPDX-License-Identifier: Apache-2.0
"""Loads folders with the transformers of this Python and saves their logits: for each line "FOLDER INPUTS OUT" of its input."""
import sys

import torch
import transformers

for line in sys.stdin:
    folder, inputs, out = line.split()
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                      output_loading_info=True, torch_dtype=torch.float32)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode("the weights"), skip_special_tokens=True) == "the weights"
    with torch.no_grad():
        torch.save(model(**torch.load(inputs)).logits, out)
    print("saved", flush=True)
