"""The commands by section, each with the line that `--help` shows, and the modules that have them.

These tables are all that `--help` reads: no module is imported.
"""

SECTIONS = {
    "Measure": {
        "run": "Measure a problem in one or more frameworks (the default).",
        "sweep": "Measure every combination of parameter values.",
        "new": "Write a short file to start from: functions, or a plan.",
        "plan show": "Show what a plan file would run, and how long it takes.",
        "plan run": "Run a plan file.",
        "submit": "Submit a plan file as a job, such as to Slurm.",
        "jobs": "Show the status of submitted jobs.",
        "check": "Check every implementation against its reference.",
        "ceilings": "Measure the device's highest FLOP/s and bytes/s.",
        "card": "Show a machine's card: ceilings, launches, copies, loads.",
        "serve-load": "Load-test a text-generation server or engine.",
    },
    "Fleets": {
        "nodes run": "Measure every node of an allocation at the same time.",
        "nodes show": "Show the outliers among nodes and devices.",
    },
    "Compare": {
        "ab": "Compare two configurations until the verdict is clear.",
        "bisect": "Find the commit since which a case is slower or faster.",
        "compare": "Compare records: faster, slower, same or undecided.",
        "history": "Find since when a case is faster or slower.",
        "scaling": "Show how much faster several devices are than one.",
        "ladder": "Show which level of the stack loses how much speed.",
        "fit": "Fit latency and asymptotic rate to times over a size.",
        "pareto": "Find the Pareto-optimal configurations.",
        "table": "Print cases as a table: text, Markdown, LaTeX, HTML or CSV.",
        "predict": "Predict a step on a device, measured here or not.",
        "roofline": "Place steps, scopes and kernels on the device's roofline.",
        "report": "Write verdicts, figures and their data as one HTML page.",
    },
    "Procurement": {
        "suite list": "List the benchmark suites.",
        "suite run": "Run a benchmark suite.",
        "suite score": "Score results over all cases, one figure per metric.",
        "suite check": "List what is missing or changed in a submission.",
        "suite accept": "Check records against a reference: PASS or FAIL.",
        "bundle create": "Pack a run with checksums, for hand-in.",
        "bundle verify": "Verify a packed run.",
        "bundle unpack": "Verify a packed run and unpack it.",
    },
    "Profiles": {
        "profile kernels": "Show what ran, by name, category, scope, op or device.",
        "profile scopes": "Show the time of each scope, several profiles side by side.",
        "profile ops": "Show the HLO instructions or aten ops.",
        "profile gemms": "Show the matrix products: sizes, FLOP/s, share of the roof.",
        "profile ranks": "Compare the ranks of a distributed program.",
        "profile idle": "Show why the device waits, and how work was launched.",
        "profile path": "Show the critical path: what determines when a step ends.",
        "profile memory": "Show the peak memory, and what was allocated then.",
        "profile sql": "Query profiles in SQL.",
        "profile export": "Export a profile for the Perfetto viewer.",
        "profile import": "Import profiler traces of other tools.",
    },
    "Records": {
        "show": "Show records as a table, or one record in full.",
        "archive add": "Add runs to an archive: the records of years in few files.",
        "query": "Query an archive or records in SQL.",
        "telemetry": "Show what the meters read during a trial, over time.",
        "validate": "Validate records and plans.",
    },
    "This machine": {
        "list": "List the plugins, and whether each is available.",
        "describe": "Describe a problem: options, cost, scopes, support.",
        "env": "Describe the machine and what makes its timings noisy.",
        "power": "Show the power sensors, or why there are none.",
    },
}
LINES = {name: line for section in SECTIONS.values() for name, line in section.items()}
GROUPS = {
    "plan": "Show or run a plan file: TOML that describes an experiment.",
    "suite": "List and run benchmark suites, and judge their results. A suite is a curated plan; use `plan run` for "
    "your own plans.",
    "bundle": "Pack the folder of a run for hand-in, verify such a bundle, or unpack it.",
    "archive": "Add runs to an archive, which keeps the records of years in few files.",
    "nodes": "Measure all nodes of an allocation at the same time, and show the outliers.",
    "profile": "Show, query, export and import profiles: those of `run --profile`, and those of other tools.",
}
MEANT = {
    **dict.fromkeys(("bench", "benchmark", "measure", "start"), "run"),
    **dict.fromkeys(("init", "create", "template"), "new"),
    **dict.fromkeys(("diff", "versus", "vs"), "compare"),
    **dict.fromkeys(("trend", "regressions", "changes"), "history"),
    **dict.fromkeys(("info", "doctor", "system", "machine"), "env"),
    **dict.fromkeys(("plugins", "frameworks", "problems", "metrics"), "list"),
    **dict.fromkeys(("results", "records", "print", "view", "cat"), "show"),
    **dict.fromkeys(("html", "page", "plot"), "report"),
    **dict.fromkeys(("status", "queue"), "jobs"),
    **dict.fromkeys(("peak", "bandwidth"), "ceilings"),
    **dict.fromkeys(("pack", "zip"), "bundle create"),
    **dict.fromkeys(("serve", "load"), "serve-load"),
    **dict.fromkeys(("sensors", "watch"), "power"),
    **dict.fromkeys(("sql", "select", "duckdb"), "query"),
}
"""Words that no command is called by, but a user may try, each with the command that it means."""
_VIEWS = ("kernels", "ops", "scopes", "gemms", "idle", "path", "memory", "ranks")
MODULES = {
    "sweep": "run",
    "new": "plan",
    "submit": "jobs",
    **dict.fromkeys(("plan show", "plan run"), "plan"),
    "archive add": "archive",
    **dict.fromkeys(("nodes run", "nodes show"), "nodes"),
    **dict.fromkeys(("suite list", "suite run", "suite check"), "suite.suites"),
    **dict.fromkeys(("bundle create", "bundle verify", "bundle unpack"), "bundle"),
    **{f"profile {view}": "profile.views" for view in _VIEWS},
    **dict.fromkeys(("profile export", "profile import"), "profile.files"),
}
"""The modules of the commands that share one; `suite score` alone is in `suite/score.py`."""
