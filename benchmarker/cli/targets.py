"""What answers the requests of `serve-load`: a server at an endpoint, or an engine that a framework runs."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.api.problem import Generates, Problem
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.problem import ask, names_of
from benchmarker.formatting import value_text
from benchmarker.hooks.registry import needing
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import usable
from benchmarker.planning.cases import make_case
from benchmarker.records.load import EngineInfo
from benchmarker.serving.arrivals import Request
from benchmarker.serving.engine import serving
from benchmarker.serving.session import Send


@dataclass(frozen=True, slots=True)
class Target:
    """What answers: its name in the stored load, what sends to it, and what is said if it is gone."""

    model: str
    send: Send
    gone: str
    endpoint: str | None = None
    engine: EngineInfo | None = None


@contextmanager
def endpoint(
    address: str, model: str | None, prompts: str, ignore_eos: bool, request: Request, timeout_s: float
) -> Iterator[Target]:
    """Yield a server after it has answered a request; raises `UserError` if it does not."""
    with needing("serve", "a load on an endpoint"):
        from benchmarker.serving import openai
    url = openai.base_url(address)
    with working(f"sending one request to {url}"):
        name = model or asyncio.run(openai.only_model(url))
        server = openai.Endpoint(url, name, prompts, ignore_eos)  # type: ignore[arg-type]  # one of the choices
        asyncio.run(openai.try_out(server, request, timeout_s))
    yield Target(name, openai.over_http(server, timeout_s), "the server is gone: no connection", endpoint=url)


def engine_options(problem: type[Problem], slots: int, positions: int) -> Mapping[str, Any]:
    """Return the options of an engine of this size; raises `UserError` if the problem generates no text."""
    if not issubclass(problem, Generates):
        raise UserError("this problem generates no text; serve-load needs a language model, such as llama")
    return problem.engine_options(slots, positions)


@contextmanager
def engine(framework: str, slots: int, longest: Request, timeout_s: float, options: dict[str, Any]) -> Iterator[Target]:
    """Yield an engine that is checked and warm; raises `UserError` if there is none."""
    question = ask(options)
    asked, problem = question.asked, question.problem
    if len(names := names_of(framework, asked.problem)) > 1:
        raise UserError(f"one engine is measured at a time; give --framework={names[0]}")
    positions = longest.prompt_len + longest.new_tokens
    environment = gpus.environment(asked.gpu, os.environ)
    with ExitStack() as stack:
        with working(f"starting {names[0]}, checking its tokens, building and warming up"):
            ability = usable(asked.problem, names, environment)[names[0]]
            sized = msgspec.structs.replace(asked, params={**asked.params, **engine_options(problem, slots, positions)})
            case = make_case(sized, problem, names[0], ability)
            server = stack.enter_context(serving(case, environment))
        told = {**server.described, "case": case, "slots": slots, "positions": positions}
        size = "".join(f" {name}={value_text(value)}" for name, value in asked.params.items())
        yield Target(
            f"{asked.problem}{size}",
            partial(server.send, timeout_s=timeout_s),
            "the engine has ended",
            engine=msgspec.convert(msgspec.to_builtins(told), EngineInfo),
        )
