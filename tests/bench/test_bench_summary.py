"""The summary has the shape of its schema, and what is made of it: page and bars."""

import json

import jsonschema
import pytest
from conftest import BENCH
from harness import figures, markdown, plots, summary, tables
from harness.allocators import FALLBACK, Allocator
from harness.catalogue import LOADS, QUICK_PROGRAMS, STARTUPS
from harness.programs import suite

ALLOCATORS = [Allocator("strata", "/x/libstrata.so"), Allocator("glibc", in_bar=True), Allocator("mimalloc", "/x/mi.so", in_bar=True, version="2")]
SETTINGS = {"repetitions": 2, "program_repetitions": 1, "work_percent": 20, "pinned": True, "only": "", "minutes": 1.0, "load_average": 0.1}
SCHEMA = json.loads((BENCH / "harness/summary.schema.json").read_text())


@pytest.fixture
def document(collected):
    def make(problems=()):
        wall = {"strata": [1, 2], "glibc": [2, 2], "mimalloc": [1, 4]}
        peaks = {"strata": 10 << 20, "glibc": 40 << 20, "mimalloc": 20 << 20}
        found = collected({
            "ring": {name: {"wall_s": values, "peak_rss_bytes": [peaks[name]] * 2} for name, values in wall.items()},
            "server": {name: {"wall_s": values, "malloc_p50_ns": [5, 5], "malloc_p99_9_ns": [50, 50]} for name, values in wall.items()},
            "start-true": {name: {"wall_s": [1, 1]} for name in wall},
            "control-1": {name: {"wall_s": [1, 1], "inner_s": [1, 1]} for name in wall},
            "program:perl": {name: {"wall_s": [1]} for name in wall},
        })  # fmt: skip
        found.problems += problems
        return summary.build(found, ALLOCATORS, {"CPU": "one"}, "abc", SETTINGS, True, {"program:perl": "perl: hashes"})

    return make


def test_the_summary_has_the_shape_of_its_schema(document):
    made = json.loads(json.dumps(document()))
    jsonschema.validate(made, SCHEMA)
    strata = made["against_best_other"]["strata"]["wall_s"]
    # ring and server at 1.5 against glibc's 2 and mimalloc's 2.5; the start and perl at 1; the control does not count.
    assert strata["best_other"] == "glibc" and strata["loads"] == 4
    assert strata["ratio"] == pytest.approx((0.75 * 0.75) ** 0.25)
    assert strata["low"] <= strata["ratio"] <= strata["high"]
    ring = made["loads"]["ring"]["allocators"]["strata"]
    assert ring["median"]["wall_s"] == 1.5 and ring["best_other"]["wall_s"] == "glibc" and ring["to_best_other"]["wall_s"] == 0.75
    assert ring["best_other"]["peak_rss_bytes"] == "mimalloc" and ring["to_best_other"]["peak_rss_bytes"] == 0.5
    assert set(ring["intervals"]) == set(figures.BAR_METRICS) and made["loads"]["ring"]["allocators"]["glibc"]["intervals"] == {}
    assert "control-1" in made["loads"] and "control-1" not in made["mean_loads"]
    assert set(made["against_best_other"]["glibc"]) == set(figures.BAR_METRICS)


def test_the_schema_refuses_what_lacks_figures(document):
    made = json.loads(json.dumps(document()))
    del made["loads"]["ring"]["allocators"]["strata"]["median"]["mean_rss_bytes"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made, SCHEMA)


def test_where_strata_failed_no_bar_is_met(document):
    assert any(verdict["met"] for verdict in document()["bar"])
    assert not any(verdict["met"] for verdict in document(["program:gxx under strata: exit status 1"])["bar"])


def test_where_the_fallback_failed_its_bar_is_not_met(collected):
    walls = {"strata": [1, 1], "glibc": [2, 2], "mimalloc": [2, 2], FALLBACK: [1, 1]}
    found = collected({"ring": {name: {"wall_s": values} for name, values in walls.items()}})
    several = [*ALLOCATORS, Allocator(FALLBACK, "/x/libstrata.so", {"STRATA_CONF": "rseq:off"})]

    def met():
        made = summary.build(found, several, {"CPU": "one"}, "abc", SETTINGS, True, {})
        return {verdict["what"]: verdict["met"] for verdict in made["bar"]}

    whole = met()
    found.drop("server", FALLBACK, "ended by signal 11")
    bar = "wall time without rseq against that with"
    assert whole[bar] and met() == whole | {bar: False}


def test_a_benchmark_without_figures_of_the_others_is_shown_and_in_no_mean(collected):
    found = collected({})
    found.micro = {"plain": {"strata": [{"ns": 2.0}], "glibc": [{"ns": 4.0}], "mimalloc": [{"ns": 5.0}]}, "batch": {"strata": [{"ns": 1.0}]}}
    made = json.loads(json.dumps(summary.build(found, ALLOCATORS, {"CPU": "one"}, "abc", SETTINGS, True, {})))
    jsonschema.validate(made, SCHEMA)
    means = made["micro_means"]["ns"]
    assert means["to_each"]["strata"] == pytest.approx({"glibc": 0.5, "mimalloc": 0.4}) and means["to_best_on_each_load"]["strata"] == pytest.approx(0.5)
    page = markdown.document(made)
    assert "| plain | 2.0 \\* | 4.0 | 5.0 |" in page and "| batch | 1.0 | – | – |" in page and "(micro benchmarks: 1)" in page


def test_the_page_and_the_bars(document, tmp_path):
    made = document(["ring under jemalloc: ended by signal 11"])
    images = plots.draw(made, tmp_path / "images")
    markdown.write(made, tmp_path / "page.md", images)
    page = (tmp_path / "page.md").read_text()
    assert "](images/means.svg)" in page and "](images/loads.svg)" in page
    for heading in ("## The bar", "## Wall time, s", "## Time-averaged RSS, MiB", "## Context switches", "## Latencies, ns", "## Failed runs"):
        assert heading in page
    assert "| ring | 1.500 ~ \\* | 2.000 | 2.500 ~ | 0.75 glibc |" in page and "| ring | 10.0 \\* | 40.0 | 20.0 | 0.50 mimalloc |" in page
    assert "perl: hashes" in page and "server: malloc p99.9" in page
    for image in images:
        text = image.read_text()
        assert "<svg" in text and "strata" in text
    first = [image.read_bytes() for image in images]
    assert [image.read_bytes() for image in plots.draw(made, tmp_path / "images")] == first


def test_the_catalogue_and_the_suite_agree():
    names = [load.name for load in (*LOADS, *STARTUPS)] + [workload.name for workload in suite(BENCH / "suite/programs")]
    assert len(names) == len(set(names))
    assert set(QUICK_PROGRAMS) <= set(names)
    for table in tables.SCALES:
        assert table in tables.HEADINGS


def test_pages_of_a_later_run_take_their_bars_along():
    document = {"commit": "a", "pages": {"pairs": [1]}, "bar": [{"what": "time", "value": 1}, {"what": "pages: us", "value": 30}], "loads": {}}
    later = {"commit": "b", "pages": {"pairs": [2]}, "bar": [{"what": "pages: us", "value": 10}, {"what": "time", "value": 9}]}
    merged = summary.with_pages_of(document, later)
    assert merged["pages"] == {"pairs": [2]} and merged["pages_commit"] == "b" and merged["commit"] == "a"
    assert merged["bar"] == [{"what": "time", "value": 1}, {"what": "pages: us", "value": 10}]
    assert document["pages"] == {"pairs": [1]}
