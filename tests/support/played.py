"""A launcher that plays the nodes of an allocation on this machine, each by a process; some are made unwell."""

from __future__ import annotations

ENTRY_POINTS = {"launcher.played": "played.launcher"}
"""The nodes are those of the variable PLAYED_NODES, with commas.

PLAYED_UNWELL holds `NODE=WORD` with commas: `absent` does not start, `gone` is killed after PLAYED_GONE_S, `other` has
the distributions of PLAYED_OTHER too; with `rank`, the second device of the toy's team is slower; a number makes the
toy's naps longer by this share. `NODE+NODE=0.1` makes the exchanges of the toy's team on this link longer by this
share, and `NODE+=0.1` those on every link of a node. With PLAYED_IDLE, the launcher starts nothing on nodes.
"""

PLAYED = {
    "__init__.py": "",
    "launcher.py": """
        import os, sys
        from benchmarker import Allocation, Launcher, hookimpl

        @hookimpl
        def make_launcher(options):
            return Played()

        class Played(Launcher):
            def allocation(self):
                nodes = os.environ.get("PLAYED_NODES")
                return Allocation("played", "7", nodes.split(","), 0) if nodes else None
            def node(self): return os.environ.get("PLAYED_NODE")
            def command(self, nodes, program):
                os.environ["PLAYED_LINK"] = "+".join(sys.argv[-2:])  # that of the process of a link
                if "PLAYED_IDLE" in os.environ: return super().command(nodes, program)
                return [sys.executable, "-m", "played.run", ",".join(nodes), *program]
            def address(self, node): return "127.0.0.1"
            def directives(self, name, log, nodes): return ()
            def submit(self, script, log): raise NotImplementedError
            def states(self, jobs): return {}
            def cancel(self, job): pass
    """,
    "run.py": """
        import os, subprocess, sys, threading, time
        from contextlib import suppress

        nodes, program = sys.argv[1].split(","), sys.argv[2:]
        unwell = dict(word.split("=") for word in os.environ.get("PLAYED_UNWELL", "").split(",") if word)
        link = os.environ["PLAYED_LINK"]
        longer = [unwell[key] for key in (link, *(f"{end}+" for end in link.split("+"))) if key in unwell]
        started = []
        for node in nodes:
            word = unwell.get(node, "")
            env = {**os.environ, "PLAYED_NODE": node}
            if longer: env["TOY_EXCHANGE_LONGER"] = longer[0]
            command = program
            if word == "absent": command = ["false"]
            elif word == "other": env["PYTHONPATH"] = os.environ["PLAYED_OTHER"] + ":" + env["PYTHONPATH"]
            elif word == "gone": command = ["timeout", "--signal=KILL", os.environ.get("PLAYED_GONE_S", "4"), *program]
            elif word == "rank": env["TOY_SLOW_RANK"] = "1"
            elif word: env["TOY_LONGER"] = word
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=env))

        def forward():
            while chunk := os.read(0, 65536):
                for each in started:
                    with suppress(BrokenPipeError):
                        each.stdin.write(chunk)
                        each.stdin.flush()
            for each in started:
                with suppress(BrokenPipeError): each.stdin.close()

        threading.Thread(target=forward, daemon=True).start()
        while any(each.poll() is None for each in started):
            time.sleep(0.05)
            if os.getppid() == 1: break
        os._exit(max(abs(each.wait()) for each in started) and 1)
    """,
}
