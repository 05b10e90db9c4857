"""The engine's command line: `python -m engine COMMAND ...`.

Parses arguments and converts failures to messages and exit codes: 0 done, 1 external failure, 2 usage, 130 interrupted.
The other modules of engine/commands implement the commands.
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
from collections.abc import Callable, Sequence

from engine.commands import (
    answers,
    catalogue,
    compare,
    files,
    library,
    machine,
    measures,
    profile,
    pull,
    serve,
    solve,
    train,
)
from engine.commands.console import drop_output, make_streams_safe
from engine.config import DEVICES, KV_CODECS, MODES, MOST_ANSWERS
from engine.errors import EngineError
from engine.machine.cpu_and_ram import share_heaps
from engine.service import DEFAULT_PORT
from engine.text.chat_templates import TEMPLATE_NAMES
from engine.thinking_level import LEVELS

Handler = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    make_streams_safe()
    share_heaps()
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    handler: Handler = arguments.handler
    try:
        return handler(arguments)
    except EngineError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        print("The memory is used up.\nClose other programs, or choose a smaller model or context.", file=sys.stderr)
        return 1
    except OSError as error:  # file errors are handled elsewhere: this is the output
        # The reader left, as `head` does. Windows' C library reports a closed pipe as EINVAL.
        left = isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL)
        if not left:
            print(f"The output cannot be written: {error.strerror or error}.\nFree some space, or write it elsewhere.",
                  file=sys.stderr)  # fmt: skip
        drop_output()
        return 1


# --- arguments


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hearth-engine",
        description="Hearth's engine: run, measure and look into language models on this PC.",
        epilog='Example: hearth-engine generate starter-chat --prompt "What is the capital of Peru?"',
    )
    names = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, handler: Handler, about: str, example: str) -> argparse.ArgumentParser:
        sub = names.add_parser(
            name, help=about, description=about, epilog=f"Example: hearth-engine {name} {example}".rstrip()
        )
        sub.set_defaults(handler=handler)
        sub.add_argument("--verbose", action="store_true", help="log progress to stderr")
        return sub

    def add_template(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--template",
            choices=TEMPLATE_NAMES,
            metavar="NAME",
            help=f"the chat template (default: the model's own, else a suitable one): {', '.join(TEMPLATE_NAMES)}",
        )

    def add_activation(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--activation",
            metavar="NAME[:THRESHOLD]",
            help="the FFN's activation, where the files cannot say it or are wrong: relu, relu2, drelu, fatrelu:0.01, "
            "silu, gelu, gelu-tanh",
        )

    def add_model(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "model", metavar="MODEL", help="a model folder, a GGUF file, or the name of an installed model"
        )
        sub.add_argument("--mode", choices=MODES, default="auto")
        add_engine(sub)

    def add_engine(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--device", choices=DEVICES, default="auto")
        sub.add_argument("--threads", type=int, help="CPU threads (default: usable physical cores - 1)")
        sub.add_argument("--context", type=int, help="tokens of context (default: as trained, if memory allows)")
        sub.add_argument(
            "--hardware",
            metavar="FILE",
            help="a saved hardware profile instead of a probe, or the name of one that comes with Hearth",
        )
        sub.add_argument("--vram-budget", type=float, metavar="GIB", help="most GPU memory to use")
        sub.add_argument(
            "--kv-cache", choices=KV_CODECS, help="format of the KV cache (default: f16; f32 without kernels)"
        )
        add_template(sub)
        add_activation(sub)

    def add_draft(sub: argparse.ArgumentParser, default: str, meaning: str) -> None:
        sub.add_argument(
            "--draft", metavar="MODEL|off", default=default,
            help=f"a smaller model of the same vocabulary that guesses tokens; the answer stays the same ({meaning})",
        )  # fmt: skip

    def add_sampling(sub: argparse.ArgumentParser, seed: bool = True) -> None:
        sub.add_argument("--max-tokens", type=int)
        sub.add_argument("--temperature", type=float, help="0 is greedy (default: the model's own)")
        sub.add_argument("--top-p", type=float)
        sub.add_argument("--top-k", type=int)
        sub.add_argument("--min-p", type=float)
        sub.add_argument("--repeat-penalty", type=float)
        if seed:
            sub.add_argument("--seed", type=int)
        sub.add_argument(
            "--thinking",
            choices=LEVELS,
            help="how much to think before the answer: the template's nearest level (default: its own)",
        )
        sub.add_argument(
            "--thought-tokens", type=int, metavar="N", help="longest thought; 0 ends it at once (default: no limit)"
        )

    def add_arithmetic(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--arithmetic",
            choices=("decode", "prefill"),
            default="decode",
            help="compute token by token, as in decode, or many at once, as in prefill (faster)",
        )

    def add_json(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--json", action="store_true", help="print one JSON object")

    sub = command(
        "generate", answers.generate, "Print one answer as it is written.", 'starter-chat --prompt "Tell me a story."'
    )
    add_model(sub)
    add_draft(sub, "off", "default: off")
    sub.add_argument("--prompt", required=True, metavar="TEXT")
    sub.add_argument("--raw", action="store_true", help="encode the text without a chat template")
    add_sampling(sub)
    constraint = sub.add_mutually_exclusive_group()
    constraint.add_argument("--regex", metavar="TEXT", help="the answer matches this regular expression as a whole")
    constraint.add_argument("--grammar", metavar="FILE", help="the answer matches this grammar, in GBNF or Lark")
    constraint.add_argument("--json-schema", metavar="FILE", help="the answer is JSON that follows this schema")
    add_json(sub)

    sub = command(
        "compare", compare.compare, "Answer prompts with several models and modes, and compare them.",
        "starter-chat --modes exact,sparse --prompt 'Tell me a story.' --out results.jsonl",
    )  # fmt: skip
    sub.add_argument(
        "models", metavar="MODEL", nargs="*",
        help="model folders, GGUF files, or names of installed models; none: show the results of the file",
    )  # fmt: skip
    sub.add_argument(
        "--prompts", metavar="FILE", help='one prompt per line, or one JSON object per line: {"prompt": "..."}'
    )
    sub.add_argument("--prompt", action="append", metavar="TEXT", help="a prompt; may be given several times")
    sub.add_argument(
        "--out", required=True, metavar="FILE.jsonl",
        help="file of results; answers that it has are not computed again",
    )  # fmt: skip
    sub.add_argument("--modes", default="auto", metavar="LIST", help="of auto, sparse, exact, dense (default: auto)")
    sub.add_argument("--seeds", default="0", metavar="LIST", help="as 1,2,3 (default: 0)")
    sub.add_argument("--csv", metavar="FILE", help="write all answers as CSV")
    sub.add_argument("--html", metavar="FILE", help="write a web page with all answers side by side")
    add_engine(sub)
    add_sampling(sub, seed=False)
    add_json(sub)

    sub = command("chat", answers.chat, "Chat in the terminal.", "starter-chat")
    add_model(sub)
    add_draft(sub, "off", "default: off")
    sub.add_argument("--system", metavar="TEXT", help="a system message")
    add_sampling(sub)

    sub = command(
        "logits",
        measures.logits,
        "Write the logits after given tokens.",
        "starter-chat --tokens 0,1750,759 --out logits.npz",
    )
    add_model(sub)
    sub.add_argument("--tokens", required=True, metavar="IDS", help="token ids, as 1,2,3")
    sub.add_argument("--out", required=True, metavar="FILE.npz")
    sub.add_argument("--all", action="store_true", help="logits of every position [T, V], not only of the last [V]")
    add_arithmetic(sub)
    add_json(sub)

    sub = command(
        "eval",
        measures.evaluate,
        "Measure perplexity over a text, or answer multiple-choice questions.",
        "starter-chat --text story.txt",
    )
    add_model(sub)
    what = sub.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", metavar="FILE")
    what.add_argument("--choices", metavar="FILE", help="one JSON object a line: question, choices, answer")
    sub.add_argument("--max-tokens", type=int, help="score only the first N tokens")
    sub.add_argument("--against", choices=("exact", "dense"), help="compare with another mode")
    add_arithmetic(sub)
    add_json(sub)

    sub = command(
        "bench", measures.bench, "Measure decode and prefill rates on random tokens.", "starter-chat --gen-tokens 64"
    )
    add_model(sub)
    sub.add_argument("--prompt-tokens", type=int, default=128)
    sub.add_argument("--gen-tokens", type=int, default=64)
    sub.add_argument("--batch", type=int, default=1, help="sequences at once, up to 32")
    sub.add_argument("--repeat", type=int, default=3)
    add_json(sub)

    sub = command(
        "profile", profile.profile, "Count how often each neuron of a model is active, to place them.",
        "starter-chat --plot locality.png",
    )  # fmt: skip
    add_model(sub)
    sub.add_argument(
        "--text",
        metavar="FILE",
        help="count over this text (lines User: and Assistant: are a chat) instead of text that the model writes",
    )
    sub.add_argument("--tokens", type=int, metavar="N", help="count over at most N tokens (default: all, or 32768)")
    sub.add_argument("--plot", metavar="FILE", help="draw the curves to a .png or .svg file")
    add_json(sub)

    sub = command(
        "train", train.train, "Train predictors of active neurons, and measure their loss.",
        "starter-chat --text notes.txt",
    )  # fmt: skip
    add_model(sub)
    sub.add_argument("--text", metavar="FILE", help="train half on this text and half on text that the model writes")
    sub.add_argument("--tokens", type=int, default=49152, metavar="N", help="tokens of text in all (default: 49152)")
    sub.add_argument("--kind", choices=("auto", "low_rank", "gate_copy", "cascade", "sign"), default="auto")
    sub.add_argument("--budget", type=float, default=1.0, metavar="PERCENT",
                     help="allowed rise of perplexity on held-out text (default: 1)")  # fmt: skip
    sub.add_argument("--seed", type=int, default=0)
    add_json(sub)

    sub = command(
        "solve", solve.solve, "Decide which neurons and parts of a model go on the GPU.",
        "starter-chat --hardware pc-high --vram-budget 1",
    )  # fmt: skip
    add_model(sub)
    sub.add_argument("--again", action="store_true", help="solve again even if nothing has changed")
    add_json(sub)

    sub = command("inspect", files.inspect, "Describe a model file.", "starter-chat")
    sub.add_argument("model", metavar="MODEL", help="a model folder, a GGUF file, or the name of an installed model")
    add_template(sub)
    add_activation(sub)
    add_json(sub)

    sub = command(
        "convert", files.convert, "Convert a model to a bundle, Hearth's own format.",
        "model.gguf model-bundle --codec q4_0",
    )  # fmt: skip
    sub.add_argument("source", metavar="SRC", help="a model folder, a GGUF file, or the name of an installed model")
    sub.add_argument("bundle", metavar="DST", help="the folder to make; it must not exist yet")
    sub.add_argument("--codec", required=True, choices=("f16", "q8_0", "q4_0"), help="codec of the matrices")
    add_activation(sub)
    add_json(sub)

    sub = command("list", library.list_models, "List the installed models.", "")
    add_json(sub)

    sub = command("import", library.import_model, "Add a model that is on this PC.", "model.gguf --copy")
    sub.add_argument("path", metavar="PATH", help="a GGUF file, a Hugging Face folder or a bundle")
    sub.add_argument("--copy", action="store_true", help="copy it into the models folder instead of using it in place")
    sub.add_argument("--name", default="", help="its name in Hearth (default: from its files)")
    add_json(sub)

    sub = command("remove", library.remove, "Remove an installed model.", "local/my-model")
    sub.add_argument("name", nargs="?", metavar="NAME", help="its id or name, as `list` shows it")
    sub.add_argument("--undo", metavar="TOKEN", help="bring back what was removed in the last 10 minutes")
    add_json(sub)

    sub = command("probe", machine.probe, "Describe this machine.", "--measure")
    sub.add_argument("--measure", action="store_true", help="also measure bandwidths")
    sub.add_argument("--threads", type=int, help="CPU threads to measure with (default: usable physical cores - 1)")
    add_json(sub)

    sub = command(
        "catalogue", catalogue.catalogue, "List models to download, and how each would run on this machine.",
        "--query bamboo",
    )  # fmt: skip
    sub.add_argument("--query", metavar="WORDS", help="only models with these words in name, maker, family or licence")
    sub.add_argument(
        "--hardware", metavar="FILE", help="estimate for a saved hardware profile, or for one that comes with Hearth"
    )
    sub.add_argument("--vram-budget", type=float, metavar="GIB", help="most GPU memory to use")
    sub.add_argument("--context", type=int, help="tokens of context (default: as for a load)")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line")

    sub = command("pull", pull.pull, "Download and verify a model.", "bamboo-dpo-7b")
    sub.add_argument(
        "model",
        metavar="REPO_OR_ID",
        help="a model of the catalogue, owner/name on the hub, or the address of its page",
    )
    sub.add_argument("--file", metavar="F", help="variant in a repository: file name or codec")
    sub.add_argument("--json", action="store_true", help="print one JSON object a line")

    sub = command(
        "serve", serve.serve, "Serve a model to other programs on this PC through OpenAI's API.",
        "starter-chat --port 8434",
    )  # fmt: skip
    add_model(sub)
    add_draft(sub, "auto", "default: an installed one, if it makes answers faster")
    sub.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0: any free one (default: {DEFAULT_PORT})")
    given = sub.add_mutually_exclusive_group()
    given.add_argument("--key-file", metavar="FILE", help="file with the key that programs must send")
    given.add_argument(
        "--key", help="the key itself, which others on this PC may see among the processes; "
        "default: $HEARTH_API_KEY, else a new one, which is shown"
    )  # fmt: skip
    sub.add_argument(
        "--load-on-demand", action="store_true",
        help="requests may name any installed model, which is loaded in place of the current one",
    )  # fmt: skip
    sub.add_argument(
        "--unload-after", type=float, metavar="MINUTES",
        help="unload the model after so long without a request (default: never)",
    )  # fmt: skip
    sub.add_argument(
        "--requests", type=int, choices=range(1, MOST_ANSWERS + 1), default=1, dest="batch",
        help="requests answered at once, each with memory of its own for its context (default: 1)",
    )  # fmt: skip
    add_json(sub)

    sub = command("host", machine.host, "Run the engine process for the window, over stdin and stdout.", "")
    sub.add_argument(
        "--library", action="store_true", help="run the process that finds, downloads and prepares models instead"
    )
    return parser
