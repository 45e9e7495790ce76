"""How bench.py ends: 0, 1 for a failed run or a missed bar, 2 for a wrong setup, 130 where it was interrupted."""

import importlib.util
import signal
import subprocess
import sys

import pytest
from conftest import BENCH
from harness.launching import RunFailed

MET, MISSED = {"what": "time", "met": True}, {"what": "memory", "met": False}


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """The exit status after a measurement that found this: ends(["--check-bar"], bar=[MET]); it writes no document but the summary."""
    spec = importlib.util.spec_from_file_location("bench_program", BENCH / "bench.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)

    def run(arguments=(), complete=True, failure=None, **found):
        def measure(_options, _console):
            if failure:
                raise failure
            return {"loads": {"ring": {}}, "micro": {}, "pages": None, "depot_visits": [], "bar": [], "problems": [], **found}, complete

        monkeypatch.setattr(bench, "measure", measure)
        monkeypatch.setattr(bench, "show", lambda _document, _console: None)
        monkeypatch.setattr(bench.plots, "draw", lambda _document, _folder: [])
        monkeypatch.setattr(bench.markdown, "write", lambda _document, _page, _images: None)
        monkeypatch.setattr(sys, "argv", ["bench.py", "--output", str(tmp_path / "summary.json"), *arguments])
        return bench.main()

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


def test_runs_that_failed(ends, tmp_path):
    assert ends() == 0 and (tmp_path / "summary.json").is_file()
    assert ends(problems=["ring under jemalloc: ended by signal 11"]) == 1


def test_the_bar_counts_where_it_is_asked_for(ends):
    assert ends(["--check-bar"], bar=[MET, MET]) == 0
    assert ends(["--check-bar"], bar=[MET, MISSED]) == 1
    assert ends(["--check-bar"], bar=[]) == 1  # nothing was held against it
    assert ends(bar=[MISSED]) == 0


def test_a_wrong_setup_and_an_interruption(ends, capsys):
    assert ends(failure=RunFailed("no launcher")) == 2 and "no launcher" in capsys.readouterr().err
    assert ends(["--only", "nobody"], loads={}) == 2 and "nothing matches" in capsys.readouterr().err
    assert ends(complete=False, problems=["ring under jemalloc: ended by signal 11"]) == 130


def test_a_summary_that_is_not_there(ends, tmp_path, capsys):
    assert ends(["--docs-from", str(tmp_path / "none.json")]) == 2 and "none.json" in capsys.readouterr().err
    (tmp_path / "half.json").write_text("{")
    assert ends(["--docs-from", str(tmp_path / "half.json")]) == 2


@pytest.mark.parametrize("program, package", [("bench.py", "rich"), ("bench.py", "matplotlib"), ("papers/papers.py", "jsonschema")])
def test_a_package_that_is_missing(program, package):
    start = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv = [{program!r}, '--list']; runpy.run_path({str(BENCH / program)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", start], cwd=(BENCH / program).parent, capture_output=True, text=True)
    assert done.returncode == 2 and f"the Python package {package} is missing" in done.stderr
