"""Hostile names, keys, addresses and paths do nothing, over HTTP and in what pages are made of."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dashboards.app import Dashboard
from dashboards.registry import pages
from tests.dashboards.helpers import board, drawn, parts, texts

BASE = "/user/alice/proxy/8050/"
OUTSIDE = "nothing of this may be served"
HERE = {"Host": "localhost:8050"}


def get(made: Dashboard, address: str, **heads: str) -> Any:
    """What a request gets, read to its end."""
    with made.dash.server.test_client().get(address, headers={**HERE, **heads}) as reply:
        assert reply.get_data() is not None
        return reply


def shown(made: Dashboard, path: str, search: str) -> Any:
    """What the page's own callback answers to an address."""
    request = {"path": path, "search": search, "scheme": "light", "viewer": "v"}
    body = {
        "output": "..controls.children...pages.children...content.children...poll.interval..."
        "poll.disabled...drawn.data..",
        "outputs": [
            {"id": "controls", "property": "children"},
            {"id": "pages", "property": "children"},
            {"id": "content", "property": "children"},
            {"id": "poll", "property": "interval"},
            {"id": "poll", "property": "disabled"},
            {"id": "drawn", "property": "data"},
        ],
        "inputs": [{"id": "request", "property": "data", "value": request}],
        "changedPropIds": ["request.data"],
    }
    reply = made.dash.server.test_client().post("/_dash-update-component", json=body, headers=HERE)
    assert reply.status_code == 200, reply.text
    return reply.get_json()["response"]


# -- case 52: a base path behind a proxy ----------------------------------------------------------


def test_every_address_begins_with_the_prefix(samples: Path) -> None:
    """Scripts, styles, layout, callbacks and links of a page all lie below the base path."""
    with board(samples, base=BASE) as made:
        page = get(made, "/").text
        config = json.loads(re.findall(r'id="_dash-config"[^>]*>(.*?)</script>', page)[0])
        assert config["requests_pathname_prefix"] == BASE
        named = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert len(named) > 6
        for address in named:
            if address != "data:,":
                assert address.startswith(BASE)
                assert get(made, "/" + address.removeprefix(BASE)).status_code == 200
        for inner in ("_dash-layout", "_dash-dependencies", "lanes.js"):
            assert get(made, f"/{inner}").status_code == 200
        answer = shown(made, f"{BASE}overview", "?run=ddp_4")
        links = [part["href"] for kind in ("Link", "A") for part in parts(answer, kind)]
        assert len(links) > 10
        assert all(link.startswith(BASE) for link in links)


# -- case 53: two users, two folders --------------------------------------------------------------


def test_two_users_keep_their_own_figures(corpus: Path) -> None:
    """Opening B does not change what A sees: 10 µs of compute there, 99 µs here."""
    with board(corpus / "cases" / "53-two-users-two-folders") as made:
        for _ in range(2):
            for run, compute_us in (("A", 10), ("B", 99)):
                said = texts(shown(made, "/overview", f"?run={run}")["content"]["children"])
                assert f"compute {compute_us / 1000:.3f} ms" in said


# -- case 58: markup in names ---------------------------------------------------------------------

NAMES = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '<a href="javascript:alert(3)">gemm</a>',
    '<!--<script>gemm %{y} {{7*7}} =HYPERLINK("x")',
)


def test_markup_in_names_stays_text(corpus: Path) -> None:
    """Names reach pages as values of tables and escaped in figures, never as markup or code."""
    case = corpus / "cases" / "58-markup-in-kernel-names"
    for name in pages():
        content = drawn(case, f"/{name}")
        for graph in parts(content, "Graph"):
            text = json.dumps(graph["figure"])
            assert "<img" not in text
            assert "<script" not in text
            assert "<a " not in text
        for kind in ("Markdown", "DangerouslySetInnerHTML", "Iframe"):
            assert not parts(content, kind)
        for grid in parts(content, "AgGrid"):
            assert grid["dangerously_allow_code"] is False
            assert not any(name in json.dumps(grid["columnDefs"]) for name in NAMES)
    cells = {cell.get("children") for cell in parts(drawn(case, "/kernels"), "Td")}
    assert set(NAMES) < cells
    page = pages()["overview"]
    said = texts(drawn(case, "/overview"))
    assert "compute 0.040 ms 80.0 %" in said
    assert page.tables


def test_names_in_csv_are_no_formulas(corpus: Path) -> None:
    """The CSV of the names is text, and comes as a file."""
    with board(corpus / "cases" / "58-markup-in-kernel-names") as made:
        reply = get(made, "/export/kernels/kernels.csv")
        assert reply.status_code == 200
        assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "attachment" in reply.headers["Content-Disposition"]
        assert not re.search(r"^[=+@-]", reply.text, re.MULTILINE)
        assert NAMES[0] in reply.text


@pytest.mark.parametrize("name", NAMES)
def test_markup_in_addresses_stays_text(samples: Path, name: str) -> None:
    """A page, run, table or parameter of such a name is said as text, and nothing fails."""
    with board(samples) as made:
        for path, search in (
            ("/overview", f"?run={quote(name)}"),
            (f"/{quote(name)}", "?run=ddp_4"),
            (
                "/heatmap",
                f"?run=ddp_4&figure={quote(name)}&scale={quote(name)}&table={quote(name)}",
            ),
            ("/kernels", f"?run=ddp_4&rank={quote(name)}&role={quote(name)}"),
            ("/compare", f"?run=ddp_4&with={quote(name)}"),
            ("/communication", f"?run=ddp_4&link={quote(name)}&steps={quote(name)}"),
            ("/timeline", f"?run=ddp_4&step={quote(name)}&rank={quote(name)}"),
        ):
            answer = shown(made, path, search)
            for link in parts(answer, "Link"):
                assert "<" not in link["href"]
                assert '"' not in link["href"]
        assert name not in get(made, f"/{quote(name)}").text


# -- case 60: paths outside the folder ------------------------------------------------------------


def asked_paths(corpus: Path) -> list[str]:
    """The requests of the case."""
    case = corpus / "cases" / "60-path-outside-the-folder" / "requests.txt"
    return [line.partition("  ")[0].strip() for line in case.read_text().splitlines() if line]


def test_no_address_reads_outside(corpus: Path, samples: Path, tmp_path: Path) -> None:
    """Each request of the case gets 404 or 400 as path, run, asset and table, and no content."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text(json.dumps({"traceEvents": [], "secret": OUTSIDE}))
    given = tmp_path / "given"
    shutil.copytree(samples / "ddp_4", given / "run")
    shutil.copytree(samples / "ddp_4", given / "run2")
    (given / "link_to_outside.json").symlink_to(outside / "secret.json")
    (given / "run" / "link_to_outside.json").symlink_to(outside / "secret.json")
    asked = [*asked_paths(corpus), "../outside/secret.json", str(outside / "secret.json"), "given"]
    assert len(asked) > 8
    hostname = Path("/etc/hostname").read_text() if Path("/etc/hostname").exists() else OUTSIDE
    with board(given) as made:
        for text in asked:
            once = quote(text, safe="%")
            for address in (
                f"/assets/{text}", f"/assets/{once}", f"/export/overview/{once}.csv?run=run",
                f"/export/{once}/ranks.csv?run=run", f"/export/overview/ranks.csv?run={once}",
                f"/timeline/outline?run={once}", f"/_dash-component-suites/dash/{text}",
            ):  # fmt: skip
                reply = get(made, address)
                assert reply.status_code in (400, 404, 308), address
                assert OUTSIDE not in reply.text
                assert hostname.strip() not in reply.text
            said = texts(shown(made, "/overview", f"?run={once}")["content"]["children"])
            assert "There is no run" in said
        said = texts(shown(made, "/overview", "?run=run")["content"]["children"])
        assert "link_to_outside.json is a link that leads out of the folder" in said
        assert OUTSIDE not in said


# -- case 62: keys of prototypes ------------------------------------------------------------------


def test_keys_of_prototypes_reach_no_object(corpus: Path) -> None:
    """Neither a trace's argument names nor an address's keys become keys of what pages are."""
    case = corpus / "cases" / "62-prototype-keys"
    for name in pages():
        content = drawn(case, f"/{name}?__proto__=1&constructor.prototype.polluted=2")
        text = json.dumps(content)
        assert '"__proto__":' not in text
        assert '"constructor":' not in text
        assert '"polluted":' not in text


# -- who may ask ----------------------------------------------------------------------------------


def test_a_foreign_host_or_origin_is_refused(samples: Path) -> None:
    """DNS rebinding and another site's page get 403 and one line, whatever they ask."""
    with board(samples) as made:
        client = made.dash.server.test_client()
        for address in ("/", "/overview", "/_dash-layout", "/lanes.js", "/assets/style.css"):
            reply = client.get(address, headers={"Host": "evil.example:8050"})
            assert reply.status_code == 403
            assert reply.text.count("\n") == 1
        heads = {**HERE, "Origin": "https://evil.example"}
        assert client.post("/_dash-update-component", json={}, headers=heads).status_code == 403
        assert client.get("/", headers=HERE).status_code == 200


def test_pages_are_sent_with_strict_policies(samples: Path) -> None:
    """Every answer carries the content policy, and inline scripts of the page are named in it."""
    with board(samples) as made:
        page = get(made, "/")
        policy = page.headers["Content-Security-Policy"]
        inline = re.findall(r"<script(?![^>]*src=)[^>]*type=\"application/javascript\"", page.text)
        assert policy.count("'sha256-") == len(inline) == 1
        assert "unsafe-eval" not in policy
        assert "nosniff" in get(made, "/assets/dashboard.js").headers["X-Content-Type-Options"]


def test_no_debug_tools_are_served(samples: Path) -> None:
    """Neither dev tools nor tracebacks nor reloading."""
    with board(samples) as made:
        config = get(made, "/").text
        assert '"ui":false' in config
        assert '"props_check":false' in config
        assert get(made, "/_reload-hash").status_code in (200, 404)
        broken = made.dash.server.test_client().post(
            "/_dash-update-component", data=b"{not json", headers=HERE
        )
        assert broken.status_code >= 400
        assert "Traceback" not in broken.text


@pytest.mark.parametrize(
    "request_", [None, [], "x", 5, {}, {"path": 5, "search": None}, {"path": "/overview"}]
)
def test_no_request_of_another_shape_breaks_it(samples: Path, request_: Any) -> None:
    """Whatever a callback is given, the answer is a page or nothing."""
    with board(samples) as made:
        body = {
            "output": "mark.data",
            "outputs": {"id": "mark", "property": "data"},
            "inputs": [{"id": "poll", "property": "n_intervals", "value": 1}],
            "state": [
                {"id": "request", "property": "data", "value": request_},
                {"id": "mark", "property": "data", "value": "x"},
            ],
            "changedPropIds": ["poll.n_intervals"],
        }
        client = made.dash.server.test_client()
        assert client.post("/_dash-update-component", json=body, headers=HERE).status_code < 300
