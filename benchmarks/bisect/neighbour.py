"""A neighbour: `neighbour.py BUSY_MS REST_MS SEED` computes and streams memory for a random time, then rests for one.

Both times are exponential with these means. It ends with the process that started it.
"""

import os
import random
import sys
import time

STREAMED_BYTES = 16 << 20


def main() -> None:
    """Be busy and rest, in turns."""
    parent, (busy_s, rest_s) = os.getppid(), (float(word) / 1e3 for word in sys.argv[1:3])
    draw = random.Random(int(sys.argv[3]))
    source, target = bytearray(STREAMED_BYTES), bytearray(STREAMED_BYTES)
    while os.getppid() == parent:
        streams = draw.random() < 0.5
        end = time.monotonic() + draw.expovariate(1 / busy_s)
        while time.monotonic() < end:
            if streams:
                target[:] = source
            else:
                sum(number * number for number in range(1000))
        time.sleep(draw.expovariate(1 / rest_s))


if __name__ == "__main__":
    main()
