# SPDX-License-Identifier: Apache-2.0
"""`tandem-py`, which `tandem data ...` runs: commands whose work Python libraries do."""
import argparse
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


def parser():
    top = argparse.ArgumentParser(prog="tandem", description="Commands of Tandem whose work Python libraries do.", allow_abbrev=False)
    top.add_argument("--cli-version", help=argparse.SUPPRESS)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    data = commands.add_parser("data", help="Make tokens of text", description="Make tokens of text, before training.")
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
    return top


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
    try:
        return arguments.run(arguments)
    except DataError as error:
        print(f"tandem: {error}", file=sys.stderr)
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
