"""git: import, clone, merge, repack with threads and check a generated repository."""

import hashlib
import random

import pytest

COMMITS = 120
FILES = 40


def history():
    """A stream for git fast-import: files that grow and change, some binary, one branch that is merged later."""
    random.seed(7)
    files = {f"dir{i % 7}/file{i}.txt": [f"line {i}\n"] for i in range(FILES)}
    out = []
    for number in range(COMMITS):
        branch = "side" if number % 10 == 9 else "main"
        out.append(f"commit refs/heads/{branch}\nmark :{number + 1}\ncommitter A U Thor <a@example.org> {1600000000 + number * 60} +0000\n"
                   f"data <<END\ncommit {number}\nEND\n".encode())
        if branch == "side":
            # Its own file, so that the merge has no conflict, forked from the commit before.
            out.append(f"from :{number}\n".encode())
            out.append(f"M 100644 inline side{number}.txt\ndata <<END\n{random.random()}\nEND\n".encode())
        else:
            if number % 10 == 0 and number:
                out.append(f"from :{number - 1}\nmerge :{number}\n".encode())
            for name in random.sample(sorted(files), 6):
                files[name].insert(random.randrange(len(files[name]) + 1), f"{random.random()} in commit {number}\n" * random.randint(1, 30))
                content = "".join(files[name]).encode()
                out.append(f"M 100644 inline {name}\ndata {len(content)}\n".encode() + content + b"\n")
            blob = random.randbytes(random.randint(1000, 60000))
            out.append(f"M 100644 inline blob{number % 9}.bin\ndata {len(blob)}\n".encode() + blob + b"\n")
        out.append(b"\n")
    return b"".join(out)


@pytest.mark.parametrize("strata", ["rseq", "no-rseq"], indirect=True)
def test_git(strata, plain, once, tmp_path):
    stream = history()

    def run(runner, name):
        """Everything in turn; gives what must be the same under every malloc."""
        folder = tmp_path / name
        folder.mkdir()
        env = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(folder / "config"), "GIT_PAGER": "cat"}
        (folder / "config").write_text("[user]\n name = A U Thor\n email = a@example.org\n[pack]\n threads = 2\n[gc]\n auto = 0\n"
                                       "[init]\n defaultBranch = main\n[protocol \"file\"]\n allow = always\n[advice]\n detachedHead = false\n")

        def git(where, *words, **options):
            return runner.run(["git", *words], cwd=where, env=env, **options)

        origin, copy = folder / "origin", folder / "copy"
        git(folder, "init", "-q", "origin")
        git(origin, "fast-import", "--quiet", input=stream)
        git(folder, "clone", "-q", "--no-local", f"file://{origin}", "copy")
        git(copy, "checkout", "-q", "main~30")
        git(copy, "checkout", "-q", "main")
        (copy / "new.txt").write_text("new\n")
        git(copy, "add", "-A")
        dates = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}
        runner.run(["git", "commit", "-q", "-m", "new"], cwd=copy, env={**env, **dates})
        git(copy, "gc", "-q", "--prune=now")
        git(copy, "repack", "-q", "-a", "-d", "-f", "--depth=20", "--window=20")
        checked = git(copy, "fsck", "--full", "--strict", "--no-dangling")
        assert checked.errors == "", checked.describe()
        assert git(copy, "status", "--porcelain").text == ""
        log = git(copy, "log", "-p", "--stat", "--all", "--topo-order")
        blame = git(copy, "blame", "--line-porcelain", "dir0/file0.txt")
        objects = git(copy, "cat-file", "--batch-check", "--batch-all-objects")
        archive = git(copy, "archive", "--format=tar", "main")
        return git(copy, "rev-parse", "HEAD").text, *(hashlib.sha256(r.out).hexdigest() for r in (log, blame, objects, archive))

    assert run(strata, "strata") == once("git", lambda: run(plain, "plain"))
