"""What the parent tells a worker after its request; if the parent ends, so does the worker."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from benchmarker.worker.protocol import Address, InvalidLineError, Order, Told, message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from benchmarker.worker.protocol import Events


class Parent:
    """Listens to the parent in a thread; `waits` says whether the main thread waits for another rank.

    `synchronize` is the code with which it waits for its device. `orders` are those for a worker that serves.
    """

    def __init__(self, told: Iterator[bytes], events: Events) -> None:
        self._told = told
        self._events = events
        self._addresses: SimpleQueue[Address] = SimpleQueue()
        self.orders: SimpleQueue[Order] = SimpleQueue()
        self.waits: Callable[[], bool] = lambda: False
        self.synchronize: CodeType | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def address(self) -> Address:
        """Wait for the address of rank 0."""
        return self._addresses.get()

    def _listen(self) -> None:
        """Do as told until the pipe closes; then end the process, so that a killed parent leaves no worker behind.

        So does whatever else ends this thread, such as a line that is not a message: the last line of the log says it.
        """
        try:
            for line in self._told:
                self._do(message_of(line, Told))
        except InvalidLineError as error:
            sys.stderr.write(f"the worker was told what is not valid: {error}\n")
        except Exception:  # noqa: BLE001 - whatever it is, nobody would hear the parent any more
            traceback.print_exc()
        finally:
            os._exit(1)

    def _do(self, told: Told) -> None:
        if told.address:
            self._addresses.put(told.address)
        if told.order:
            self.orders.put(told.order)
        if told.stacks:
            frame = _main_frame()
            synchronizes = _is_within(frame, self.synchronize)
            self._events.send(place=_place(frame), waits=self.waits(), synchronizes=synchronizes)
            faulthandler.dump_traceback()


def _main_frame() -> FrameType:
    main = threading.main_thread().ident
    return sys._current_frames()[main] if main is not None else sys._getframe()


def _is_within(frame: FrameType | None, code: CodeType | None) -> bool:
    """Whether a frame is that of a function with this code, or of what it has called."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _place(frame: FrameType) -> str:
    """Return where a thread is: `step (gemm.py:12)`."""
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"
