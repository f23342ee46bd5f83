# SPDX-License-Identifier: Apache-2.0
"""`tandem-py`, which `tandem data ...` and `tandem follow` run: commands that need Python libraries."""
import argparse
import os
import re
import signal
import sys

from tandem.version import version

FAILED_CALLS = {"NotFound": 3, "Refused": 5, "Unreachable": 6, "TimedOut": 7}  # exit codes, as of tandem
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
    top = argparse.ArgumentParser(prog="tandem", description="Commands of Tandem that need Python libraries.", allow_abbrev=False)
    top.add_argument("--cli-version", help=argparse.SUPPRESS)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    data = commands.add_parser("data", help="Prepare, inspect or check token files", description="Make tokens of text before training, and look "
                               "at files of tokens.")
    kinds = data.add_subparsers(metavar="COMMAND", required=True)
    prepare = kinds.add_parser(
        "prepare", help="Make a folder of tokens of files of text", allow_abbrev=False,
        description="Makes a folder of tokens (Megatron-LM's .bin and .idx, and dataset.json) for data.train of a job. Files "
                    "are read in the order of their paths; the result does not depend on the number of processes. If it is "
                    "stopped, the same command continues after the finished shards.")
    prepare.add_argument("inputs", nargs="+", metavar="INPUT", help="files, folders and globs of JSON lines or text, plain, .gz or .zst, or of Parquet")
    prepare.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make; it must not be there yet")
    prepare.add_argument("--tokenizer", required=True, metavar="PATH",
                         help="a Hugging Face tokenizer: a folder with a tokenizer.json, or that file; or bytes")
    prepare.add_argument("--text-field", default="text", metavar="NAME", help="field of a JSON line, or column of Parquet, that has the text (default text)")
    prepare.add_argument("--prompt-field", default="", metavar="NAME",
                         help="field of a text before that one, whose tokens do not count as targets (writes masks)")
    prepare.add_argument("--format", choices=("auto", "jsonl", "text"), default="auto",
                         help="auto: .jsonl, .ndjson and .json are JSON lines, .parquet is Parquet, and any other file is one document of text")
    prepare.add_argument("--eos", default="auto", metavar="TOKEN",
                         help="token behind each document: auto (eos_token of tokenizer_config.json), none, a token, or an id")
    prepare.add_argument("--bos", default="none", metavar="TOKEN", help="token before each document, in the same forms (default none)")
    prepare.add_argument("--parse-special", action="store_true", help="text that looks like a special token becomes one")
    prepare.add_argument("--max-document", type=_bytes, default="64MiB", metavar="SIZE", help="longer documents are left out (default 64MiB)")
    prepare.add_argument("--shard", type=_bytes, default="2GiB", metavar="SIZE", help="size of a file of tokens, about (default 2GiB)")
    prepare.add_argument("--processes", type=_count, default=0, metavar="N", help="processes that tokenise (default: number of processors)")
    prepare.add_argument("--strict", action="store_true", help="end at the first document that cannot be used")
    prepare.add_argument("--lenient", action="store_true", help="go on if more than 5 %% of the documents cannot be used")
    prepare.set_defaults(run=_prepare, needs="[data]")
    forms = ("a folder of tandem data prepare; a pair of .bin and .idx of Megatron-LM, by either or without its ending; a .npy file; a "
             "file of llm.c; or a folder of such files")
    inspect = kinds.add_parser("inspect", help="Show what is in files of tokens", allow_abbrev=False,
                               description="Shows counts, lengths of documents, the most frequent tokens, and the first documents.")
    inspect.add_argument("path", metavar="PATH", help=forms)
    inspect.add_argument("--tokenizer", metavar="PATH", help="decode with this one (default: the one that dataset.json names)")
    inspect.add_argument("--sequence-length", type=_positive, metavar="N", help="say how many sequences that makes")
    inspect.add_argument("--documents", type=_natural, default=3, metavar="N", help="how many of the first documents to show (default 3)")
    _add_form(inspect)
    inspect.set_defaults(run=_inspect, needs="[data]")
    check = kinds.add_parser("check", help="Read every byte of files of tokens, and name what is wrong", allow_abbrev=False,
                             description="Reads every byte: indices, digests, and that each token is below the vocabulary. Exit code 1 "
                                         "if something is wrong.")
    check.add_argument("path", metavar="PATH", help=forms)
    check.add_argument("--vocabulary", type=_positive, metavar="N", help="number of ids of the tokenizer (default: what dataset.json says)")
    _add_form(check)
    check.set_defaults(run=_check, needs="[data]")
    _add_follow(commands)
    return top


def _add_follow(commands):
    follow = commands.add_parser(
        "follow", help="Write a job's reports into a tracker", allow_abbrev=False,
        description="Writes every step of a job, from its first one until it has ended, into a tracker. The same command continues "
                    "where an earlier one stopped. Exits with the job's status, as tandem watch.")
    follow.add_argument("job", metavar="JOB", help="id of the job, its first characters (4 or more), or its name")
    follow.add_argument("--to", required=True, choices=("csv", "mlflow", "wandb"), help="the tracker")
    follow.add_argument("--out", metavar="FOLDER", help="folder to write to (default: the job's name)")
    follow.add_argument("--project", metavar="NAME", help="project of wandb, experiment of mlflow (default tandem)")
    follow.add_argument("--offline", action="store_true", help="use no network: mlflow writes FOLDER/mlflow.db, wandb FOLDER/wandb")
    follow.add_argument("--norms-every", type=_natural, default=100, metavar="N",
                        help="write norms of parameters every N steps (default 100; 0: never)")
    follow.add_argument("--addr", metavar="ADDRESS", help="controller: HOST:PORT or unix:/PATH (default: TANDEM_ADDR)")
    for name in ("ca", "cert", "key", "server-name"):
        follow.add_argument(f"--tls-{name}", help=argparse.SUPPRESS)
    follow.set_defaults(run=_follow)


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


def _follow(arguments):
    arguments.needs = "" if arguments.to == "csv" else f"[{arguments.to}]"
    from tandem.client import Client
    from tandem.errors import TandemError
    from tandem.follow import facts, follower
    from tandem.follow.errors import FollowError
    from tandem.follow.tracker import sole_writer
    for name, given in (("--project", arguments.project), ("--offline", arguments.offline)):
        if arguments.to == "csv" and given:
            raise FollowError(f"{name} is for mlflow and wandb: with --to csv everything is in files; omit it")
    interrupts = follower.Interrupts()
    try:
        with Client(arguments.addr, ca=arguments.tls_ca, cert=arguments.tls_cert, key=arguments.tls_key,
                    server_name=arguments.tls_server_name) as client:
            job = client.get(arguments.job)
            folder = arguments.out or job.name
            with sole_writer(folder):
                tracker = _tracker(arguments, folder, job)
                following = follower.Follower(client, tracker, arguments.norms_every, interrupts.held_back)
                print(f"tandem: follow {job.name}: {len(tracker.written)} steps are there, the rest goes to {tracker.place}; "
                      "norms of parameters begin now", file=sys.stderr, flush=True)
                try:
                    following.run(job)
                finally:
                    with interrupts.held_back():
                        tracker.close(facts.state_of(following.job))
    except TandemError as error:
        print(f"tandem: follow {arguments.job}: {error}", file=sys.stderr)
        return FAILED_CALLS.get(type(error).__name__, 1)
    state = facts.state_of(following.job)
    print(f"tandem: job {following.job.name} {state}; {len(tracker.written)} steps are in {tracker.place}"
          + (f"; the controller does not have the last one, {following.job.last_step}" if following.missing() else ""), file=sys.stderr)
    return follower.exit_code(following.job)


def _tracker(arguments, folder, job):
    if arguments.to == "csv":
        from tandem.follow.csv_file import CsvFile
        return CsvFile(folder, job)
    project = arguments.project or "tandem"
    if arguments.to == "mlflow":
        from tandem.follow.mlflow_run import MlflowRun
        return MlflowRun(folder, job, project, arguments.offline)
    from tandem.follow.wandb_run import WandbRun
    return WandbRun(folder, job, project, arguments.offline)


def main(words=None):
    from tandem.data.errors import DataError
    from tandem.follow.errors import FollowError
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
    except (DataError, FollowError) as error:
        print(f"tandem: {error}", file=sys.stderr)
    except BrokenPipeError:  # what reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"tandem: {error.filename or 'writing'}: {error.strerror or error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        option = "data" if arguments.needs == "[data]" else "follow"
        print(f'tandem: the Python package {error.name} is missing; run scripts/setup.sh --{option}, or pip install '
              f'"./python{arguments.needs}", in a clone of Tandem', file=sys.stderr)
    except KeyboardInterrupt:
        print("tandem: interrupted", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
