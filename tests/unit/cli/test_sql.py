"""`profile sql`: event tables in DuckDB, and Perfetto's tables in its engine."""

import json
import os
import re
import signal
import sys
import threading
import time

import pytest
from support import profiles, trace_processor

from benchmarker.hooks import sql as reading
from benchmarker.hooks.registry import installing
from benchmarker.traces import profile_files, sql

BY_NAME = "SELECT name, count(*) AS number, sum(busy_ns) AS busy_ns FROM events GROUP BY name ORDER BY name"
SLICES_BY_NAME = """
    SELECT name, count(*) AS number, sum(extract_arg(arg_set_id, 'args.busy_ns')) AS busy_ns
    FROM slice GROUP BY name ORDER BY name
"""


@pytest.fixture(autouse=True)
def traces(tmp_path):
    """A trace of PyTorch, and two of JAX."""
    (tmp_path / "torch.json").write_bytes(profiles.torch_json())
    (tmp_path / "cpu.pb").write_bytes(profiles.small_cpu_space())
    (tmp_path / "gpu.pb").write_bytes(profiles.small_gpu_space())


@pytest.fixture
def ask(command):
    """Returns what a command prints as JSON."""

    def ask(*words):
        done = command("profile", "sql", *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


@pytest.fixture
def refused(command):
    """Returns the one line with which a command is refused."""

    def refused(*words):
        done = command("profile", "sql", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        return done.stderr

    return refused


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "engine"
    trace_processor.write_program(path)
    return f"--engine={path}"


@pytest.mark.parametrize("name", ["torch.json", "cpu.pb", "gpu.pb"])
def test_both_engines_give_the_same_answer(ask, command, tmp_path, name):
    command("profile", "export", name, "-o", "exported.json")
    with trace_processor.open_trace(tmp_path / "exported.json") as trace:
        theirs = trace.query(SLICES_BY_NAME)
    ours = ask(name, BY_NAME)
    assert sum(row["busy_ns"] or 0 for row in ours) > 0
    assert [[row["name"], row["number"], row["busy_ns"] or 0] for row in ours] == theirs.fillna(0).values.tolist()


def test_an_event_table_gives_what_its_trace_gives(ask, command):
    assert command("profile", "import", "cpu.pb").returncode == 0
    every = "SELECT * EXCLUDE (result) FROM events ORDER BY event_id"
    assert ask("cpu.events.parquet", every) == ask("cpu.pb", every) != []


def test_what_is_unknown_is_null(ask):
    (row,) = ask(
        "torch.json",
        "SELECT count(*) AS rows, count(busy_ns) AS kernels, count(flops) AS flops, count(end_ns) AS ends, "
        "count(opcode) AS opcodes, min(busy_ns) > 0 AS positive FROM events",
    )
    assert row == {"rows": 10, "kernels": 2, "flops": 4, "ends": 0, "opcodes": 0, "positive": True}


def test_several_profiles_are_one_table_with_the_name_of_each(ask):
    found = ask("torch.json", "cpu.pb", "SELECT result, count(*) AS n FROM events GROUP BY result ORDER BY result")
    assert found == [{"result": "cpu.pb", "n": 6}, {"result": "torch.json", "n": 10}]
    assert ask("cpu.pb", "SELECT DISTINCT result FROM events") == [{"result": "cpu.pb"}]


def test_numbers_are_exact_and_other_values_keep_their_form(ask, command):
    statement = (
        "SELECT 9223372036854775807 AS big, 170141183460469231731687303715884105727 AS huge, 1.10 AS d, "
        "0.1::DOUBLE AS f, 'nan'::DOUBLE AS nan, [1, NULL] AS l, {'a': 1.5} AS s, 'ab'::BLOB AS b, true AS t, "
        "DATE '2020-01-31' AS day"
    )
    (row,) = ask("cpu.pb", statement)
    assert row == {
        "big": 2**63 - 1,
        "huge": 2**127 - 1,
        "d": 1.1,
        "f": 0.1,
        "nan": None,
        "l": [1, None],
        "s": {"a": 1.5},
        "b": "6162",
        "t": True,
        "day": "2020-01-31",
    }
    lines = command("profile", "sql", "cpu.pb", statement, "--csv").stdout.splitlines()[1]
    assert lines.startswith(f"{2**63 - 1},{2**127 - 1},1.10,0.1,,")
    shown = command("profile", "sql", "cpu.pb", statement).stdout.splitlines()[1]
    assert shown.split()[:4] == [str(2**63 - 1), str(2**127 - 1), "1.10", "0.1"]


def test_text_and_headings_as_csv_are_no_formulas(command):
    done = command(
        "profile", "sql", "torch.json", """SELECT '=1+1' AS "@a", -1 AS n, chr(9) || 'x' AS t, NULL AS e""", "--csv"
    )
    assert done.stdout == "'@a,n,t,e\n'=1+1,-1,\\x09x,\n"


def test_an_incomplete_profile_says_so(command, tmp_path):
    (tmp_path / "torch.json").write_bytes(profiles.torch_json()[:-40])
    done = command("profile", "sql", "torch.json", "SELECT 1 AS one", "--csv")
    assert (done.returncode, done.stdout) == (0, "one\n1\n")
    assert "INCOMPLETE profile: " in done.stderr
    assert (
        command("profile", "sql", "torch.json", "SELECT 1 AS one")
        .stdout.splitlines()[-1]
        .startswith("INCOMPLETE profile: ")
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT nme FROM events", r'Candidate bindings: "name".*; DESCRIBE events lists the columns$'),
        ("SELECT * FROM slice", r"The table is events; --perfetto queries Perfetto's tables$"),
        ("SELEC 1", r'syntax error at or near "SELEC"; DESCRIBE'),
        ("SELECT 'a'::INT", "Could not convert string 'a' to INT32; DESCRIBE"),
        ("SELECT '\udcff'", "not valid UTF-8"),
        ("SELECT 1 AS a, 2 AS a", "several columns are called a, .* name them with AS"),
        ("", "give one SELECT"),
        ("SELECT 1; SELECT 2", "give one SELECT"),
        ("CREATE TABLE mine AS SELECT 1", "give one SELECT"),
    ],
)
def test_a_wrong_statement_is_told_in_one_line_with_what_to_do(refused, statement, message):
    assert re.search(message, refused("cpu.pb", statement, "--json").rstrip())


def test_a_statement_that_reads_need_not_be_a_select(ask):
    assert {row["column_name"] for row in ask("cpu.pb", "DESCRIBE events")} >= {"event_id", "name", "busy_ns"}
    pivoted = ask("cpu.pb", "PIVOT events ON kind USING count(*) GROUP BY device")
    assert pivoted == [{"device": "cpu", "op": 4, "step": 2}]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM 'cpu.events.parquet'",
        "SELECT * FROM read_text('torch.json')",
        "SELECT * FROM glob('*')",
        "SELECT * FROM read_csv('https://example.org/a.csv')",
        "COPY events TO 'out.csv'",
        "EXPORT DATABASE 'out'",
        "ATTACH 'out.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "RESET lock_configuration",
    ],
)
def test_a_statement_reaches_no_file_no_network_and_no_setting(command, refused, tmp_path, statement):
    command("profile", "import", "cpu.pb")
    before = sorted(tmp_path.iterdir())
    refused("cpu.pb", statement)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "statement", ["SELECT * FROM read_text('torch.json')", "COPY events TO 'out.csv'", "LOAD httpfs"]
)
def test_duckdb_itself_refuses_what_the_statement_must_not_reach(refused, monkeypatch, statement):
    monkeypatch.setattr(reading, "_READING", ("SELECT", "COPY", "LOAD"))
    assert "duckdb: Permission Error" in refused("cpu.pb", statement)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, whatever runs the tests."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def test_an_interrupt_ends_a_long_statement(tmp_path, interruptible):
    found = profile_files.profiles([tmp_path / "cpu.pb"])
    endless = "SELECT sum(a.range * b.range % 7) FROM range(1000000000) a, range(1000000000) b"
    alarm = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        alarm.start()
        sql.query(found, endless)


def test_a_second_interrupt_does_not_leave_a_statement_running(interruptible):
    class Slow:
        """A connection whose statement ends some time after the second interrupt."""

        interrupts = 0
        ended = False

        def execute(self, _):
            for number in range(2):
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGINT)
                while self.interrupts == number:
                    time.sleep(0.01)
            time.sleep(0.2)
            self.ended = True

        def interrupt(self):
            self.interrupts += 1

    slow = Slow()
    with pytest.raises(KeyboardInterrupt):
        reading._answer(slow, "SELECT 1")
    assert slow.ended


def test_a_missing_package_is_named(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert installing("trace") in refused("cpu.pb", "SELECT 1")


def test_an_engine_of_perfetto_answers_from_its_tables(ask, engine):
    assert ask("torch.json", "SELECT count(*) AS n, NULL AS unknown FROM slice WHERE category = 'kernel'", engine) == [
        {"n": 2, "unknown": None}
    ]


def test_perfetto_works_where_nothing_can_be_written_beside(ask, engine, tmp_path, monkeypatch):
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("benchmarker.cli.commands.profile.sql._writable", lambda _: False)
    assert ask("torch.json", "SELECT count(*) AS n FROM slice", "--perfetto", engine) == [{"n": 10}]
    assert sorted(tmp_path.iterdir()) == before


def test_without_an_engine_of_perfetto_it_says_what_to_do(refused, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "profile sql without --perfetto needs none" in refused("torch.json", "SELECT 1", "--perfetto")
    assert "--perfetto queries one" in refused("torch.json", "cpu.pb", "SELECT 1", "--perfetto")
