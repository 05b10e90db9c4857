"""Asking a hub: what it is asked, what its answers and its failures become, and that nobody else hears the token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import httpx2
import pytest
from fakes.download_places import ROOT, SMALL
from fakes.hub import FakeHub

from engine.errors import (
    EngineError,
    GatedModelError,
    HubError,
    InvalidRequestError,
    OfflineError,
    RepositoryNotFoundError,
)
from engine.library.hub import hub as hub_module
from engine.library.hub.hub import Hub
from engine.library.hub.hub_failures import passing, retry_after_s
from engine.library.hub.hub_names import check_file_names, is_repository, parse_repository
from engine.library.hub.variants import codec_of, is_pickled, matching, variants_of
from engine.library.records import HubFile

# --- search and lists


def test_a_search_names_what_a_person_chooses_by(hub: FakeHub) -> None:
    hub.add("maker/Bamboo-gguf", {"b.gguf": b""}, downloads=5, likes=9, licence="mit", gated=True, tags=("gguf",))
    hub.add("maker/Bamboo-base", {"b.gguf": b""}, downloads=50, likes=2)
    found = Hub().search(" bamboo ")
    assert [model.repo for model in found] == ["maker/Bamboo-base", "maker/Bamboo-gguf"]
    last = found[1]
    assert (last.downloads, last.likes, last.licence, last.gated) == (5, 9, "mit", True)
    assert last.updated.startswith("2026-01-02T03:04:05")
    assert "gguf" in last.tags
    assert [model.repo for model in Hub().search("bamboo", "likes", 1)] == ["maker/Bamboo-gguf"]
    assert Hub().search("nothing like it") == []
    with pytest.raises(InvalidRequestError):
        Hub().search("bamboo", "beauty")  # type: ignore[arg-type]


def test_a_listing_is_pinned_to_a_commit(hub: FakeHub) -> None:
    listing = Hub().listing(f"{hub.url}/maker/small-gguf/tree/main")
    assert listing.revision == hub.repositories["maker/small-gguf"].head
    assert listing.model.repo == "maker/small-gguf"
    (variant,) = listing.variants
    assert (variant.name, variant.format, variant.codec, variant.n_bytes) == ("q4_0", "gguf", "q4_0", len(SMALL))
    assert len(variant.files[0].sha256) == 64
    before = listing.revision
    hub.add("maker/small-gguf", {"other-q8_0.gguf": b"x"})
    assert Hub().listing("maker/small-gguf").variants[0].name == "q8_0"
    assert Hub().listing("maker/small-gguf", before).variants[0].name == "q4_0"


def test_a_repository_that_was_renamed(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    hub.renamed["old/Small"] = "maker/small-gguf"
    listing = Hub().listing("old/Small")
    assert listing.model.repo == "maker/small-gguf"
    assert Hub().read("old/Small", listing.revision, "small-q4_0.gguf", 5, 9) == SMALL[5:14]
    assert all("authorization" in asked.headers for asked in hub.asked if not asked.at_store)


def test_a_revision_with_slashes(hub: FakeHub) -> None:
    before = hub.repositories["maker/small-gguf"].head
    hub.add("maker/small-gguf", {"newer-q8_0.gguf": b"x"}, refs={"refs/pr/26": before})
    assert Hub().listing("maker/small-gguf", "refs/pr/26").revision == before
    assert Hub().listing(f"{hub.url}/maker/small-gguf/tree/refs%2Fpr%2F26").revision == before
    assert Hub().read("maker/small-gguf", "refs/pr/26", "README.md", 0, 9) == b"# Small"


def test_a_tree_of_many_pages(hub: FakeHub) -> None:
    hub.page_size = 7
    hub.add("maker/many", {f"part-{i:03}.gguf": b"x" * i for i in range(30)})
    assert len(Hub().files("maker/many")[2]) == 30


def test_nothing_but_what_is_needed_is_asked(hub: FakeHub, tmp_path: Path) -> None:
    """In a process of its own, as the client reads its environment once. No telemetry, no look for a new version."""
    code = (
        "import sys; from engine.library.hub.hub import Hub; before = set(sys.modules); Hub();"
        "assert not {'huggingface_hub', 'httpx2', 'keyring'} & set(sys.modules);"
        "Hub().search('small'); Hub().listing('maker/small-gguf')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=dict(os.environ))
    assert [asked.path for asked in hub.asked] == [
        "/api/models",
        "/api/models/maker/small-gguf/revision/main",
        f"/api/models/maker/small-gguf/tree/{hub.repositories['maker/small-gguf'].head}",
    ]
    assert not any("torch" in asked.headers["user-agent"] for asked in hub.asked)


# --- files


def test_bytes_of_a_file_by_range(hub: FakeHub) -> None:
    found = Hub()
    for _ in range(2):
        assert found.read("maker/small-gguf", "main", "small-q4_0.gguf", 1000, 500) == SMALL[1000:1500]
        assert found.read("maker/small-gguf", "main", "small-q4_0.gguf", len(SMALL) - 5, 500) == SMALL[-5:]
        hub.ignore_range = True
    hub.redirects = False
    assert found.read("maker/small-gguf", "main", "small-q4_0.gguf", 0, 10) == SMALL[:10]
    assert found.read("maker/small-gguf", "main", "README.md", 0, 100) == b"# Small"
    with pytest.raises(InvalidRequestError):
        found.read("maker/small-gguf", "main", "small-q4_0.gguf", 0, 1 << 30)


def test_names_with_odd_letters(hub: FakeHub) -> None:
    hub.add("maker/odd", {"модель #1 100%?.gguf": b"odd"})
    assert Hub().read("maker/odd", "main", "модель #1 100%?.gguf", 0, 9) == b"odd"


def test_the_token_goes_to_the_hub_alone(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    Hub().read("maker/small-gguf", "main", "small-q4_0.gguf", 0, 10)
    assert [("authorization" in asked.headers, asked.at_store) for asked in hub.asked] == [(True, False), (False, True)]


def test_a_changed_file_is_sent_whole(hub: FakeHub) -> None:
    hub.redirects = False
    with Hub().open("maker/small-gguf", "main", "small-q4_0.gguf", 5) as answer:
        tag = answer.tag
        assert answer.start == 5
    with Hub().open("maker/small-gguf", "main", "small-q4_0.gguf", 5, tag=tag) as answer:
        assert answer.start == 5
    with Hub().open("maker/small-gguf", "main", "small-q4_0.gguf", 5, tag='"another"') as answer:
        assert answer.start == 0


@pytest.mark.parametrize("place", ["bytes \u00b2-9/10", "bytes -9/10", f"bytes {'9' * 5000}-9/10", "bytes", ""])
def test_a_range_that_is_none(place: str) -> None:
    response = SimpleNamespace(status_code=206, headers={"content-range": place})
    with pytest.raises(HubError, match="does not say which"):
        hub_module._range_of(response, "a file")  # type: ignore[arg-type]


@pytest.mark.parametrize("total", ["\u00b9\u2070", "*", "9" * 5000])
def test_a_length_that_is_none(total: str) -> None:
    part = SimpleNamespace(status_code=206, headers={"content-range": f"bytes 5-9/{total}"})
    whole = SimpleNamespace(status_code=200, headers={"content-length": total})
    assert hub_module._range_of(part, "a file") == (5, None)  # type: ignore[arg-type]
    assert hub_module._range_of(whole, "a file") == (0, None)  # type: ignore[arg-type]


# --- failures


def failure(what: object) -> EngineError:
    with pytest.raises(EngineError) as caught:
        what()  # type: ignore[operator]
    assert len(caught.value.message) < 300
    return caught.value


def test_gates_and_what_is_not_there(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("maker/gated", {"g.gguf": SMALL}, gated=True)
    hub.add("maker/private", {"p.gguf": SMALL}, private=True)
    found = Hub()
    gated = failure(lambda: found.read("maker/gated", "main", "g.gguf", 0, 9))
    assert isinstance(gated, GatedModelError)
    assert f"{hub.url}/maker/gated" in gated.hint
    for repo in ("maker/private", "maker/none"):
        assert isinstance(failure(lambda repo=repo: found.listing(repo)), RepositoryNotFoundError)
        assert isinstance(failure(lambda repo=repo: found.read(repo, "main", "x", 0, 9)), RepositoryNotFoundError)
    missing = failure(lambda: found.read("maker/small-gguf", "main", "none.gguf", 0, 9))
    assert isinstance(missing, RepositoryNotFoundError)
    assert "none.gguf" in missing.message
    assert isinstance(failure(lambda: found.listing("maker/small-gguf", "v9")), RepositoryNotFoundError)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.known_tokens = {"hf_right"}
    for ask in (lambda: found.listing("maker/gated"), lambda: found.read("maker/gated", "main", "g.gguf", 0, 9)):
        refused = failure(ask)
        assert isinstance(refused, GatedModelError)
        assert "does not accept" in refused.message
        assert "hf_wrong" not in refused.message + refused.hint


@pytest.mark.parametrize(("status", "passes"), [(500, True), (503, True), (429, True), (400, False), (418, False)])
def test_what_may_pass(hub: FakeHub, status: int, passes: bool) -> None:
    hub.fail("/maker/small-gguf", status=status)
    hub.fail("/search", status=status)
    hub.fail("small*", status=status, of="hub")
    found = Hub()
    for ask in (
        lambda: found.listing("maker/small-gguf"),
        lambda: found.search("small"),
        lambda: found.read("maker/small-gguf", "main", "small-q4_0.gguf", 0, 9),
    ):
        error = failure(ask)
        assert type(error) is HubError
        assert (passing(error) is not None) == passes


def test_how_long_the_hub_wants_one_to_wait() -> None:
    assert retry_after_s("7") == 7.0
    assert retry_after_s(" 99999 ") == 3600.0
    moment = retry_after_s(formatdate(time.time() + 30, usegmt=True))
    assert moment is not None
    assert 25 < moment <= 30
    assert retry_after_s(formatdate(time.time() - 30, usegmt=True)) == 0.0
    for nonsense in ("", "soon", "-3", "٣"):
        assert retry_after_s(nonsense) is None


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    found = Hub(endpoint="http://127.0.0.1:9")
    for ask in (lambda: found.search("x"), lambda: found.listing("a/b"), lambda: found.read("a/b", "main", "c", 0, 9)):
        error = failure(ask)
        assert isinstance(error, OfflineError)
        assert passing(error) is not None


def test_a_certificate_that_is_not_trusted(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate")

    monkeypatch.setattr(httpx2.Client, "send", refuse)
    error = failure(lambda: Hub().search("x"))
    assert "not trusted" in error.message
    assert passing(error) is None


def test_offline_is_honoured(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = Hub()
    for ask in (lambda: found.search("x"), lambda: found.listing("a/b"), lambda: found.read("a/b", "main", "c", 0, 9)):
        error = failure(ask)
        assert isinstance(error, OfflineError)
        assert passing(error) is None
        assert "HF_HUB_OFFLINE" in error.message
    assert hub.asked == []


@pytest.mark.parametrize(
    "body", [b"<html>Please log in</html>", b"[1, 2]", b"{}", b'{"id": 7}', b"null", b'[{"x": 1}]']
)
def test_a_network_that_answers_for_the_hub(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Portal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    server = HTTPServer(("127.0.0.1", 0), Portal)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    found = Hub(endpoint=f"http://127.0.0.1:{server.server_port}")
    try:
        assert isinstance(failure(lambda: found.listing("a/b")), HubError)
        assert isinstance(failure(lambda: found.search("x")), HubError)
    finally:
        server.shutdown()
        server.server_close()


PROXIED = """
import json, os, sys
from engine.library.hub import hub as hub_module
from engine.library.hub.hub import Hub
hub = Hub()
text = hub.read("maker/small-gguf", "main", "README.md", 0, 99).decode()
print(json.dumps([hub.listing("maker/small-gguf").revision, text]))
"""


def test_a_proxy_is_honoured(hub: FakeHub) -> None:
    """The hub has a name that only the proxy knows, which the fake plays too."""
    variables = dict(os.environ) | {"HF_ENDPOINT": "http://hub.invalid", "HTTP_PROXY": hub.url, "NO_PROXY": ""}
    variables |= {"http_proxy": hub.url, "no_proxy": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROXIED], cwd=ROOT, check=True, env=variables, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [hub.repositories["maker/small-gguf"].head, "# Small"]
    assert all(asked.target.startswith("http://hub.invalid/") for asked in hub.asked)
    hub.asked.clear()
    direct = {"HF_ENDPOINT": hub.url, "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    direct |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    subprocess.run([sys.executable, "-c", PROXIED], cwd=ROOT, check=True, env=variables | direct, capture_output=True)
    assert hub.asked
    assert not any(asked.target.startswith("http:") for asked in hub.asked)


def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "ftp://somewhere")
    with pytest.raises(InvalidRequestError, match="HF_ENDPOINT"):
        Hub()
    monkeypatch.setenv("HF_ENDPOINT", "")
    assert Hub().endpoint == "https://huggingface.co"


# --- names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("maker/name", ("maker/name", "")),
        ("  maker/Name-7B.v0_1 ", ("maker/Name-7B.v0_1", "")),
        ("https://huggingface.co/maker/name", ("maker/name", "")),
        ("https://huggingface.co/maker/name/tree/main", ("maker/name", "main")),
        ("https://huggingface.co/maker/name/blob/v1/model.gguf?download=true#x", ("maker/name", "v1")),
        ("huggingface.co/maker/name/", ("maker/name", "")),
        ("hf.co/maker/name", ("maker/name", "")),
        ("http://mirror.example:8080/maker/name/resolve/abc/x.gguf", ("maker/name", "abc")),
    ],
)
def test_what_names_a_repository(text: str, found: tuple[str, str]) -> None:
    assert parse_repository(text, "http://mirror.example:8080") == found


@pytest.mark.parametrize(
    "text",
    ["", "name", "a/b/c", "../x", "a/..", "a/b..c", "con/x", "a/nul", "https://evil.example/a/b", "a b/c", "ftp://hf.co/a/b",
     "https://huggingface.co/datasets/a/b", "https://huggingface.co/", "a/" + "b" * 200, "a/b\n", "а/б"],
)  # fmt: skip
def test_what_names_none(text: str) -> None:
    if text != "a/b\n":
        with pytest.raises(InvalidRequestError):
            parse_repository(text)
    assert not is_repository(text)


def test_files_that_are_one_where_case_does_not_count() -> None:
    check_file_names(["a.gguf", "b/a.gguf", "activation/activation_0.pt"])
    with pytest.raises(HubError, match="two files"):
        check_file_names(["a.gguf", "A.gguf"])


# --- variants


def variants(*names: str) -> dict[str, tuple[str, str, list[str], str]]:
    files = [HubFile(name, 10, "", "0" * 40) for name in names]
    return {v.name: (v.format, v.codec, [file.name for file in v.files], v.refused) for v in variants_of(files)}


def test_variants_of_a_gguf_repository() -> None:
    parts = ["m-f16-00001-of-00002.gguf", "m-f16-00002-of-00002.gguf", "big-q8_0-00001-of-00003.gguf"]
    found = variants(
        "README.md", "m.Q4_K_M.gguf", "m.Q8_0.gguf", "mmproj-m.gguf", "MTP/mtp-m.gguf", "imatrix.dat", *parts
    )
    assert found["q4_k_m"] == ("gguf", "q4_k_m", ["m.Q4_K_M.gguf"], "")
    assert found["f16"][2] == parts[:2]
    assert len(found) == 4
    broken = next(value for name, value in found.items() if name.startswith("big"))
    assert "2 of its 3 parts" in broken[3]


def test_variants_of_powerinfers_repositories() -> None:
    found = variants("llama-7b-relu.powerinfer.gguf", "llama-7b-relu.q4.powerinfer.gguf", "activation/activation_0.pt",
                     "activation/activation_1.pt", "config.json")  # fmt: skip
    assert set(found) == {"q4_0", "llama-7b-relu.powerinfer"}
    assert found["q4_0"][:3] == ("powerinfer-gguf", "q4_0", ["llama-7b-relu.q4.powerinfer.gguf",
                                 "activation/activation_0.pt", "activation/activation_1.pt"])  # fmt: skip


def test_variants_of_a_safetensors_repository() -> None:
    beside = ["config.json", "tokenizer.json", "LICENSE"]
    (found,) = variants(
        "model.safetensors", "pytorch_model.bin", "training_args.bin", "onnx/model.onnx", *beside
    ).values()
    assert found == ("safetensors", "", ["model.safetensors", *beside], "")
    (found,) = variants("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", *beside).values()
    assert "index" in found[3]
    assert "tokenizer" in variants("model.safetensors", "config.json")["safetensors"][3]
    assert "config.json" in variants("model.safetensors")["safetensors"][3]


def test_what_is_no_model() -> None:
    assert "pickled" in variants("pytorch_model.bin", "config.json")[""][3]
    assert "predictors" in variants("model_0.pt", "model_1.pt", "config.json")[""][3]
    assert "no weights" in variants("README.md")[""][3]
    assert is_pickled("weights.pt")
    assert is_pickled("model_0.pt.bin")
    assert not is_pickled("predictors/model_12.pt")
    assert not is_pickled("activation/activation_0.pt")


def test_a_star_stands_for_no_slash() -> None:
    names = ["model.safetensors", "original/model.safetensors", "activation/activation_0.pt", "a/activation/x.pt"]
    files = [HubFile(name, 1) for name in names]
    assert [file.name for file in matching(files, ("*.safetensors", "activation/*.pt"))] == [names[0], names[2]]
    assert matching(files, ("model.safetensors",)) == (files[0],)
    assert matching([HubFile("a[1]*.gguf", 1)], ("a[[]1][*].gguf",)) != ()


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a-q4_0.gguf", "q4_0"), ("A.Q5_K_S.gguf", "q5_k_s"), ("x/a.fp16.gguf", "f16"), ("a-bf16.gguf", "bf16"),
     ("a-7b.q4.powerinfer.gguf", "q4_0"), ("quite.gguf", ""), ("a.IQ2_XXS.gguf", "iq2_xxs"), ("a-Q8_0.gguf", "q8_0")],
)  # fmt: skip
def test_the_codec_in_a_name(name: str, codec: str) -> None:
    assert codec_of(name) == codec
