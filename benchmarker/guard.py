"""A guard: a process between this one and one that loads plugins; it leaves nothing running behind it.

The guard forks: the child runs the module, the guard waits. When the child ends, the guard ends everything that the
child started, also in a session of its own, and then ends as the child did. When the process that started the guard
ends, however it does, the guard ends all of it at once, even if a plugin holds the interpreter's lock, hangs in a
driver or is stopped. This takes Linux 5.3 or newer; elsewhere the module runs without a guard.
"""

import ctypes
import functools
import os
import resource
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

END_S = 2.0
"""Time limit for ending what a child started; a process that hangs in the kernel ends when its driver releases it."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""From <linux/prctl.h>."""


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module under a guard of this process."""
    guard = ["benchmarker.guard", str(os.getpid())] if _possible() else []
    return [sys.executable, "-P", "-m", *guard, module, *words]


@contextmanager
def started(module: str, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module under a guard of this process, in a new session; `options` are those of `subprocess.Popen`.

    When the context ends, however it does, the process and everything that it started are ended.
    """
    with ExitStack() as stack:
        with uninterrupted():
            process = stack.enter_context(subprocess.Popen(command(module, *words), start_new_session=True, **options))
            stack.callback(end, process)
        yield process


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off SIGINT and SIGTERM to the end of the context: while a process is started, nobody could end it yet."""
    came: list[int] = []
    handled = {}
    try:
        if threading.current_thread() is threading.main_thread():  # no other thread handles signals
            for number in (signal.SIGINT, signal.SIGTERM):
                handled[number] = signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        for came_number in came:
            signal.raise_signal(came_number)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started by `command` in a new session, and everything that it started."""
    if _possible() and process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 * END_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@functools.cache
def _possible() -> bool:
    """Whether this system tells that a process has ended by a file descriptor (pidfd_open(2))."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def main() -> None:
    """Run the module that the arguments name, under a guard that ends with the process whose number comes first."""
    starter, module = int(sys.argv[1]), sys.argv[2]
    started_by = os.pidfd_open(starter) if os.getppid() == starter else os._exit(1)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)  # a guard that is stopped goes on, and sees that its starter has ended
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(started_by)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        sys.argv[:] = sys.argv[2:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    _guard(child, started_by)


def _guard(child: int, started_by: int) -> None:
    """Wait for the child or for the end of the process that started this one; end all, then end as the child did."""
    ended = os.pidfd_open(child)
    _close_all_but(ended, started_by)
    asked: list[int] = []
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    poll = select.poll()
    for descriptor in (ended, started_by, wake):
        poll.register(descriptor, select.POLLIN)
    while not asked and not {ended, started_by} & {descriptor for descriptor, _ in poll.poll()}:
        os.read(wake, 64)
    how = _end_all(child)
    if os.WIFSIGNALED(how):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL cannot be reset
            signal.signal(os.WTERMSIG(how), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(how))
    os._exit(os.waitstatus_to_exitcode(how))


def _end_all(child: int) -> int:
    """Kill and reap all descendants, which become this process's children when their parents end.

    Returns the wait status of the child.
    """
    how = 0
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        try:
            reaped, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if reaped == child:
            how = status
        elif not reaped:
            for each in _children():
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.001)
    return how


def _children() -> list[int]:
    own = f" {os.getpid()} "
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if path.read_text(errors="replace").rpartition(")")[2][2:].startswith(own):
                found.append(int(path.parent.name))
    return found


def _close_all_but(*kept: int) -> None:
    """Close every file that the child uses, so that what it closes is closed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for each in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if each > 2 and each not in kept:
            with suppress(OSError):  # the one that the listing used is closed already
                os.close(each)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
