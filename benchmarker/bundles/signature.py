"""SSH signatures of bundles: made and verified by OpenSSH's `ssh-keygen`, and stored in BUNDLE.sig beside the bundle.

Any copy of OpenSSH verifies them too (ssh-keygen(1), ALLOWED SIGNERS), in the namespace `benchmarker-bundle`.
"""

import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarker.api.errors import UserError
from benchmarker.files import regular

NAMESPACE = "benchmarker-bundle"
_KEY = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-\S+\s+\S+")
"""A public key as in a file NAME.pub: its type and its Base64; a line of allowed signers has their names before it."""
_GOOD = re.compile(r'Good ".*" signature for .+ with \S+ key (?P<fingerprint>\S+)')


def path_of(bundle: Path) -> Path:
    """Return where the signature of a bundle is stored."""
    return bundle.with_name(f"{bundle.name}.sig")


def sign(file: IO[bytes], key: Path) -> bytes:
    """Return the signature of a whole open file by a private key, or by one in the agent if `key` is its public key.

    `ssh-keygen` asks for the passphrase of a protected key on the terminal. Raises `UserError` if it fails.
    """
    if not key.is_file():
        raise UserError(f"cannot read {key}: no such file; name a private SSH key with --sign")
    done = _ssh_keygen(["sign", "-f", str(key)], file)
    if done.returncode:
        raise UserError(f"cannot sign with {key}: {_reason(done)}")
    return done.stdout


def verify(file: IO[bytes], bundle: Path, signers: Path) -> str:
    """Return who signed the open file of a bundle: the fingerprint of the key, and its name among the signers.

    `signers` is a public key, or a file of several, or of allowed signers. Raises `UserError` if there is no signature,
    if its key is not among them, or if it does not fit.
    """
    signature = path_of(bundle)
    if not signature.is_file():
        raise UserError(f"{bundle} is not signed: there is no {signature}; request it, or leave --signed-by out")
    with tempfile.TemporaryDirectory(prefix="benchmarker-") as folder:
        allowed = Path(folder) / "allowed"
        names = _write_allowed(allowed, signers)
        given = ["-s", str(signature), "-f", str(allowed)]
        principals = _ssh_keygen(["find-principals", *given], None)
        if principals.returncode:
            raise UserError(f"{signature} is not by a key in {signers}: {_reason(principals)}; check who signed it")
        name = principals.stdout.decode().splitlines()[0]
        done = _ssh_keygen(["verify", *given, "-I", name], file)
    if done.returncode or not (good := _GOOD.search(done.stdout.decode())):
        raise UserError(f"{signature} does not fit {bundle}: {_reason(done)}; request both again")
    known = names.get(name, name)
    return f"{good['fingerprint']} ({known})" if known else good["fingerprint"]


def _write_allowed(path: Path, signers: Path) -> dict[str, str]:
    """Write the signers in the format of ssh-keygen(1); return the comments of bare keys by the names given to them."""
    try:
        lines = regular.content(signers).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UserError(f"cannot read {signers}: {reason}; name a public key, such as key.pub") from error
    names, allowed = {}, []
    for number, line in enumerate(filter(None, map(str.strip, lines)), 1):
        if line.startswith("-----BEGIN"):
            raise UserError(f"{signers} is a private key; name the public one, such as {signers}.pub")
        if key := _KEY.match(line):
            names[f"key-{number}"] = line[key.end() :].strip()
            allowed.append(f'key-{number} namespaces="{NAMESPACE}" {key[0]}')
        else:
            allowed.append(line)
    path.write_text("\n".join(allowed) + "\n", encoding="utf-8")
    return names


def _ssh_keygen(words: list[str], file: IO[bytes] | None) -> subprocess.CompletedProcess[bytes]:
    """Run `ssh-keygen -Y` with the content of a file, from its start, as standard input."""
    namespace = [] if file is None else ["-n", NAMESPACE]
    try:
        process = subprocess.Popen(
            ["ssh-keygen", "-Y", *words, *namespace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise UserError("ssh-keygen is not installed; install OpenSSH 8.2 or newer to use signatures") from error
    with process:
        assert process.stdin
        with suppress(BrokenPipeError):  # it has ended with an error, which it tells
            if file is not None:
                file.seek(0)
                shutil.copyfileobj(file, process.stdin, 2**20)
        output, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return lines[0] if lines else f"ssh-keygen ended with status {done.returncode}"
