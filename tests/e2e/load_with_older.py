# SPDX-License-Identifier: Apache-2.0
"""Loads a folder with the transformers of this Python and saves its logits: load_with_older.py FOLDER INPUTS OUT."""
import sys

import torch
import transformers

folder, inputs, out = sys.argv[1:]
model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager",
                                                                  output_loading_info=True, torch_dtype=torch.float32)
assert not any(report.values()), report
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
assert tokenizer.decode(tokenizer.encode("the weights"), skip_special_tokens=True) == "the weights"
with torch.no_grad():
    torch.save(model(**torch.load(inputs)).logits, out)
