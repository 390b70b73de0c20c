"""The search for a commit: by answers that are given, and by intervals that are drawn."""

import math
import random
import subprocess
from types import SimpleNamespace

import pytest

from benchmarker.comparing.bisection import Search, is_clear, most, place, planned, threshold
from benchmarker.library.commits import BuildError, Repository


def comparison(low, high, verdict="slower", ratio=None):
    return SimpleNamespace(low=low, high=high, verdict=verdict, ratio=ratio or math.sqrt(low * high))


def test_the_number_of_comparisons_is_that_of_the_page():
    assert [planned(n) for n in (1, 2, 3, 8, 30)] == [2, 3, 4, 5, 7]
    assert most(30) == 14


@pytest.mark.parametrize("commits", [1, 2, 7, 30])
def test_each_commit_is_found_in_as_many_halvings_as_planned(commits):
    for culprit in range(1, commits + 1):
        search, asked = Search(0, commits), 0
        while (number := search.next()) is not None:
            asked += 1
            search.tell(number, "bad" if number >= culprit else "good")
        assert list(search.suspects) == [culprit]
        assert asked <= planned(commits) - 2


def test_skipped_commits_stay_suspects():
    search = Search(0, 8)
    for _ in range(3):
        number = search.next()
        search.tell(number, "undecided" if number in (3, 4, 5) else "good")
    assert search.skipped == {3, 4, 5}
    search.tell(2, "good")
    search.tell(6, "bad")
    assert search.next() is None
    assert list(search.suspects) == [3, 4, 5, 6]


@pytest.mark.parametrize("turn", [lambda low, high: (low, high), lambda low, high: (1 / high, 1 / low)])
def test_a_commit_is_placed_by_half_of_the_difference(turn):
    assert abs(threshold(comparison(*turn(1.01, 1.09)))) == pytest.approx(math.log(1.01))  # less than half
    limit = threshold(comparison(*turn(1.04, 1.06)))
    assert abs(limit) == pytest.approx(math.log(1.04 * 1.06) / 4)
    assert place(comparison(*turn(0.99, 1.015)), limit) == "good"
    assert place(comparison(*turn(1.025, 1.08)), limit) == "bad"
    assert place(comparison(*turn(1.0, 1.05)), limit) == "undecided"
    assert place(comparison(*turn(0.8, 0.9)), limit) == "good"
    assert place(SimpleNamespace(low=None, high=None), limit) == "undecided"


def test_good_and_bad_are_clear_if_the_interval_is_narrow():
    assert is_clear(comparison(1.04, 1.06))
    assert not is_clear(comparison(1.001, 1.1))
    assert is_clear(comparison(0.99, 1.01, "same"))
    assert not is_clear(comparison(0.9, 1.1, "undecided"))
    assert threshold(comparison(0.99, 1.05)) is None


def test_a_wrong_commit_is_as_rare_as_stated():
    """Normal estimates, with intervals of α/K: of 4000 searches over 30 commits, at most 5% name a wrong one.

    The width is such that many are undecided, so that about as many comparisons are made as the bound allows.
    """
    rng = random.Random(1)
    commits, effect, alpha, wrong, right = 30, 0.05, 0.05, 0, 0
    from statistics import NormalDist

    z = NormalDist().inv_cdf(1 - alpha / planned(commits) / 2)

    def draw(truth, sd):
        estimate = rng.gauss(truth, sd)
        return comparison(math.exp(estimate - z * sd), math.exp(estimate + z * sd), ratio=math.exp(estimate))

    for _ in range(4000):
        culprit, sd = rng.randint(1, commits), rng.choice((0.003, 0.005, 0.007))
        first = draw(effect, sd)
        limit = threshold(first)
        if limit is None:
            continue
        search, made = Search(0, commits), 1
        while (number := search.next()) is not None and made < most(commits) - 1:
            made += 1
            search.tell(number, place(draw(effect if number >= culprit else 0.0, sd), limit))
        if len(search.suspects) == 1:
            wrong += search.suspects[0] != culprit
            right += search.suspects[0] == culprit
        else:
            wrong += culprit not in search.suspects
    assert wrong <= alpha * 4000
    assert right >= 500


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main", ".")
    for number in range(3):
        (tmp_path / "file.py").write_text(f"def f():\n    return {number}\n")
        git("add", "-A")
        git("commit", "-qm", f"change {number}")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--good=nothing", "--", "run", "file.py"), "--good=nothing: no such commit"),
        (("--good=HEAD", "--bad=HEAD~2", "--", "run", "file.py"), "--good=HEAD is no ancestor of --bad=HEAD~2"),
        (("--good=HEAD", "--", "run", "file.py"), "are the same commit"),
        (("--good=HEAD~2", "--", "show", "file.py"), "write what is measured after --"),
        (("--good=HEAD~2", "--", "run"), "bisect measures one file or program of the repository"),
        (("--good=HEAD~2", "--", "run", "--problem=gemm"), "install the commit's package with --build"),
        (("--good=HEAD~2", "--build=true", "--", "run", "--problem=gemm"), "install the commit's package with --build"),
        (("--good=HEAD~2", "--", "run", "json.decoder:JSONDecoder"), "is not in the repository"),
        (("--good=HEAD~2", "--build=no-such-tool", "--", "run", "file.py"), "no-such-tool: "),
        (
            ("--good=HEAD~2", "--alpha=0.001", "--max-rounds=8", "--", "run", "file.py"),
            "for 2 commits, give 13 or more",
        ),
        (("--good=HEAD~2", "--build=false", "--", "run", "file.py"), "--good and --bad must both build and run"),
        (("--good=HEAD~2", "--build=echo >> file.py", "--", "run", "file.py"), "the build changes files of the commit"),
    ],
)
def test_bad_input_is_one_line(command, repository, words, said):
    done = command("bisect", *words)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert (repository / "file.py").read_text().endswith("return 2\n")


def test_a_folder_that_is_no_repository_is_one_line(command, tmp_path):
    done = command("bisect", "--good=a", "--repo=/proc", "--", "run", "file.py")
    assert (done.returncode, "/proc: not a git repository" in done.stderr) == (2, True)


def test_a_build_that_failed_is_tried_again_unless_resumed(repository, tmp_path):
    commit, builds = Repository(repository).between("HEAD~1", "HEAD")[0], tmp_path / "builds"
    build = f"test -e {tmp_path}/there"
    with pytest.raises(BuildError, match="the build ended with status 1"):
        Repository(repository).checkout(commit, build, builds)
    (tmp_path / "there").touch()
    with pytest.raises(BuildError, match="the build ended with status 1"):
        Repository(repository).checkout(commit, build, builds, resume=True)
    made = Repository(repository).checkout(commit, build, builds)
    assert (made.tree / "file.py").read_text().endswith("return 1\n")
    assert not made.installed
    (tmp_path / "there").unlink()
    assert Repository(repository).checkout(commit, build, builds) == made
