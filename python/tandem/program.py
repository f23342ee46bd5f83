# SPDX-License-Identifier: Apache-2.0
"""`tandem-py`, which `tandem data ...` runs: commands whose work Python libraries do."""
import argparse
import os
import re
import signal
import sys

from tandem.version import version

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}


def _bytes(text):
    found = re.fullmatch(r"(\d+) ?(KiB|MiB|GiB|)", text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text} is not a size; write a number of bytes, or 64MiB")
    return int(found[1]) * UNITS[found[2]]


def _count(text):
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text} must be an integer from 1 to 1024")
    return int(text)


def _natural(text, least=0):
    if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text} must be an integer of at least {least}")
    return int(text)


def _positive(text):
    return _natural(text, 1)


def parser():
    top = argparse.ArgumentParser(prog="tandem", description="Commands of Tandem whose work Python libraries do.", allow_abbrev=False)
    top.add_argument("--cli-version", help=argparse.SUPPRESS)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    data = commands.add_parser("data", help="Make, show and check tokens", description="Make tokens of text before training, and look at "
                               "files of tokens.")
    kinds = data.add_subparsers(metavar="COMMAND", required=True)
    prepare = kinds.add_parser(
        "prepare", help="Make a folder of tokens of files of text", allow_abbrev=False,
        description="Makes a folder of tokens (Megatron-LM's .bin and .idx, and dataset.json) that data.train of a job takes. Files "
                    "are taken in the order of their paths; the result does not depend on the number of processes. If it is "
                    "stopped, the same command goes on behind the shards that were finished.")
    prepare.add_argument("inputs", nargs="+", metavar="INPUT", help="files, folders and globs of JSON lines or text, plain, .gz or .zst")
    prepare.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make; it must not be there yet")
    prepare.add_argument("--tokenizer", required=True, metavar="PATH",
                         help="a Hugging Face tokenizer: a folder with a tokenizer.json, or that file; or bytes")
    prepare.add_argument("--text-field", default="text", metavar="NAME", help="field of a JSON line that has the text (default text)")
    prepare.add_argument("--format", choices=("auto", "jsonl", "text"), default="auto",
                         help="auto takes .jsonl, .ndjson and .json for JSON lines, and any other file for one document of text")
    prepare.add_argument("--eos", default="auto", metavar="TOKEN",
                         help="token behind each document: auto (eos_token of tokenizer_config.json), none, a token, or an id")
    prepare.add_argument("--bos", default="none", metavar="TOKEN", help="token before each document, in the same forms (default none)")
    prepare.add_argument("--parse-special", action="store_true", help="text that looks like a special token becomes one")
    prepare.add_argument("--max-document", type=_bytes, default="64MiB", metavar="SIZE", help="longer documents are left out (default 64MiB)")
    prepare.add_argument("--shard", type=_bytes, default="2GiB", metavar="SIZE", help="size of a file of tokens, about (default 2GiB)")
    prepare.add_argument("--processes", type=_count, default=0, metavar="N", help="processes that tokenise (default: number of processors)")
    prepare.add_argument("--strict", action="store_true", help="end at the first document that cannot be used")
    prepare.add_argument("--lenient", action="store_true", help="go on if more than 5 %% of the documents cannot be used")
    prepare.set_defaults(run=_prepare)
    forms = ("a folder of tandem data prepare; a pair of .bin and .idx of Megatron-LM, by either or without its ending; a .npy file; a "
             "file of llm.c; or a folder of such files")
    inspect = kinds.add_parser("inspect", help="Show what is in files of tokens", allow_abbrev=False,
                               description="Shows counts, lengths of documents, the most frequent tokens, and the first documents.")
    inspect.add_argument("path", metavar="PATH", help=forms)
    inspect.add_argument("--tokenizer", metavar="PATH", help="decode with this one (default: the one that dataset.json names)")
    inspect.add_argument("--sequence-length", type=_positive, metavar="N", help="say how many sequences that makes")
    inspect.add_argument("--documents", type=_natural, default=3, metavar="N", help="how many of the first documents to show (default 3)")
    _add_form(inspect)
    inspect.set_defaults(run=_inspect)
    check = kinds.add_parser("check", help="Read every byte of files of tokens, and name what is wrong", allow_abbrev=False,
                             description="Reads every byte: indices, digests, and that each token is below the vocabulary. Exit code 1 "
                                         "if something is wrong.")
    check.add_argument("path", metavar="PATH", help=forms)
    check.add_argument("--vocabulary", type=_positive, metavar="N", help="number of ids of the tokenizer (default: what dataset.json says)")
    _add_form(check)
    check.set_defaults(run=_check)
    return top


def _add_form(parser_):
    parser_.add_argument("--format", choices=("auto", "flat"), default="auto",
                         help="flat: whole numbers without a header; auto (default) finds the others itself")
    parser_.add_argument("--token-type", choices=("u16", "u32"), help="of --format flat")


def _say(line):
    print(line, flush=True)


def _inspect(arguments):
    from tandem.data.inspect import inspect
    inspect(arguments.path, arguments.format, arguments.token_type, arguments.tokenizer, arguments.sequence_length, arguments.documents,
            say=_say)
    return 0


def _check(arguments):
    from tandem.data.check import check
    return 0 if check(arguments.path, arguments.format, arguments.token_type, arguments.vocabulary, say=_say) else 1


def _prepare(arguments):
    from tandem.data.prepare import Options, prepare
    names = Options.__dataclass_fields__
    prepare(Options(**{name: value for name, value in vars(arguments).items() if name in names}),
            say=lambda line: print(line, file=sys.stderr, flush=True))
    return 0


def main(words=None):
    from tandem.data.errors import DataError
    arguments = parser().parse_args(words)
    if arguments.cli_version not in (None, version()):
        print(f"tandem: this program is version {arguments.cli_version}, and its Python side (tandem-py) {version()}: install both from "
              "one version", file=sys.stderr)
        return 1

    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, stop)
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return arguments.run(arguments)
    except DataError as error:
        print(f"tandem: {error}", file=sys.stderr)
    except BrokenPipeError:  # what reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"tandem: {error.filename or 'writing'}: {error.strerror or error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f'tandem: the Python package {error.name} is missing; run scripts/setup.sh --data in a clone, or pip install with the '
              f'extra data', file=sys.stderr)
    except KeyboardInterrupt:
        print("tandem: interrupted", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
