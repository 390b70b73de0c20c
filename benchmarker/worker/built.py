"""Run the worker with the packages of a folder before those of this environment: `built.py FOLDER`."""

import runpy
import sys

from benchmarker.files.packages import put_first

if __name__ == "__main__":
    put_first(sys.argv.pop())
    runpy.run_module("benchmarker.worker", run_name="__main__", alter_sys=True)
