"""The workload of a program: it is executed, as a whole or step by step."""

from benchmarker import FLOATS, Case, Support, UserError, Workload, hookimpl
from benchmarker_problems.program import Program
from benchmarker_problems.program.execution import ProgramExecution
from benchmarker_problems.program.stepwise import StepwiseExecution

SANE = "a program is held to the patterns of --sanity"
UNCHECKED = "nothing tells whether the output is right; give a pattern with --sanity"


@hookimpl
def describe_workload() -> Support:
    """Return that a program is executed, in whatever precision it computes."""
    return Support({"inference": FLOATS})


@hookimpl
def build_workload(problem: Program, case: Case) -> Workload:
    """Return the program, which is executed only to be timed: nothing is run to check it."""

    def no_step() -> None:
        raise UserError("a program has no steps")

    execution = (StepwiseExecution if problem.stepwise else ProgramExecution)(problem, case)
    return Workload(
        step=no_step,
        outputs=lambda _: {},
        exact=lambda: SANE if problem.sanity else UNCHECKED,
        execution=execution,
        figures=execution.figures,
        suspicions=execution.suspicions,
    )
