"""What `bundle create --redact` replaces, what it leaves out, and what stays as it is."""

import json
from pathlib import Path

import msgspec
import pytest
from support.records import make_ceiling, make_energy, make_record

from benchmarker import Allocation
from benchmarker.api.meter import Unavailable
from benchmarker.bundles.pack import Bundled, bundle
from benchmarker.bundles.redact import Pseudonyms, Redactor
from benchmarker.bundles.unpack import unbundle
from benchmarker.files import atomic
from benchmarker.power import telemetry
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled
from benchmarker.records import ceilings, store
from benchmarker.records.energy import MeterReport
from benchmarker.records.machine import DeviceInfo, Gpu
from benchmarker.records.plan import make_plan
from benchmarker.records.record import Failure

RUN = "20260102T030405.678901-89abcdef"
UUID = "GPU-3f2a11c0-aaaa-bbbb-cccc-0123456789ab"
OTHER = "GPU-00000000-aaaa-bbbb-cccc-0123456789ab"
SECRETS = ("node7", "alice", "3f2a11c0", "00000000-aaaa", "secret")
CHANNEL = {"id": UUID, "domain": "gpu", "quantity": "power_instant_W", "device": "Card"}


def record(trial: int, host: str = "node7.example.org", **fields):
    plain = make_record()
    gpus = [Gpu(at, "Card", uuid, None, None, None, None, None, None, None) for at, uuid in enumerate((UUID, OTHER))]
    machine = msgspec.structs.replace(plain.machine, host=host, gpus=gpus, model="Maker R750")
    reasons = {f"machine.gpus[{at}].{name}": "no value" for at in (0, 1) for name in Gpu.__struct_fields__[3:]}
    given = {
        "machine": machine,
        "device": DeviceInfo("cuda", "Card", UUID, "0000:65:00.0", 1, 1),
        "reasons": plain.reasons | reasons | {"memory.device_peak_bytes": "/proc/secret is not readable"},
        "software": msgspec.structs.replace(plain.software, variables={"CUDA_VISIBLE_DEVICES": UUID, "N": "8"}),
        "energy": make_energy(100.0, id=UUID),
        "meters": [
            MeterReport(
                meter="nvml",
                channels=1,
                ticks=1,
                period_ms=1.0,
                late_p95_ms=1.0,
                unavailable=[Unavailable("", "driver", "cannot open '/dev/my secret/x' on node7.example.org")],
            )
        ],
    }
    return make_record(run=RUN, trial=trial, **(given | fields))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on two hosts, one of them twice, with files of every kind; its messages name hosts, cards and paths."""
    failure = Failure(
        "exception", f"OSError: ~/x, /home/alice/net.bin: {UUID} at 12 samples/s and/or node7.example.org", "open"
    )
    records = [
        record(0),
        record(1, host="node8", status="failed", error=failure),
        record(2),
    ]
    plan = make_plan([make_record().case], 3, seed=1, left_out=["framework=x: cannot import /home/alice/x.py"])
    folder = tmp_path / "mine" / RUN
    folder.mkdir(parents=True)
    atomic.write(folder / "plan.json", atomic.encode(msgspec.structs.replace(plan, run_id=RUN)))
    for each in records:
        atomic.write(folder / f"{each.trial_id}.json", atomic.encode(each))
    first = records[0].trial_id
    (folder / f"{first}.log").write_text("node7 alice")
    (folder / f"{first}.events.parquet").write_bytes(b"PAR1 alice")
    (folder / f"{first}.profile.json.gz").write_bytes(b"alice")
    (folder / "notes-of-alice.txt").write_text("alice")
    (folder / "link-of-alice").symlink_to("/home/alice")
    sampled = Sampled("nvml", (msgspec.convert(CHANNEL, telemetry.Channel),), (), [Sample(5, 0, "begin", (7.0,))])
    sampled.samples.append(Sample(9, 0, "", ("sentinel",)))
    (folder / f"{first}{store.TELEMETRY}").write_bytes(telemetry.encode([sampled]))
    ceilings.write(folder / "ceilings.json", [make_ceiling(1.0, host="node7.example.org")])
    return folder


@pytest.fixture
def theirs(run: Path, tmp_path: Path) -> Path:
    """The same run as the receiver of a redacted bundle has it."""
    done = bundle(run, tmp_path / "bid.zip", redact=Pseudonyms())
    assert isinstance(done, Bundled)
    received = unbundle(done.path, tmp_path / "theirs")
    assert received.faults == ()
    assert received.manifest == done.manifest
    assert received.folder
    return received.folder


def test_no_host_user_path_or_serial_number_is_left_anywhere(theirs):
    for path in theirs.iterdir():
        content = path.read_bytes()
        if path.name.endswith(store.TELEMETRY):
            content = telemetry.read(path).readings.to_csv().encode() + str(telemetry.read(path).channels).encode()
        assert not [word for word in SECRETS if word.encode() in content], path.name


def test_the_nodes_of_a_process_group_have_pseudonyms_wherever_they_stand():
    plain = record(0)
    second = msgspec.structs.replace(plain.machine, host="secret-9")
    case = msgspec.structs.replace(plain.case, devices=2, nodes=2, ranks=2)
    failure = Failure("node", "node node9 was lost: cannot reach secret-9", "timed", node="node9")
    of_machine = {path: why for path, why in plain.reasons.items() if path.startswith("machine.")}
    reasons = {path.replace("machine", f"machines[{at}]", 1): why for path, why in of_machine.items() for at in (0, 1)}
    made = msgspec.structs.replace(
        plain,
        case=case,
        reasons=plain.reasons | reasons,
        machines=[plain.machine, second],
        allocation=Allocation("slurm", "7", ["node7", "node9"], 0),
        status="failed",
        error=failure,
    )
    redactor = Redactor(Pseudonyms())
    redactor.learn(made)
    told = json.loads(redactor.content(atomic.encode(made)))
    assert [machine["host"] for machine in told["machines"]] == ["host-1-89abcdef", "host-2-89abcdef"]
    assert told["allocation"]["nodes"] == ["host-3-89abcdef", "host-4-89abcdef"]
    assert told["error"]["node"] == "host-4-89abcdef"
    assert told["error"]["message"] == "node host-4-89abcdef was lost: cannot reach host-2-89abcdef"


def test_the_same_machine_and_card_have_the_same_pseudonym_everywhere(theirs):
    records, faults = store.read([theirs])
    assert faults == []
    assert [each.machine.host for each in records] == ["host-1-89abcdef", "host-2-89abcdef", "host-1-89abcdef"]
    assert ceilings.read(theirs / "ceilings.json")[0].host == "host-1-89abcdef"
    card = "GPU-card-1-89abcdef"
    for each in records:
        assert each.device.uuid == each.machine.gpus[0].uuid == each.energy.sensors[0].id == card
        assert each.machine.gpus[1].uuid == "GPU-card-2-89abcdef"
        assert each.software.variables == {"CUDA_VISIBLE_DEVICES": card, "N": "8"}
    line = telemetry.read(next(theirs.glob(f"*{store.TELEMETRY}")))
    assert set(line.readings["id"]) == {card} == {line.channels[0]["nvml"][0].id}
    environment = json.loads((theirs / "environment.json").read_text())
    assert [(each["machine"]["host"], len(each["trials"])) for each in environment["machine"]] == [
        ("host-1-89abcdef", 2),
        ("host-2-89abcdef", 1),
    ]


def test_what_a_job_was_submitted_with_is_left_out_and_its_nodes_have_pseudonyms(run, tmp_path):
    for name in ("job.json", "attempt-0.json"):
        (run / name).write_text('{"host": "node70", "options": {"account": "alice"}}')
    (path,) = run.glob("*-0002-0.json")
    allocation = Allocation("slurm", "12", ["node7.example.org", "node70"], 0)
    atomic.write(path, atomic.encode(msgspec.structs.replace(store.read_record(path), allocation=allocation)))
    folder = unbundle(bundle(run, tmp_path / "bid.zip", redact=Pseudonyms()).path, tmp_path / "theirs").folder
    records, faults = store.read([folder])
    assert faults == []
    assert records[2].allocation == Allocation("slurm", "12", ["host-1-89abcdef", "host-3-89abcdef"], 0)
    assert not [word for word in SECRETS for each in folder.glob("*.json") if word in each.read_text()]
    assert not {"job.json", "attempt-0.json"} & {each.name for each in folder.iterdir()}


def test_messages_keep_what_identifies_nobody(theirs):
    records, _ = store.read([theirs])
    assert records[1].error.message == (
        "OSError: <path>, <path>: GPU-card-1-89abcdef at 12 samples/s and/or host-1-89abcdef"
    )
    assert records[0].meters[0].unavailable[0].message == "cannot open '<path>' on host-1-89abcdef"
    assert records[0].reasons["memory.device_peak_bytes"] == "<path> is not readable"
    assert store.read_plan(theirs / "plan.json").left_out == ["framework=x: cannot import <path>"]


def test_what_was_measured_stays(run, theirs):
    for mine, redacted in zip(store.read([run])[0], store.read([theirs])[0], strict=True):
        for name in ("case", "blocks", "harness", "cost", "status", "started_at", "trial_id", "interference"):
            assert getattr(mine, name) == getattr(redacted, name)
    (mine,), (redacted,) = (list(each.glob(f"*{store.TELEMETRY}")) for each in (run, theirs))
    columns = ["time_ns", "mark", "value", "reason"]
    assert telemetry.read(mine).readings[columns].equals(telemetry.read(redacted).readings[columns])
    assert {each.machine.model for each in store.read([theirs])[0]} == {"Maker R750"}


def test_logs_profiles_and_strange_files_are_left_out_and_their_names_withheld(theirs):
    manifest = json.loads((theirs / "manifest.json").read_text())
    first = f"{RUN}-0000-0"
    assert {each["path"]: each["reason"] for each in manifest["left_out"]} == {
        f"{first}.log": "left out by --redact",
        f"{first}.events.parquet": "left out by --redact",
        f"{first}.profile.json.gz": "left out by --redact",
        "file 1, whose name is withheld": "a link",
        "file 2, whose name is withheld": "left out by --redact",
    }
    assert manifest["redacted"] == {"hosts": 2, "cards": 2, "texts": 12}


def test_a_bundle_of_the_unpacked_run_is_the_same_and_still_redacted(theirs, tmp_path):
    done = bundle(theirs, tmp_path / "again.zip")
    assert done.path.read_bytes() == (tmp_path / "bid.zip").read_bytes()


def test_two_bundles_of_one_machine_do_not_show_that_they_are():
    one, two = Redactor(Pseudonyms()), Redactor(Pseudonyms())
    one.learn(record(0))
    two.learn(make_record(run=RUN[:-8] + "01234567"))
    assert not {*one._hosts.values()} & {*two._hosts.values()}


def test_runs_that_one_command_packs_share_their_pseudonyms(run, tmp_path, command):
    other = RUN[:-8] + "01234567"
    second = tmp_path / "mine" / other
    second.mkdir()
    plan = msgspec.structs.replace(make_plan([make_record().case], 1, seed=1), run_id=other)
    atomic.write(second / "plan.json", atomic.encode(plan))
    each = msgspec.structs.replace(record(0), run_id=other, trial_id=f"{other}-0000-0")
    atomic.write(second / f"{each.trial_id}.json", atomic.encode(each))
    assert "-o names one file, and there are 2 runs" in command("bundle", "create", str(run), str(second), "-ox").stderr
    assert "cannot read missing/plan.json" in command("bundle", "create", str(run), "missing", "--redact").stderr
    assert list(tmp_path.glob("*.zip")) == []
    done = command("bundle", "create", str(run), str(second), "--redact", "--json")
    assert [made["manifest"]["redacted"]["hosts"] for made in json.loads(done.stdout)] == [2, 1]
    folders = [unbundle(tmp_path / f"{name}.zip", tmp_path / "all").folder for name in (RUN, other)]
    hosts = [{each.machine.host for each in store.read([folder])[0]} for folder in folders]
    assert hosts == [{"host-1-89abcdef", "host-2-89abcdef"}, {"host-1-89abcdef"}]


def test_what_is_no_time_series_is_not_packed_unseen(run, tmp_path, command):
    next(run.glob(f"*{store.TELEMETRY}")).write_bytes(b"alice")
    done = command("bundle", "create", str(run), "-o", "bid.zip", "--redact")
    assert done.returncode == 2
    assert "not a time series" in done.stderr
    assert not (tmp_path / "bid.zip").exists()


def test_the_command_line_says_that_it_is_redacted(run, command):
    for done in (
        command("bundle", "create", str(run), "-o", "bid.zip", "--redact"),
        command("bundle", "unpack", "bid.zip"),
    ):
        assert done.returncode == 0
        assert " pseudonyms for 2 hosts and 2 cards, 12 messages changed\n" in done.stdout
        assert "not packed: 4 logs, event tables, profiler files and others (--redact)" in done.stderr
