"""Signatures of bundles, made and verified by the installed `ssh-keygen`."""

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from support.records import make_record

from benchmarker.files import atomic
from benchmarker.records.plan import make_plan

RUN = "20260102T030405.678901-89abcdef"
pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="OpenSSH is not installed")


def make_key(path: Path, comment: str = "") -> Path:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path]
    subprocess.run(words, check=True)
    return path


@pytest.fixture
def signed(command, tmp_path):
    """A bundle that a key of Acme signed."""
    folder = tmp_path / RUN
    folder.mkdir()
    record = make_record(run=RUN)
    atomic.write(folder / "plan.json", atomic.encode(msgspec.structs.replace(make_plan([record.case], 1), run_id=RUN)))
    atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    make_key(tmp_path / "acme", "bids@acme.example")
    make_key(tmp_path / "other")
    made = command("bundle", "create", RUN, "-o", "bid.zip", "--sign=acme")
    assert made.returncode == 0, made.stderr
    assert "signature  bid.zip.sig\n" in made.stdout
    return tmp_path


def refused(done, message: str) -> None:
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_a_signature_is_verified_and_its_signer_is_named(command, signed):
    done = command("bundle", "verify", "bid.zip", "--signed-by=acme.pub")
    assert (done.returncode, done.stderr) == (0, "")
    told = subprocess.run(["ssh-keygen", "-lf", "acme.pub"], capture_output=True, text=True, check=True, cwd=signed)
    fingerprint = told.stdout.split()[1]
    assert f"signed by  {fingerprint} (bids@acme.example)\n" in done.stdout
    found = json.loads(command("bundle", "verify", "bid.zip", "--signed-by=acme.pub", "--json").stdout)
    assert found["signer"] == f"{fingerprint} (bids@acme.example)"


def test_openssh_alone_verifies_it_too(signed):
    (signed / "allowed").write_text(f'acme namespaces="benchmarker-bundle" {(signed / "acme.pub").read_text()}')
    words = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        "allowed",
        "-I",
        "acme",
        "-n",
        "benchmarker-bundle",
        "-s",
        "bid.zip.sig",
    ]
    with (signed / "bid.zip").open("rb") as file:
        subprocess.run(words, stdin=file, check=True, cwd=signed, capture_output=True)


def test_a_file_of_several_keys_or_of_allowed_signers_is_taken(command, signed):
    keys = [(signed / f"{name}.pub").read_text() for name in ("other", "acme")]
    (signed / "keys").write_text("".join(keys))
    assert "(bids@acme.example)" in command("bundle", "verify", "bid.zip", "--signed-by=keys").stdout
    (signed / "allowed").write_text(f"# bidders\nother@x.example {keys[0]}acme@x.example {keys[1]}")
    assert "(acme@x.example)" in command("bundle", "verify", "bid.zip", "--signed-by=allowed").stdout


def test_the_signature_of_an_unknown_key_is_refused(command, signed):
    refused(command("bundle", "unpack", "bid.zip", "--signed-by=other.pub"), "bid.zip.sig is not by a key in other.pub")
    assert not (signed / "results").exists()


def test_a_signature_that_does_not_fit_is_refused(command, signed):
    data = bytearray((signed / "bid.zip").read_bytes())
    data[100] ^= 1
    (signed / "bid.zip").write_bytes(data)
    refused(command("bundle", "unpack", "bid.zip", "--signed-by=acme.pub"), "bid.zip.sig does not fit bid.zip: ")
    (signed / "bid.zip.sig").write_text("nothing")
    refused(command("bundle", "unpack", "bid.zip", "--signed-by=acme.pub"), "bid.zip.sig is not by a key in acme.pub")


def test_a_signature_for_another_purpose_is_refused(command, signed):
    (signed / "bid.zip.sig").unlink()
    words = ["ssh-keygen", "-Y", "sign", "-f", "acme", "-n", "file", "bid.zip"]
    subprocess.run(words, check=True, cwd=signed, capture_output=True)
    refused(command("bundle", "unpack", "bid.zip", "--signed-by=acme.pub"), "bid.zip.sig does not fit bid.zip: ")


def test_a_missing_signature_is_refused_and_an_unverified_one_is_told(command, signed):
    done = command("bundle", "verify", "bid.zip")
    assert done.returncode == 0
    assert "bid.zip.sig is not verified; name its key with --signed-by" in done.stderr
    (signed / "bid.zip.sig").unlink()
    assert command("bundle", "verify", "bid.zip").stderr == ""
    refused(
        command("bundle", "unpack", "bid.zip", "--signed-by=acme.pub"), "bid.zip is not signed: there is no bid.zip.sig"
    )


def test_keys_that_cannot_be_used_are_named(command, signed):
    for key, message in (
        ("nowhere", "cannot read nowhere: no such file; name a private SSH key with --sign"),
        ("bid.zip", "cannot sign with bid.zip: "),
    ):
        refused(command("bundle", "create", RUN, "-o", "again.zip", f"--sign={key}"), message)
    assert not (signed / "again.zip").exists()
    for key, message in (
        ("nowhere.pub", "cannot read nowhere.pub: No such file or directory; name a public key"),
        ("acme", "acme is a private key; name the public one, such as acme.pub"),
        ("bid.zip", "cannot read bid.zip: not text; name a public key"),
    ):
        refused(command("bundle", "unpack", "bid.zip", f"--signed-by={key}"), message)


def test_without_openssh_the_remedy_is_named(command, signed, monkeypatch):
    monkeypatch.setenv("PATH", "")
    message = "ssh-keygen is not installed; install OpenSSH 8.2 or newer to use signatures"
    refused(command("bundle", "create", RUN, "-o", "again.zip", "--sign=acme"), message)
    refused(command("bundle", "unpack", "bid.zip", "--signed-by=acme.pub"), message)
