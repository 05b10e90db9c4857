"""Figures in the pages' sentences are those that are recorded: each is worked out again from the records."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from support.documented import ROOT

from engine.library.estimate.catalogue import load_catalogue
from engine.library.estimate.shapes import bytes_of
from engine.model.families import FAMILIES

RESULTS = ROOT / "tests" / "benchmarks" / "results"


def record(name: str) -> Any:
    """Read a record. {"columns", "rows"}, which is shorter, becomes a list of objects with the same keys."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"), object_hook=_rows)


def _rows(found: dict[str, Any]) -> Any:
    if found.keys() != {"columns", "rows"}:
        return found
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def newest(kind: str) -> Any:
    files = sorted(RESULTS.glob(f"{kind}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].json"))
    return record(files[-1].stem)


def anchor(name: str, budget: str) -> Any:
    return next(row for row in newest(f"gpu-anchors-{name}")["rows"] if row["budget"] == budget)


def kernels(codec: str, operator: str, share: str) -> float:
    rows = record("cpu-kernels-xeon-2026-11-21")["rows"]
    row = next(row for row in rows if (row["codec"], row["operator"], row["threads"]) == (codec, operator, 8))
    return float(row["of_ceiling"][share])


def of_guesses(model: str, device: str) -> list[str]:
    """A table of guessed tokens, row by row."""
    found = [newest(f"guessed-tokens-{model}-{codec}-{device}")["answers"] for codec in ("q4_0", "f16")]
    acts = {"edits each 20th token": "repeats it with each 20th token replaced", "goes on": "continues it"}
    rows = []
    for name in found[0]:
        text, act = name.split(": ")
        cells = [f"{of[name]['gain']:.2f} ({of[name]['least']:.2f} to {of[name]['most']:.2f})" for of in found]
        rows.append(f"| {text.capitalize()}: {acts.get(act, act)} | {' | '.join(cells)} |")
    return rows


def of_guesses_with_experts() -> list[str]:
    answers = newest("guessed-tokens-30b-a3b-q4_0-gpu")["answers"]
    return [
        "{:.2f}, {:.2f} and {:.2f}".format(*(answers[f"{text}: {act}"]["gain"] for text in ("prose", "code", "tables")))
        for act in ("quotes the prompt", "edits each 20th token", "goes on")
    ]


def of_experts_on_disk() -> list[str]:
    """The table of experts on the disk, row by row."""
    rows = []
    for run in newest("experts-on-disk")["runs"]:
        first, long, short = run["answers"]
        told = f"{short['decode_tok_s']:.1f} | {short['read_mb_per_token']} MB"
        name = run["readahead"] + (", build before" if run["build"] == "before" else "")
        rows.append(
            f"| {name} | {long['first_token_s']:.1f} s | {long['prompt_read_gb']:.1f} GB | "
            f"{short['first_token_s']:.1f} s | {told} | {run['predicted_tok_s']:.1f} |"
        )
        if len(rows) == 2:
            before, after = first["read_mb_per_token"], short["read_mb_per_token"]
            rows.append(f"read {before} MB per token before the prompt of 300 and {after} MB after it")
    return rows


def of_readers() -> str:
    """What more readers and pinned memory gave to chats that are read again."""
    runs = newest("warm-chats-readers-8b-q4_0-h200")["first_token_s"]
    before, after = (
        [
            statistics.median(run[way] for run in runs if run["build"] == build)
            for way in ("after another chat", "after a restart")
        ]
        for build in ("before", "after")
    )
    return (
        f"after {after[0]:.2f} s (four threads: {before[0]:.2f} s) when another chat was answered meanwhile, "
        f"and after {after[1]:.2f} s (four threads: {before[1]:.2f} s) after a restart"
    )


def of_projects() -> list[str]:
    """Parts of the sentence about new chats that begin as another one does."""
    first = newest("warm-chats-project-8b-q4_0-h200")["first_token_s"]
    return [
        f"had its first token after {first['a new chat, in place']:.2f} s while they were",
        f"and after {first['a new chat, after another chat']:.2f} s when another chat was answered meanwhile; "
        f"computing them took {first['cold']:.2f} s.",
    ]


def of_consumer_pcs() -> list[str]:
    """The table of models within small budgets, row by row: three cells in one for 4, 6 and 8 CPUs."""
    found: dict[tuple[str, int], dict[int, Any]] = {}
    for run, on in ((newest("consumer-pcs-h100"), ""), (newest("consumer-pcs-h200"), ", H200")):
        for values in run["rows"]:
            row = dict(zip(run["columns"], values, strict=True))
            found.setdefault((row["model"] + on, row["budget_gib"]), {})[row["cores"]] = row
    rows = []
    for (model, budget), by_cores in sorted(found.items()):
        of = [by_cores.get(n) for n in (4, 6, 8)]
        cells = [
            " / ".join("–" if row is None else f"{row[name]:{form}}" for row in of)
            for name, form in (("ram_gb_per_s", ".0f"), ("decode_tok_s", ".1f"), ("prefill_tok_s", ",.0f"))
        ]
        shares = [row["gpu_bytes_per_token"] / (row["gpu_bytes_per_token"] + row["cpu_bytes_per_token"])
                  for row in of if row is not None]  # fmt: skip
        least, most = round(100 * min(shares)), round(100 * max(shares))
        share = f"{least} to {most} %" if least < most else f"{most} %"
        rows.append(f"| {model} | {budget} GiB | {' | '.join(cells)} | {share} |")
    return rows


def of_cpu_experts() -> list[str]:
    """The table of experts on the CPU, row by row."""
    by_codec: dict[str, list[str]] = {}
    for row in newest("experts-cpu-xeon")["rows"]:
        codec = row["model"].removeprefix("moe-").upper()
        by_codec.setdefault(codec, []).append(f"{row['share_of_floor']:.2f} | {row['ms_per_token']:.1f}")
    return [f"| {codec} | {' | '.join(cells)} |" for codec, cells in by_codec.items()]


def of_warm_chats() -> list[str]:
    """The tables of chats on a GPU, row by row."""
    both = [newest(f"warm-chats-8b-q4_0-h100-{codec}") for codec in ("f16", "q8_0")]
    names = {
        "cold": "computed", "in place": "in GPU memory, and the message has 30 tokens",
        "after another chat": "in RAM, after another chat; the message is known",
        "after a restart": "on disk, after a restart; the message is known",
    }  # fmt: skip
    cells = {key: " | ".join(f"{one[key]['first_token_s']:.2f} s" for one in both) for key in names}
    of_lengths, run = [], newest("warm-chats-lengths-8b-q4_0-h200")
    for one, peer in zip(run["chats"], run["llama_cpp"]["rows"], strict=True):
        computed, *warm = (f"{one[key]['first_token_s']:.2f} s" for key in names)
        theirs = f"{peer['tokens'] / peer['prompt_tok_s']:.2f} s"
        decode = f"{peer['decode_tok_s']:.0f}" if peer["decode_tok_s"] else "–"
        cells_of = [f"{one['tokens']:,}", computed, theirs, *warm, f"{one['cold']['decode_tok_s']:.0f}", decode]
        of_lengths.append(f"| {' | '.join(cells_of)} |")
    return [*(f"| {name} | {cells[key]} |" for key, name in names.items()), *of_lengths]


def of_real_models() -> list[str]:
    """The tables of neurons that are skipped and of KV caches, row by row."""
    names = {"smollm2-135m-q4_1": "SmolLM2-135M-Instruct, Q4_1", "gemma3-270m-q4_k_m": "Gemma 3 270M, Q4_K_M"}
    rows = []
    for name, words in names.items():
        for level in newest(f"made-zeros-{name}")["levels"]:
            texts = level["texts"].values()
            kl, top1 = max(one["kl"] for one in texts), min(one["top1"] for one in texts)
            rise = max(one["perplexity_rise"] for one in texts)
            read = f"{level['kept']:.1%} | {level['all_bytes']:.1%}"
            rows.append(f"| {words} | {read} | {kl:.4f} | {top1:.1%} | {rise:+.2%} |")
        for codec, one in newest(f"kv-quality-{name}")["codecs"].items():
            quality = f"{one['kl']:.5f} | {one['top1']:.1%} | {one['perplexity_rise']:+.2%}"
            rows.append(f"| {words} | {codec} | {quality} |")
    return [row.replace("%", " %") for row in rows]


def of_small_models() -> list[str]:
    """The table of KV caches of models that were trained for it, row by row."""
    found, rows = newest("kv-quality-small-models"), []
    for name, one in ({f"starter, {codec}": one for codec, one in found["starter"].items()} | found["models"]).items():
        cells = [f"{1e6 * max(one[codec]['kl'], 0):,.1f}" for codec in ("f16", "q8_0")]
        seen = f"{one['tokens'] / 1e6:.1f}" if "tokens" in one else "413"
        quality = f"{one['perplexity']:,.0f} | {' | '.join(cells)} | {one['q8_0']['top1']:.1%}"
        rows.append(f"| {name} | {seen} | {quality} |")
    return [row.replace("%", " %") for row in rows]


def of_trained_drafts() -> list[str]:
    """The table of what was trained to draft for the starter, row by row, and the estimate for a larger model."""
    found, large, rows = newest("trained-drafts-starter"), newest("drafted-tokens-qwen3.6-27b-mtp-h200"), []
    for key, name in (("mtp", "the layer"), ("draft", "the draft")):
        assert found[key]["same texts"]
        for way, n_tokens in list(found[key]["tokens of a run with three guesses"].items())[:2]:
            shares = [f"{100 * share:.0f} %" for share in found[key]["right guesses by step"][way]]
            rows.append(f"| {name}, {way} answers | {' | '.join(shares)} | {n_tokens:.2f} |")
    run = large["run of n tokens, relative to one"]["2"] + large["guess ms"] / large["token ms"]
    gain = (1 + found["mtp"]["right guesses by step"]["greedy"][0]) / run
    return [*rows, f"one guess a run is estimated to decode at {gain:.2f} times"]


def of_shapes() -> list[str]:
    """What up and down are of a token's bytes, and what must be kept of them to read a tenth less, row by row."""
    rows = []
    for name in ("llama-3.1-8b-instruct", "llama-3.3-70b-instruct", "gemma-4-12b", "qwen3-30b-a3b", "gpt-oss-120b"):
        entry = load_catalogue().get(name)
        model = bytes_of(entry.shape, entry.codec, entry.format).model
        config, layers = model.config, range(model.n_layers)
        used = [config.n_experts_used * config.d_ff if config.n_experts else config.ffn_width(i) for i in layers]
        behind = sum(used[i] * int(model.second[i] + model.down[i]) for i in layers)
        read = sum(used[i] * int(model.neuron[i]) for i in layers) + int(model.attention.sum()) + model.head
        share = behind / read
        rows.append(f"| {name}, {entry.codec.upper()} | {share:.0%} | {1 - 0.1 / share:.0%} |".replace("%", " %"))
    return rows


def of_families() -> list[str]:
    """The tables of newer families beside llama.cpp, row by row."""
    rows = []
    for device in ("h200", "cpu", "epyc"):
        for name, one in newest(f"family-speeds-{device}")["models"].items():
            cells = (f"{one['hearth'][what]:,.0f} ({one[f'{what} ratio']:.2f})" for what in ("prefill", "decode"))
            rows.append(f"| {name} | {one['layers']} of {one['of']} | {' | '.join(cells)} |")
    return rows


def of_drafts() -> list[str]:
    """The table of a layer that drafts tokens, row by row."""
    found = newest("drafted-tokens-qwen3.6-27b-mtp-h200")
    told = f"A guess took {found['guess ms']:.1f} ms where a token took {found['token ms']:.0f} ms."
    shares = found["by share of right guesses"].items()
    return [told, *(f"| {float(share):.0%} | {one['gain']:.2f} |".replace("%", " %") for share, one in shares)]


def of_cards() -> list[str]:
    """The table of predicted rates on four PCs, row by row."""
    rows = []
    for name, one in newest("gains-by-card")["models"].items():
        codec = one.pop("codec").upper()
        cells = (f"{card['hearth']:.1f} ({card['hearth'] / card['layers']:.1f})" for card in one.values())
        rows.append(f"| {name}, {codec} | {' | '.join(cells)} |")
    return rows


def said() -> list[tuple[str, str]]:
    """(page, words with figures as they must stand in it)."""
    big, batch = anchor("70b", "24"), record("batch-scaling-2026-11-22")
    peers = record("peers-h200-2026-11-20")["rows"]
    peer = next(row for row in peers if (row["model"], row["budget"], row["engine"], row["threads"])
                == ("70b-q4_0", "24", "PowerInfer", 16))  # fmt: skip
    of_size = {row["batch"]: row["decode_tok_s"] for row in batch["rows"]}
    starter, opening = record("starter-chat-2026-11-21")["result"], record("opening-2026-11-21")
    small, wins = anchor("13b", "11"), record("adaptation-2026-11-21")["adapting_wins_back_share"]
    kills = record("killed-streams-2026-11-22")
    on_gpu = {row["batch"]: row["decode_tok_s"] for row in newest("batch-scaling-gpu")["rows"]}
    batches_again = {row["batch"]: row["decode_tok_s"] for row in newest("batch-scaling-gpu-again")["rows"]}
    whole = newest("gpu-lengths-32b-f16")["runs"]["24"]
    answers = {one["shape"]: one["tok_s"] for one in whole["answers"]}
    runs = ("13b", "32b", "32b-whole-gpu", "70b")
    again = newest("gpu-anchors-again-13b")
    ram = {name: newest(f"gpu-anchors-{name}")["dram_bytes_per_s"] / 1e9 for name in ("13b", "again-13b")}
    dense = newest("gpu-dense-32b")
    products = [row for row in newest("gpu-prompt-products")["products"] if row["positions"] == 512]
    own, theirs = ([row[f"{by}_rows_flop_per_s"] / 1e12 for row in products] for by in ("own", "cublas"))
    layers = newest("gpu-layers-13b")
    questions = newest("gpu-lengths-70b-q4_0")["runs"]["24"]
    shares = {one["shape"]: 100 * one["share_of_whole_gpu"] for one in whole["answers"]}
    read = [newest(f"gpu-anchors-{name}")["dram_bytes_per_s"] for name in runs]
    sharing = record("gpu-sharing-2026-11-22")["parts"]
    idle, before = (step["seconds"] for step in sharing["neighbour"]["steps"][:2])
    whole_7b = sharing["marks"]["rows"][0]["sum_of_token"]
    start = newest("desktop")["measured"]["start"]
    assert not kills["problems"]
    soak = record("reliability-2026-11-22")["parts"]["soak"]["told"]
    killed = record("killed-chats-2026-11-29")["runs"]
    names = ("tokens", "kills", "warm restarts", "logits compared")
    n_tokens, n_kills, n_warm, n_rows = (sum(one[name] for one in killed) for name in names)
    assert not any(one["faults"] for one in killed)
    page = "benchmarks.md"
    rows = [
        (page, f"{n_tokens:,} tokens in chats with guesses, {n_kills} kills and {n_warm} warm restarts"),
        (page, f"the same {n_rows:,} rows of logits"),
        (page, f"a token takes {1e3 / big['decode_tok_s']:.1f} ms; PowerInfer took {1e3 / peer['tok_s']:.1f} ms"),
        (page, f"they are {small['gpu_neuron_load']:.0%} of those that are computed".replace("%", " %")),
        (page, f"has {batch['alone_tok_s']:.0f} tokens/s"),
        (page, f"one sequence in a batch has {of_size[1]:.0f}"),
        (page, f"{starter['decode_tok_s']:.0f} tokens/s of decode, {starter['prefill_tok_s']:,.0f} of prompt, "
               f"{100 * starter['share_of_floor']:.0f} % of its floor"),
        (page, f"eight sequences together decoded {on_gpu[8]:.1f} tokens/s and 32 decoded {on_gpu[32]:.1f}. "
               f"One alone had {on_gpu[1]:.1f}, two had {on_gpu[2]:.1f} and four {on_gpu[4]:.1f}:"),
        (page, f"it was {batches_again[2]:.1f} with two, {batches_again[4]:.1f} with four and "
               f"{batches_again[1]:.1f} alone"),
        (page, f"Falcon-40B in F16 within 24 GiB decoded {anchor('falcon-40b', '24')['decode_tok_s']:.1f} tokens/s, "
               f"OPT-30B {anchor('opt-30b', '24')['decode_tok_s']:.1f}"),
        (page, f"32B in F16 within 24 GiB had {dense['rows'][0]['decode_tok_s']:.1f} tokens/s. This is the floor of "
               f"that placement when the RAM is read at {dense['dram_bytes_per_s'] / 1e9:.0f} GB/s"),
        (page, f"with 512 positions run at {min(own):.0f} to {max(own):.0f} TFLOP/s"),
        (page, f"with cuBLAS, conversions included, at {min(theirs):.0f} to {max(theirs):.0f}"),
        (page, of_readers()),
        *((page, part) for part in of_projects()),
        *((page, row) for row in (*of_experts_on_disk(), *of_consumer_pcs(), *of_families(), *of_drafts())),
        *((page, row) for row in of_cpu_experts()),
        *((page, row) for row in of_shapes()),
        (page, f"The placement had predicted {100 * layers['predicted_gpu_neuron_load']:.0f} % as well"),
        *((page, f"| 128 and {n} | {answers[f'128+{n}']:.1f} | {shares[f'128+{n}']:.0f} % |") for n in (8, 128, 512)),
        (page, f"it came after {questions['first_s']:.2f} s, "
               f"{questions['first_s'] / questions['first_floor_s']:.2f} times that time"),
        (page, f"of 512 came after {whole['first_s']:.2f} s, {whole['first_s'] / whole['first_floor_s']:.2f} times"),
        (page, f"{small['decode_tok_s']:.1f} tokens/s where the RAM was read at {ram['13b']:.0f} GB/s before, and "
               f"{again['rows'][0]['decode_tok_s']:.1f} at {ram['again-13b']:.0f}"),
        (page, f"Plain reading took {min(read) / 1e9:.0f} to {max(read) / 1e9:.0f} GB/s"),
        ("gpu.md", f"were {whole_7b:.0%} of a token".replace("%", " %")),
        ("gpu.md", f"given back within {idle:.1f} s while idle and in {before:.1f} s before an answer"),
        (page, f"at most {record('hot-set-coverage-2026-11-21')['worst_loss']:.1f} points"),
        (page, f"wins back {100 * wins:.0f} % of what is lost"),
        (page, f"{100 * record('prediction-2026-11-21')['worst']:.0f} % at most"),
        ("desktop.md", f"{start['painted_s']:.2f} s and {start['composer_focused_s']:.2f} s. The process used "
                       f"{start['cpu_s']:.2f} s of CPU time"),
        (page, f"with {opening['tensors']} tensors is opened in {opening['first_s']:.2f} s and loaded to run straight "
               f"from the file in {opening['load']['first_s']:.1f} s, with "
               f"{opening['load']['resident_growth_bytes'] / 1e6:.0f} MB more RAM"),
        (page, f"{kills['kills']:,} times `kill -9` at random moments of a streamed answer: nothing was found broken "
               f"afterwards, and at most {kills['lost_s']['max']:.2f} s of the answer was lost "
               f"(median {kills['lost_s']['p50']:.2f} s)"),
        (page, f"{soak['answers']} answers in one engine, {soak['tokens']:,} tokens | "
               f"{soak['memory_mb_for_100_acts']:.2f} MB more memory"),
        ("how-it-works.md", f"took {1e6 * newest('gpu-anchors-13b')['hardware']['sync_s']:.0f} us"),
        ("how-it-works.md", f"wins back {100 * wins:.0f} %"),
    ]  # fmt: skip
    search = newest("document-questions")
    asked, held_out = search["by_kind"], search["held_out"]
    rows.append(("documents.md", f"Of {held_out['questions']} further questions"))
    rows.append(("documents.md", f"it finds {held_out['in_first_five']}."))
    kinds = [f"{asked[kind]['in_first_five']} of {asked[kind]['asked']}" for kind in ("literal", "paraphrase", "hard")]
    rows.append(("documents.md", f"for {kinds[0]} questions in the words of the document"))
    rows.append(("documents.md", f"{kinds[1]} in other words, and {kinds[2]} indirect ones"))
    small = newest("document-questions-multilingual-e5-small")
    kinds = [f"{one['in_first_five']} of {one['asked']}" for one in small["by_kind"].values()]
    rows.append(("documents.md", f"for {small['in_first_five']} of the {small['questions']} questions: "))
    rows.append(("documents.md", f"{kinds[0]}, {kinds[1]} and {kinds[2]}. Of the 40"))
    rows.append(("documents.md", f"further questions, it finds {small['held_out']['in_first_five']}. The model's"))
    length = small["passage_tokens"] / small["passages"]
    rows.append(("documents.md", f"read {small['passages_per_cpu_s']} passages of about {length:.0f} tokens"))
    hours = 1e8 / small["characters"] * small["passages"] / small["passages_per_cpu_s"] / 3600
    rows.append(("documents.md", f"100 MB of text take about {('six', 'seven', 'eight')[round(hours) - 6]} hours"))
    read = newest("document-index")
    n_files = read["files"] + read["not_read"]
    rows.append(
        ("documents.md", f"{n_files} PDF files from the documentation packages of Debian, {read['pages']:,} pages")
    )
    rows.append(("documents.md", f"were indexed in {read['index_s']} s on two cores"))
    chats = newest("import-chats")
    rows.append(
        (
            "chats.md",
            f"{chats['bytes'] / 1e9:.1f} GB, {chats['chats']:,} chats of 40 messages, "
            f"was imported in {chats['seconds']} s",
        )
    )
    rows.append(("chats.md", f"was {chats['longest_pause_ms']} ms"))
    many = newest("document-index-1000")
    rows.append(("documents.md", f"1,000 others ({many['pages']:,} pages) took {many['index_s']} s"))
    rows.append(("documents.md", f"{many['not_read']} of those have no text"))
    for made in newest("sparsify-smollm2-135m")["trained"]:
        own = made["texts"]["own"]
        rises = " | ".join(f"+{100 * made['texts'][name]['rise']:.0f} %" for name in ("own", "eval-dialogue"))
        same = f"{own['kl']:.2f} | {100 * own['top1']:.1f} %"
        rows.append((page, f"| FATReLU, trained | {100 * made['share']:.1f} % | {same} | {rises} |"))
    for name, words in (("70b-q4_0", "70B, Q4_0"), ("32b-f16", "32B, F16")):
        loads = newest(f"learned-placement-{name}")["loads"]
        rates = " | ".join(f"{statistics.median(loads[load]['tok_s']):.1f}" for load in loads)
        shares = " | ".join(f"{loads[load]['active_neurons_on_gpu']:.2f}" for load in loads)
        rows += [(page, f"| {words} | {rates} |"), (page, f"| share | {shares} |")]
    rows += [
        (page, row)
        for row in (
            *of_guesses("1b", "cpu"),
            *of_guesses("8b", "gpu"),
            *of_guesses_with_experts(),
            *of_warm_chats(),
            *of_real_models(),
            *of_small_models(),
            *of_trained_drafts(),
            *of_cards(),
        )
    ]
    for model, name, budget in (("70B, Q4_0", "70b", "24"), ("70B, Q4_0", "70b", "11"), ("32B, F16", "32b", "24"),
                                ("13B, F16", "13b", "11")):  # fmt: skip
        best = [max(row["tok_s"] for row in peers if (row["model"].partition("-")[0], row["budget"], row["engine"])
                    == (name, budget, engine)) for engine in ("llama.cpp", "PowerInfer")]  # fmt: skip
        rate = anchor(name, budget)["decode_tok_s"]
        rows.append(("../README.md", f"| {model}, {budget} GiB | **{rate:.1f}** | {best[0]:.1f} | {best[1]:.1f} |"))
    for name, budgets in (("qwen3-30b-a3b-q4_0", ("cpu", "1.9", "9.5", "all")), ("gpt-oss-120b-mxfp4", ("4", "24"))):
        found = newest(f"gpu-experts-{name}")
        for budget in budgets:
            run = found["runs"][budget]
            theirs = run["decode_tok_s"] / run["against_llama_cpp"]["decode"]
            rows.append((page, f"**{run['decode_tok_s']:.1f}** | {theirs:.1f} |"))
    ratios = {
        budget: run["against_llama_cpp"]["decode"]
        for name in ("qwen3-30b-a3b-q4_0", "gpt-oss-120b-mxfp4")
        for budget, run in newest(f"gpu-experts-{name}")["runs"].items()
    }
    within = [ratio for budget, ratio in ratios.items() if budget not in ("cpu", "all")]
    rows.append(("../README.md", f"{min(within):.1f} to {max(within):.1f} times as fast as llama.cpp. "
                                 f"Without a GPU: {ratios['cpu']:.1f} times as fast."))  # fmt: skip
    dense_cpu = record("against-llama-cpp-1b-2026-11-21")["codecs"]["q4_0"]["hearth dense"]["decode"]["ratio"][1]
    rows.append(("../README.md", f"On two CPU cores (1B model, Q4_0): {dense_cpu:.1f} times as fast as llama.cpp"))
    rows.append(("../README.md", f"with 24 GiB of GPU memory: {dense['rows'][0]['decode_tok_s']:.1f} tokens/s"))
    run = newest("inspecting")
    rows += [
        ("inspector.md", f"{run['decode_ratio']} of that without recording, in the median of {run['answers']} answers"),
        ("inspector.md", f"took {100 * run['end_share']:.1f} % of the time of decoding, and a token took "
                         f"{run['bytes_per_token']:.0f} bytes on the disk"),
    ]  # fmt: skip
    wine = record("windows-wine-2026-11-29")
    seconds = {name: taken for name, taken, *_ in wine["steps"]}
    set_up = sum(seconds[name] for name in ("wine", "python", "packages", "prefix"))
    n_files = sum(name.startswith("tests/") for name in seconds)
    assert {how for _, _, how, _ in wine["steps"]} == {"passed"}
    words = f"all steps and {n_files} files of tests passed at the first try, in {sum(seconds.values()):.0f} s"
    rows.append(("installing.md", words))
    suite = record("windows-wine-suite-2026-11-28")
    of = f"{suite['files']} of {suite['files_in_all']} files of tests ran, {suite['passed']} tests passed"
    ended = f"{len(suite['failed'])} failed and {len(suite['stopped'])} were stopped"
    rows.append(("installing.md", f"{of}, {suite['skipped']} were skipped with a reason, {ended}"))
    again = suite["again"]
    of = f"Of the {again['files_changed']} files changed since then, {again['files']} ran again on 29 November"
    rows.append(("installing.md", of))
    rows.append(("installing.md", f"{again['passed']} tests passed, {len(again['failed'])} failed."))
    later = suite["later"]
    rows.append(("installing.md", f"{later['files']} changed later and passed ({later['passed']} tests)"))
    built = record("installer-2026-11-22")["again"]
    sizes = [f"{built[f'{name}_bytes'] / 1e6:,.0f} MB" for name in ("program", "tarball", "deb")]
    rows.append(("installing.md", "the program took {}, the tarball {} and the .deb {}".format(*sizes)))
    rows.append(("installing.md", f"After a set-up of {set_up:.0f} s from an empty cache folder"))
    rows.append(("installing.md", f"`generate` answered after {seconds['generate']} s"))
    program = record("windows-wine-program-2026-11-28")
    seen, trial = program["smoke_test"], program["installer"]
    rows += [
        ("installing.md", f"PyInstaller took {program['freeze']['seconds'] / 60:.0f} min"),
        ("installing.md", f"The program of {program['freeze']['mb']} MB passed the smoke test: its window opened after "
                          f"{seen['first_window_s']} s, the first answer came after {seen['first_answer_s']} s"),
        ("installing.md", f"in {trial['seconds'] / 60:.1f} minutes with two installers of {trial['installer_mb']} MB"),
    ]  # fmt: skip
    lines = {
        "all rows of a matrix": ("gemv", "100%"),
        "feed-forward block, every neuron": ("ffn", "100%"),
        "20 % of its neurons, by a list": ("ffn", "20%"),
        "10 %": ("ffn", "10%"),
        "5 %": ("ffn", "5%"),
    }
    for name, (operator, share) in lines.items():
        shares = (100 * kernels(codec, operator, share) for codec in ("f16", "q4_0", "q4_0.lanes"))
        rows.append(("how-it-works.md", f"| {name} | " + " | ".join(f"{one:.0f} %" for one in shares) + " |"))
    return rows


def test_the_pages_say_what_is_recorded() -> None:
    rows = said()
    pages = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page, _ in rows}
    texts = {page: re.sub(r"\s+", " ", text) for page, text in pages.items()}
    assert [(page, words) for page, words in rows if words not in texts[page]] == []


def test_every_record_that_a_page_names_is_there() -> None:
    named = set()
    for page in sorted((ROOT / "docs").glob("*.md")):
        named |= set(re.findall(r"results/([\w.*-]+\.json)", page.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not list(Path(RESULTS).glob(name))) == []


def test_every_family_has_a_row_among_the_models() -> None:
    rows = [line for line in (ROOT / "docs" / "models.md").read_text("utf-8").splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])}
    assert {family.name for family in FAMILIES} <= told
